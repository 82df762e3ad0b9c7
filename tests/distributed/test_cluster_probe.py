"""A probe on a Ray cluster: the numbers of one process whatever the number of workers, and clear errors at once."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tiny
import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS as OPTIONS
from cli.probe_files import save_model
from distributed.processes import descendants
from probing.test_probe_resume import same
from topicscope.cli import run as cli
from topicscope.distributed import Cluster, preflight
from topicscope.errors import InputError
from topicscope.progress import SilentProgress

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def whole(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out)
    return out


def run(model: Path, corpus: Path, out: Path, workers: int, **more: Any) -> Any:
    with Cluster("auto", workers=workers) as cluster:
        return topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, cluster=cluster, **more)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_bits_of_one_process(
    workers: int, ray: Any, model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    run(model, corpus, tmp_path / "run", workers)
    same(whole, tmp_path / "run")
    assert not (tmp_path / "run.unfinished").exists()


class Kills(SilentProgress):
    """Kills a worker at the first reports of a pass; keeps what it is told."""

    def __init__(self, task: str, times: int) -> None:
        self.task, self.times, self.killed = task, times, set[int]()
        self.figures: list[dict[str, float]] = []

    def note(self, task: str, figures: dict[str, float]) -> None:
        self.figures.append(figures)
        alive = [process for process in descendants("ray::Worker") if process not in self.killed]
        if task == self.task and len(self.killed) < self.times and alive:
            os.kill(alive[-1], signal.SIGKILL)
            self.killed.add(alive[-1])


def test_a_killed_worker_is_replaced_and_its_shard_read_again(
    ray: Any, model: Path, corpus: Path, whole: Path, tmp_path: Path
) -> None:
    kills = Kills("reading", 2)
    result = run(model, corpus, tmp_path / "run", 2, progress=kills)
    assert len(kills.killed) == 2
    assert result.complete
    same(whole, tmp_path / "run")
    assert {"documents/s", "tokens/s", "failed shards"} == set(kills.figures[0])


def test_the_command_line(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = [
        f"--{name.replace('_', '-')}" for name in ("topics", "sweeps", "min_count", "permutations", "shard_units")
    ]
    arguments = [part for option, value in zip(options, (3, 10, 1, 0, 32), strict=True) for part in (option, value)]
    arguments += ["--corpus", corpus, "--threshold", 0.1, "--out", tmp_path / "run"]
    arguments += ["--controls", 0, "--cluster", "auto", "--workers", 2, "--json", "--progress", "json"]
    assert cli(["probe", *map(str, [model, *arguments])]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["coverage"]["rows"]["encoder"]["read"] > 0
    events = [json.loads(line) for line in captured.err.splitlines() if line.startswith("{")]
    last = [event for event in events if event["task"] == "reading" and event["event"] == "finish"][-1]
    assert last["failed shards"] == 0
    assert last["tokens/s"] > 0


class Rewrites(SilentProgress):
    """Another model takes the folder's place while the text is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, task: str, total: float | None, unit: str) -> None:
        if task == "reading text":
            tiny.build("bert", seed=1)[0].save_pretrained(self.folder)


def test_other_weights_on_the_workers_are_refused(ray: Any, corpus: Path, tmp_path: Path) -> None:
    changing = save_model(tmp_path / "tiny-bert")
    with pytest.raises(InputError, match="other weights"):
        run(changing, corpus, tmp_path / "run", 1, progress=Rewrites(changing))


def test_other_versions_are_named_before_any_work(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = preflight.installed
    monkeypatch.setattr(preflight, "installed", lambda packages: original(packages) | {"torch": "1.0"})
    with pytest.raises(InputError, match=r"(?s)other versions.*torch .*expected: torch 1\.0"):
        run(model, corpus, tmp_path / "run", 1)
    assert not (tmp_path / "run.unfinished").exists()


def test_no_gpu_where_one_is_asked_for(ray: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)no GPU.*--gpus-per-worker 2"), Cluster("auto", gpus_per_worker=2):
        pass


def test_a_folder_that_workers_cannot_write(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for a folder that is not shared: workers are told another path, which they do not have."""
    original = preflight._look_around

    def elsewhere() -> Any:
        look = original()
        return lambda packages, question, answer: look(packages, f"/nonexistent{question}", f"/nonexistent{answer}")

    monkeypatch.setattr(preflight, "_look_around", elsewhere)
    with pytest.raises(
        InputError, match=r"(?s)workers cannot write to the output folder.*storage that the machines share"
    ):
        run(model, corpus, tmp_path / "run", 1)
    assert not (tmp_path / "run.unfinished").exists()
