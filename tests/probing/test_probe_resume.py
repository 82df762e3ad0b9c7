"""A probe killed, stopped or out of disk at any moment goes on to the numbers of an unbroken run."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tiny
import topicscope
from cli.probe_files import jsonl, probe, save_model, texts
from topicscope.errors import InputError, RunError
from topicscope.probing.execution import forward_pass as passes
from topicscope.probing.execution import state
from topicscope.probing.results import ProbeResult
from topicscope.progress import SilentProgress

OPTIONS: dict[str, Any] = {
    "topics": 3,
    "sweeps": 10,
    "min_count": 1,
    "threshold": (0.1, 0.2),
    "topic_seeds": 1,
    "controls": 1,
    "batch_size": 8,
}
# One process imports torch and forks a child for each attempt, so that kills are cheap; it has no threads.
DRIVER = """
import json, os, random, shutil, signal, sys, time
import topicscope
from topicscope.probing.execution import forward_pass as passes
from topicscope.report import probe_figures as figures, probe_page as html
model, corpus, folder, options, wanted, seed = (
    sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
passes.SECONDS_PER_SHARD, passes.UNITS_PER_CHUNK = 0, 32
moments, kills, runs, whole = random.Random(seed), 0, 0, None
while kills < wanted or runs == 0:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        topicscope.probe(model, documents=corpus, out=f"{folder}/run-{runs}", resume=True, **options)
        os._exit(0)
    if whole is None:  # the first one is left alone: it is what the others must equal
        assert os.waitpid(child, 0)[1] == 0
        whole, runs = time.monotonic() - began, 1
        continue
    end = began + moments.uniform(0, whole)
    status = None
    while status is None and time.monotonic() < end:
        done, code = os.waitpid(child, os.WNOHANG)
        status = code if done else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
    else:
        assert status == 0, status
        runs += 1
# Whatever was killed last is finished.
child = os.fork()
if child == 0:
    topicscope.probe(model, documents=corpus, out=f"{folder}/run-{runs}", resume=True, **options)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps({"kills": kills, "runs": runs + 1}))
