"""A sweep on a Ray cluster: the rows of one process, whatever the number of workers and whoever of them dies."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed.processes import descendants
from experiments.small_sweeps import TINY, rows, write
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.errors import InputError
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


def test_a_point_whose_worker_is_killed_is_trained_again(ray: Any, tmp_path: Path) -> None:
    recipe = TINY.replace("steps = 3", "steps = 400\ncheckpoint_every = 5")
    spec = write(tmp_path, 'recipe = "tiny.toml"\nseeds = 2\n[grid]\ntraining.learning_rate = [0.1, 0.2]\n', recipe)
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            killed.extend(descendants("ray::call"))
            time.sleep(0.005)
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with Cluster("auto", workers=1) as cluster:
        result = sweep(spec, out=tmp_path / "out", cluster=cluster)
    thread.join()
    assert result.complete
    assert rows(result) == rows(sweep(spec))


def test_files_that_a_recipe_names_go_to_the_workers(ray: Any, tmp_path: Path) -> None:
    own = TINY.replace("num_topics = 2\nwords_per_topic = 2", 'phi = "of/phi.npy"').partition("[references]")[0]
    spec = write(tmp_path, 'recipe = "tiny.toml"\n[grid]\ntraining.steps = [1, 2]\n', own)
    (tmp_path / "of").mkdir()
    np.save(tmp_path / "of" / "phi.npy", np.array([[0.6, 0.4, 0, 0], [0, 0, 0.5, 0.5]]))
    expected = rows(sweep(spec))
    with Cluster("auto", workers=1) as cluster:
        assert rows(sweep(spec, cluster=cluster)) == expected
        spec = write(tmp_path / "deeper", spec.read_text(), own.replace("of/phi.npy", "../of/phi.npy"))
        with pytest.raises(InputError, match=r"(?s)only from the recipe's folder.*\.\./of/phi\.npy"):
            sweep(spec, cluster=cluster)


def test_the_command_line(
    ray: Any, one_process: SweepResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", write(tmp_path, GRID), "--out", tmp_path / "out", "--cluster", "auto", "--workers", 2, "--json"]
    assert cli([*map(str, command), "--progress", "none"]) == 1  # some points diverge
    document = json.loads(capsys.readouterr().out)
    assert [point["measurements"] for point in document["points"]] == [
        point["measurements"] for point in one_process.points
    ]
