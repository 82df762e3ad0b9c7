"""A probe on a Ray cluster: the numbers of one process whatever the number of workers, and clear errors at once."""

import json
import os
import pickle
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS as OPTIONS
from cli.probe_files import save_model
from distributed.processes import descendants
from probing.test_probe_resume import same
from topicscope.cli import run as cli
from topicscope.distributed import Cluster, worker
from topicscope.distributed.cluster import TOKENS_PER_BLOCK, blocks_of
from topicscope.errors import InputError
from topicscope.probing import ProbeConfig
from topicscope.probing.execution import ModelSource
from topicscope.probing.hf import ModelView, load_model, model_files
from topicscope.probing.tokens import AlignedUnit, TokenWindows
from topicscope.progress import SilentProgress

pytestmark = pytest.mark.cluster
probe_module = import_module("topicscope.probing.probe")  # the package's function of this name hides it


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
        alive = [process for process in descendants("ray::call") if process not in self.killed]
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


def test_a_model_by_its_name_is_loaded_by_the_workers_and_must_be_the_same(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder goes to the workers with its files; anything else, such as a name of the hub, goes as a name."""
    monkeypatch.setattr(probe_module, "location", lambda _: "nowhere/tiny-bert")
    with pytest.raises(InputError, match=r"(?s)could not be found.*nowhere/tiny-bert"):
        run(model, corpus, tmp_path / "run", 1)


def test_other_weights_on_the_workers_are_refused(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tiny.build("bert", seed=1)[0]
    other.save_pretrained(tmp_path / "other")
    weights = (tmp_path / "other" / "model.safetensors").read_bytes()
    monkeypatch.setattr(ModelView, "weights", lambda _: weights)
    with pytest.raises(InputError, match="other weights"):
        run(model, corpus, tmp_path / "run", 1)


@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_pickled_and_tied_weights_come_to_a_worker_as_safetensors(family: str, tmp_path: Path) -> None:
    """What `worker.read` does with a model folder, in this process; the token embeddings of BART are shared."""
    folder = save_model(tmp_path / "tiny", family)
    view = load_model(str(folder))
    (folder / "model.safetensors").rename(tmp_path / "weights")
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    files = {name: np.frombuffer(data, np.uint8) for name, data in model_files(folder, view).items()}
    assert "pytorch_model.bin" not in files
    unit = TokenWindows.of([AlignedUnit("a", 0, 0, (1, 2, 3), (None, "a", None))])
    source = ModelSource(str(folder), None, None, None, view.weights_hash())
    sent = worker._loaded(worker.SentModel(source, files, unit), "cpu", ProbeConfig())
    assert sent.weights_hash() == view.weights_hash()
    assert sent.name == view.name


def test_a_block_of_tokens_is_smaller_than_64_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = tuple(f"word-{i}" for i in range(1000))
    units = [
        AlignedUnit(
            f"document {i}",
            i,
            0,
            tuple(range(100_000 + i, 100_200 + i)),
            tuple(words[(i + j) % 1000] for j in range(200)),
        )
        for i in range(2_000)
    ]
    chunks = [(TokenWindows.of(units[i : i + 256]), None) for i in range(0, len(units), 256)]
    assert list(blocks_of(chunks)) == [chunks]
    bytes_per_token = len(pickle.dumps(chunks, protocol=5)) / 400_000
    assert bytes_per_token * TOKENS_PER_BLOCK < 64e6
    monkeypatch.setattr("topicscope.distributed.cluster.TOKENS_PER_BLOCK", 110_000)
    blocks = list(blocks_of(chunks))
    assert [len(block) for block in blocks] == [2, 2, 2, 2]
    assert [chunk for block in blocks for chunk in block] == chunks


def test_other_versions_are_named(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker.versions()
    monkeypatch.setattr(worker, "versions", lambda: here | {"torch": "1.0"})
    with pytest.raises(InputError, match=r"(?s)other versions.*torch .*expected: torch 1\.0"):
        run(model, corpus, tmp_path / "run", 1)


def test_no_gpu_where_one_is_asked_for(ray: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)no GPU.*--gpus-per-worker 2"), Cluster("auto", gpus_per_worker=2):
        pass


def test_a_process_computes_on_the_gpu_of_its_task_not_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, used = pytest.importorskip("ray"), list[int]()
    monkeypatch.setattr(worker.torch.cuda, "set_device", used.append)
    for given in (2, 0):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(given))  # as Ray does before each task
        monkeypatch.setattr(ray, "get_gpu_ids", lambda given=given: [str(given)])
        worker.call(worker.versions(), True, lambda: used.append(len(os.environ.get("CUDA_VISIBLE_DEVICES", ""))))
    assert used == [2, 0, 0, 0]