"""


def same(first: Path, second: Path) -> None:
    """Two folders hold the same numbers to the last bit; only times of day may differ."""

    def record(folder: Path) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((folder / "result.json").read_text())
        document["manifest"].pop("created")
        for fitted in document["manifest"]["sources"]["topics"].get("fitted", []):
            fitted.pop("created")
        return document

    assert record(first) == record(second)
    assert (first / "heads.csv").read_bytes() == (second / "heads.csv").read_bytes()
    pd.testing.assert_frame_equal(
        pd.read_parquet(first / "documents.parquet"), pd.read_parquet(second / "documents.parquet"), check_exact=True
    )
    with np.load(first / "moments.npz") as a, np.load(second / "moments.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
    assert {p.name for p in first.iterdir()} == {p.name for p in second.iterdir()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "tiny-bert")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """With a document of more units than a chunk holds, in the middle."""
    documents = texts(24)
    documents[12] = " ".join(texts(16, seed=1))
    return jsonl(tmp_path / "corpus.jsonl", documents)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "UNITS_PER_CHUNK", 32)
    monkeypatch.setattr(passes, "SECONDS_PER_SHARD", 0)
    # Drawing takes longer than all the rest, and what is drawn is in the record; the killed runs do draw.
    monkeypatch.setattr("topicscope.report.to_png", lambda _: b"")
    monkeypatch.setattr("topicscope.report.probe_page.render_probe", lambda *_: "")


def killed(model: Path, corpus: Path, folder: Path, kills: int) -> None:
    folder.mkdir()
    seed = random.SystemRandom().randrange(2**32)
    arguments = [
        str(model),
        str(corpus),
        str(folder),
        json.dumps(OPTIONS | {"topic_seeds": 2, "controls": 2}),
        str(kills),
        str(seed),
    ]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
    )
    assert done.returncode == 0, f"moments of seed {seed}: {done.stderr[-3000:]}"
    outcome = json.loads(done.stdout)
    assert outcome["kills"] == kills
    for number in range(1, outcome["runs"]):
        same(folder / "run-0", folder / f"run-{number}")
    assert {p.name for p in folder.iterdir()} == {f"run-{n}" for n in range(outcome["runs"])}, "nothing is left over"


@pytest.mark.process
def test_three_kills_at_random_moments(model: Path, corpus: Path, tmp_path: Path) -> None:
    killed(model, corpus, tmp_path / "runs", 3)


@pytest.mark.long
def test_thirty_kills_at_random_moments(model: Path, corpus: Path, tmp_path: Path) -> None:
    killed(model, corpus, tmp_path / "runs", 30)


class Stop(Exception):
    """Stands for the plug being pulled."""


class StopsAt(SilentProgress):
    def __init__(self, task: str, done: int, error: type[BaseException] = Stop) -> None:
        self.task, self.done, self.error = task, done, error

    def update(self, task: str, done: float) -> None:
        if task == self.task and done >= self.done:
            raise self.error


@pytest.mark.parametrize("task", ["reading", "random weights 1 of 1"])
def test_at_most_one_shard_of_work_is_lost(
    task: str, model: Path, corpus: Path, tmp_path: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, original = [], state.sum_attention

    def counted(view: Any, batches: Any, chunk: Any, *rest: Any, **more: Any) -> Any:
        found = original(view, batches, chunk, *rest, **more)
        read.append(len(chunk))
        return found

    monkeypatch.setattr(state, "sum_attention", counted)
    run = {"documents": corpus, **OPTIONS}
    topicscope.probe(str(model), **run, out=tmp_path / "whole")
    whole, read[:] = sum(read), []
    with pytest.raises(Stop):
        topicscope.probe(str(model), **run, out=tmp_path / "broken", progress=StopsAt(task, 100))
    assert (tmp_path / "broken.unfinished" / "topics-0.npz").is_file()
    assert not (tmp_path / "broken").exists()
    first = sum(read)
    assert 96 <= first < whole
    topicscope.probe(str(model), **run, out=tmp_path / "broken", resume=True)
    assert sum(read) == whole, "finished chunks are not read again"
    same(tmp_path / "whole", tmp_path / "broken")
    before = len(read)
    again = topicscope.probe(str(model), **run, out=tmp_path / "broken", resume=True)
    assert len(read) == before, "a finished run is only read"
    assert again.headline["text"] == ProbeResult.load(tmp_path / "whole").headline["text"]


def test_where_chunks_are_cut_makes_no_difference(model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of a document cut between chunks are added before it becomes a cluster."""
    options = OPTIONS | {"controls": 0, "batch_size": 1}
    whole = topicscope.probe(str(model), documents=corpus, **options)
    monkeypatch.setattr(passes, "UNITS_PER_CHUNK", 7)
    cut = topicscope.probe(str(model), documents=corpus, **options)
    pd.testing.assert_frame_equal(cut.table(), whole.table(), rtol=1e-9)
    first, second = (result.documents.sort_values(["document_id", "threshold"]) for result in (cut, whole))
    pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True), rtol=1e-9)
    assert whole.documents["units"].max() > 60


def test_ctrl_c_inside_a_huge_document_keeps_what_was_read_of_it(
    model: Path, tmp_path: Path, small_chunks: None
) -> None:
    huge = jsonl(tmp_path / "huge.jsonl", [" ".join(texts(32))])
    words = tmp_path / "words.csv"
    words.write_text("word,topic\n" + "".join(f"{word},{i % 2}\n" for i, word in enumerate(tiny.WORDS)))
    run = {"documents": huge, "topics": words, "controls": 1, "batch_size": 8}
    stopped = topicscope.probe(
        str(model), **run, out=tmp_path / "run", progress=StopsAt("reading", 100, KeyboardInterrupt)
    )
    assert stopped.interrupted
    assert stopped.documents["units"].tolist() == [96]
    assert (tmp_path / "run.unfinished").is_dir()
    resumed = topicscope.probe(str(model), **run, out=tmp_path / "run", resume=True)
    assert not resumed.interrupted
    assert not (tmp_path / "run.unfinished").exists()
    topicscope.probe(str(model), **run, out=tmp_path / "whole")
    same(tmp_path / "whole", tmp_path / "run")


def broken_run(model: Path, corpus: Path, out: Path) -> None:
    with pytest.raises(Stop):
        topicscope.probe(
            str(model), documents=corpus, **OPTIONS, out=out, progress=StopsAt("random weights 1 of 1", 100)
        )


