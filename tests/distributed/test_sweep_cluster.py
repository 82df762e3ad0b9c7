"""A sweep on a Ray cluster: the rows of one process, whatever the number of workers and whoever of them dies."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from distributed.processes import descendants
from experiments.small_sweeps import TINY, rows, write
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.experiments import SweepResult, sweep

pytestmark = pytest.mark.cluster
GRID = """
recipe = "tiny.toml"
seeds = 2
[grid]
training.learning_rate = [0.01, 0.1, 1e30]
training.optimizer = ["sgd", "adam"]
model.attention = ["uniform", "trained"]
"""


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    folder = tmp_path_factory.mktemp("one")
    return sweep(write(folder / "spec", GRID), out=folder / "out")


def test_any_number_of_workers_gives_the_rows_of_one_process(
    ray: Any, one_process: SweepResult, tmp_path: Path
) -> None:
    spec = write(tmp_path, GRID)
    for workers in (1, 2):
        with Cluster("auto", workers=workers) as cluster:
            result = sweep(spec, out=tmp_path / str(workers), cluster=cluster)
        assert rows(result) == rows(one_process)
        assert [point["status"] for point in result.points].count("diverged") > 0
        assert one_process.folder is not None
        for point in result.points[:4]:
            weights = Path("runs", point["id"], "weights.safetensors")
            assert (tmp_path / str(workers) / weights).read_bytes() == (one_process.folder / weights).read_bytes()


def test_a_point_whose_worker_is_killed_goes_on_from_its_checkpoint(ray: Any, tmp_path: Path) -> None:
    recipe = TINY.replace("steps = 3", "steps = 200\ncheckpoint_every = 5")
    spec = write(tmp_path, 'recipe = "tiny.toml"\nseeds = 2\n[grid]\ntraining.learning_rate = [0.1, 0.2]\n', recipe)
    killed: list[bool] = []

    def kill() -> None:
        runs = tmp_path / "out" / "runs"
        while not list(runs.glob("*/checkpoint.json")):
            time.sleep(0.005)
        [process] = descendants("ray::call")
        os.kill(process, signal.SIGKILL)
        killed.append(bool(list(runs.glob("*/checkpoint.json"))))

    thread = threading.Thread(target=kill)
    thread.start()
    with Cluster("auto", workers=1) as cluster:
        result = sweep(spec, out=tmp_path / "out", cluster=cluster)
    thread.join()
    assert killed == [True], "it was at work"
    assert result.complete
    assert rows(result) == rows(sweep(spec))


def test_the_command_line(
    ray: Any, one_process: SweepResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", write(tmp_path, GRID), "--out", tmp_path / "out", "--cluster", "auto", "--workers", 2, "--json"]
    assert cli([*map(str, command), "--progress", "none"]) == 1  # some points diverge
    document = json.loads(capsys.readouterr().out)
    assert [point["measurements"] for point in document["points"]] == [
        point["measurements"] for point in one_process.points
    ]
