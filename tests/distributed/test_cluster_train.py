"""Training on a Ray cluster: the record of one process, whatever the number of workers and whoever of them dies."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from distributed.processes import descendants
from lab.test_resume import assert_same
from topicscope.cli import run as cli
from topicscope.distributed import Cluster
from topicscope.errors import RunError
from topicscope.lab import make_recipe, train
from topicscope.records import RunRecord, load_run

pytestmark = pytest.mark.cluster
DATA = {"num_topics": 3, "words_per_topic": 3, "length": [12, 20]}
TOKEN = {"data": DATA, "training": {"steps": 12, "engine": "token"}}
STACKED = {"data": DATA, "training": {"steps": 12}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(make_recipe(TOKEN), seeds=5, out=folder)
    return load_run(folder)


def trained(document: dict[str, Any], folder: Path, workers: int, **more: Any) -> RunRecord:
    with Cluster("auto", workers=workers) as cluster:
        train(make_recipe(document), seeds=5, out=folder, cluster=cluster, seeds_per_task=2, **more)
    return load_run(folder)


def test_any_number_of_workers_gives_the_bits_of_one_process(ray: Any, whole: RunRecord, tmp_path: Path) -> None:
    for workers in (1, 4):
        assert_same(trained(TOKEN, tmp_path / str(workers), workers), whole)
    first, second = (trained(STACKED, tmp_path / f"stacked-{workers}", workers) for workers in (1, 3))
    assert first.summary["engine"] == "reduced"
    assert_same(first, second)
    assert first.manifest.options["threads"] == 1


def test_a_group_whose_worker_is_killed_goes_on_from_its_checkpoint(ray: Any, tmp_path: Path) -> None:
    document = {"data": DATA, "training": {"steps": 400, "checkpoint_every": 5}, "history": {"points_per_decade": 1}}
    pointer, killed = tmp_path / "run" / "parts" / "seeds-000-001" / "checkpoint.json", []

    def kill() -> None:
        while not pointer.is_file():
            time.sleep(0.005)
        [process] = descendants("ray::call")
        os.kill(process, signal.SIGKILL)
        killed.append(pointer.is_file())

    thread = threading.Thread(target=kill)
    thread.start()
    with Cluster("auto", workers=1) as cluster:
        train(make_recipe(document), seeds=2, out=tmp_path / "run", cluster=cluster)
    thread.join()
    assert killed == [True], "it was at work"
    train(make_recipe(document), seeds=2, out=tmp_path / "whole")
    assert_same(load_run(tmp_path / "run"), load_run(tmp_path / "whole"))


def test_seeds_that_diverge_are_named_and_the_others_kept(ray: Any, tmp_path: Path) -> None:
    document = {"data": DATA, "training": {"steps": 60, "optimizer": "sgd", "learning_rate": 1e9, "loss": "squared"}}
    with pytest.raises(RunError, match=r"(?s)5 of 5 seeds.*seeds-004-004: RunError: training diverged.*tried 4 times"):
        trained(document, tmp_path / "run", 4)


def test_the_command_line(ray: Any, whole: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        "[data]\nnum_topics = 3\nwords_per_topic = 3\nlength = [12, 20]\n[training]\nsteps = 12\nengine = 'token'\n"
    )
    command = ["train", recipe, "--seeds", 5, "--out", tmp_path / "run", "--progress", "none", "--json"]
    command += ["--cluster", "auto", "--workers", 2, "--seeds-per-task", 2]
    assert cli([*map(str, command)]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["seeds"] == 5
    found = load_run(tmp_path / "run")
    assert found.weights["W_V"].tobytes() == whole.weights["W_V"].tobytes()
    assert (tmp_path / "run" / "report.html").is_file()
    assert not (tmp_path / "run" / "parts").exists()