def resumed(model: Path, corpus: Path, out: Path, **changes: Any) -> ProbeResult:
    return topicscope.probe(str(model), documents=corpus, **OPTIONS | changes, out=out, resume=True)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_another_text_model_or_option_is_refused_and_the_shards_stay(
    model: Path, corpus: Path, tmp_path: Path, small_chunks: None
) -> None:
    out = tmp_path / "run"
    broken_run(model, corpus, out)
    work = tmp_path / "run.unfinished"
    before = tree(work)
    changed = tmp_path / "elsewhere" / corpus.name
    changed.parent.mkdir()
    changed.write_text(corpus.read_text() + '{"text": "The river runs to the sea."}\n')
    with pytest.raises(InputError, match=r"(?s)another one.*'text'"):
        resumed(model, changed, out)
    with pytest.raises(InputError, match=r"(?s)another one.*'options\.controls'"):
        resumed(model, corpus, out, controls=2)
    other = tmp_path / "other" / "tiny-bert"
    network, tokenizer = tiny.build("bert", seed=1)
    network.save_pretrained(other)
    tokenizer.save_pretrained(other)
    with pytest.raises(InputError, match=r"(?s)another one.*'model'"):
        resumed(other, corpus, out)
    with pytest.raises(InputError, match="--resume"):
        topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out)
    assert tree(work).keys() == before.keys()
    assert all(tree(work)[name] == data for name, data in before.items() if name != "lock")
    resumed(model, corpus, out)
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "whole")
    same(tmp_path / "whole", out)
    with pytest.raises(InputError, match="another run"):
        resumed(model, corpus, out, controls=2)


@pytest.mark.parametrize("name", ["model/state.safetensors", "model/documents-00001.parquet"])
def test_an_unreadable_shard_is_named_and_that_pass_can_be_read_again(
    name: str, model: Path, corpus: Path, tmp_path: Path, small_chunks: None
) -> None:
    out, work = tmp_path / "run", tmp_path / "run.unfinished"
    broken_run(model, corpus, out)
    whole = (work / name).read_bytes()
    (work / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"(?s)shard.*cannot be read.*remove the folder") as caught:
        resumed(model, corpus, out)
    assert str(work / name) in str(caught.value)
    assert (work / "control-0" / "state.safetensors").is_file()
    shutil.rmtree(work / "model")
    resumed(model, corpus, out)
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "whole")
    same(tmp_path / "whole", out)


def limited(limit: int, model: Path, corpus: Path, out: Path, queue: Any) -> None:
    """A process in which no file may grow beyond `limit` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    passes.SECONDS_PER_SHARD, passes.UNITS_PER_CHUNK = 0, 32
    try:
        resumed(model, corpus, out)
    except RunError as error:
        queue.put(str(error))
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")
    else:
        queue.put("done")


def test_a_full_disk_is_a_clear_error_and_finished_shards_stay(
    model: Path, corpus: Path, tmp_path: Path, small_chunks: None
) -> None:
    out, work = tmp_path / "run", tmp_path / "run.unfinished"
    broken_run(model, corpus, out)
    before = tree(work)
    largest = max(len(data) for name, data in before.items() if "control-0" in name)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    job = context.Process(target=limited, args=(largest // 2, model, corpus, out, queue))
    job.start()
    message = queue.get(timeout=120)
    job.join(60)
    assert message.startswith("the result could not be written"), message
    assert "--resume" in message
    after = tree(work)
    assert {n: d for n, d in after.items() if n != "lock"} == {n: d for n, d in before.items() if n != "lock"}
    resumed(model, corpus, out)
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "whole")
    same(tmp_path / "whole", out)


def test_two_runs_on_one_folder(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], small_chunks: None
) -> None:
    """The second is refused, with who is at it; the first is not disturbed."""
    out = tmp_path / "run"
    messages: list[str] = []

    class Meanwhile(SilentProgress):
        def update(self, task: str, done: float) -> None:
            if task == "reading" and not messages:
                for flag in ((), ("--resume",), ("--overwrite",)):
                    assert probe(model, "--corpus", corpus, "--topics", 3, "--out", out, *flag) == 2
                    messages.append(capsys.readouterr().err)

    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, progress=Meanwhile())
    assert len(messages) == 3
    assert all(f"process {os.getpid()} on " in message for message in messages)
    assert all("another run is writing" in message for message in messages)
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "whole")
    same(tmp_path / "whole", out)


def test_resume_from_the_command_line(model: Path, corpus: Path, tmp_path: Path, small_chunks: None) -> None:
    out = tmp_path / "run"
    broken_run(model, corpus, out)
    arguments = ("--corpus", corpus, "--topics", 3, "--sweeps", 10, "--min-count", 1, "--threshold", 0.1, 0.2)
    arguments += ("--batch-size", 8, "--out", out)
    assert probe(model, *arguments, controls=1) == 2
    assert probe(model, *arguments, "--resume", controls=1) == 0
    assert not ProbeResult.load(out).interrupted
    assert probe(model, *arguments, "--resume", controls=1) == 0
