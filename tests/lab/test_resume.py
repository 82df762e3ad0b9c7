"""A run killed with SIGKILL at random moments ends with the numbers of an unbroken one."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from lab.laboratory import stopped_run
from topicscope.errors import InputError
from topicscope.lab import Checkpoint, load_checkpoint, make_recipe, save_checkpoint, train
from topicscope.records import RunRecord
from topicscope.records.files import HALF_WRITTEN

# One process imports torch and forks a child for each attempt, so that kills are cheap; it has no threads.
DRIVER = """
import json, os, random, signal, sys, time
from topicscope.lab import make_recipe
from topicscope.lab import train
document, folder, longest, seed = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
moments, kills = random.Random(seed), 0
while True:
    child = os.fork()
    if child == 0:
        train(make_recipe(document), seeds=2, out=folder, resume=True)
        os._exit(0)
    patience = moments.uniform(0.05, longest) if kills < 6 else 600
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            print(json.dumps({"kills": kills, "status": status}))
            sys.exit(0)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kills += 1
"""
DATA = {"num_topics": 3, "words_per_topic": 3, "length": [12, 20]}
RUNS = {
    "stacked": {
        "data": DATA,
        "training": {
            "steps": 220,
            "optimizer": "adam",
            "schedule": "cosine",
            "average": 0.3,
            "checkpoint_every": 7,
            "stages": [{"share": 0.5, "train": ["W_V"]}, {"share": 0.5, "train": ["W_K", "W_Q"]}],
        },
    },
    "token by token, a fixed set": {
        "data": DATA | {"source": "fixed", "documents": 13},
        "training": {"steps": 100, "optimizer": "sgd", "momentum": 0.9, "batch_size": 5, "engine": "token"}
        | {"checkpoint_every": 10},
    },
}


FINISHED = {
    "files.json",
    "history.jsonl",
    "manifest.json",
    "recipe.json",
    "snapshots.npz",
    "summary.json",
    "weights.safetensors",
}


def assert_same(found, expected) -> None:
    assert found.weights.keys() == expected.weights.keys()
    for name, value in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], value, err_msg=name)
    assert found.snapshots.keys() == expected.snapshots.keys()
    for name, value in expected.snapshots.items():
        np.testing.assert_array_equal(found.snapshots[name], value, err_msg=name)
    pd.testing.assert_frame_equal(found.history, expected.history, check_exact=True)
    drop = {"seconds"}
    assert {k: v for k, v in found.summary.items() if k not in drop} == {
        k: v for k, v in expected.summary.items() if k not in drop
    }


@pytest.mark.process
@pytest.mark.parametrize("name", RUNS)
def test_killed_at_random_moments(name, tmp_path) -> None:
    recipe = make_recipe(RUNS[name])
    expected = RunRecord.load(train(recipe, seeds=2, out=tmp_path / "whole") and tmp_path / "whole")
    seed = int.from_bytes(os.urandom(4), "big")
    arguments = [json.dumps(RUNS[name]), str(tmp_path / "broken"), "0.8", str(seed)]
    output = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    outcome = json.loads(output.stdout)
    assert outcome["status"] == 0, output.stderr
    assert outcome["kills"] >= 2, f"too quick to be killed (moments of seed {seed})"
    assert_same(RunRecord.load(tmp_path / "broken"), expected)
    assert {path.name for path in (tmp_path / "broken").iterdir()} == FINISHED


def short(**training):
    return make_recipe({"data": DATA, "training": {"steps": 60, "checkpoint_every": 10} | training})


@pytest.mark.parametrize("at", [20, 40, 60])
def test_resuming_continues_rather_than_starting_again(at, tmp_path) -> None:
    expected = train(short(), seeds=2, out=tmp_path / "whole")
    stopped_run(short(), tmp_path / "run", at, seeds=2)
    checkpoint = load_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    assert checkpoint.state["step"] == at
    # Negative control: were the checkpoint not read, this change to it could not show.
    assert_same(train(short(), seeds=2, out=tmp_path / "run", resume=True), expected)
    stopped_run(short(), tmp_path / "other", at, seeds=2)
    spoilt = {name: value + 1 if name == "weights/W_V" else value for name, value in checkpoint.tensors.items()}
    save_checkpoint(tmp_path / "other", Checkpoint(spoilt, checkpoint.state))
    changed = train(short(), seeds=2, out=tmp_path / "other", resume=True)
    assert not np.allclose(changed.weights["W_V"], expected.weights["W_V"])


def test_resuming_a_finished_run_reads_it(tmp_path) -> None:
    expected = train(short(), out=tmp_path / "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    found = train(short(), out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(found.weights["W_V"], expected.weights["W_V"])
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


def test_resuming_before_anything_was_written_starts(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        assert_same(train(short(), out=tmp_path / name, resume=True), train(short()))


@pytest.mark.parametrize("name", ["recipe.json", "checkpoint-00000050.safetensors", "checkpoint.json", "summary.json"])
def test_a_kill_in_the_middle_of_a_write_leaves_nothing_that_stops_or_outlives_the_run(name, tmp_path) -> None:
    if name != "recipe.json":  # the first file of all, so that nothing else is there yet
        stopped_run(short(), tmp_path / "run", 40)
        (tmp_path / "run" / ".recipe.json.mine").write_text("")
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / f".{name}.ab12_d34{HALF_WRITTEN}").write_text("{")
    assert_same(train(short(), out=tmp_path / "run", resume=True), train(short()))
    kept = {".recipe.json.mine"} if name != "recipe.json" else set()
    assert {path.name for path in (tmp_path / "run").iterdir()} == FINISHED | kept


def test_a_kill_after_the_summary_leaves_no_checkpoint_behind(tmp_path) -> None:
    stopped_run(short(), tmp_path / "other", 40)
    expected = train(short(), out=tmp_path / "run")
    for path in (tmp_path / "other").glob("checkpoint*"):
        path.rename(tmp_path / "run" / path.name)
    np.testing.assert_array_equal(
        train(short(), out=tmp_path / "run", resume=True).weights["W_V"], expected.weights["W_V"]
    )
    assert {path.name for path in (tmp_path / "run").iterdir()} == FINISHED


def test_another_run_in_the_folder_is_refused(tmp_path) -> None:
    stopped_run(short(), tmp_path / "run", 40, seeds=2)
    train(short(), out=tmp_path / "done")
    for folder, seeds in (("run", 2), ("done", 1)):
        with pytest.raises(InputError, match="another one") as caught:
            train(short(learning_rate=0.5), seeds=seeds, out=tmp_path / folder, resume=True)
        assert caught.value.received == {"recipe.training.learning_rate": 0.5}
        with pytest.raises(InputError, match="another one") as caught:
            train(short(), seeds=5, out=tmp_path / folder, resume=True)
        assert caught.value.received == {"seeds": 5}
        with pytest.raises(InputError, match="not empty"):
            train(short(), seeds=seeds, out=tmp_path / folder)
    with pytest.raises(InputError, match="other matrices"):
        train(short(), seeds=2, out=tmp_path / "run", resume=True, arrays={"W_V": np.zeros((10, 10))})
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("mine")
    with pytest.raises(InputError, match="nothing to resume"):
        train(short(), out=tmp_path / "letters", resume=True)
    assert (tmp_path / "letters" / "a.txt").read_text() == "mine"
    assert train(short(), out=tmp_path / "run", overwrite=True).summary["seeds"] == 1
    assert load_checkpoint(tmp_path / "run") is None


def test_a_checkpoint_of_another_version_is_refused(tmp_path) -> None:
    stopped_run(short(), tmp_path / "run", 40)
    document = json.loads((tmp_path / "run" / "checkpoint.json").read_text())
    (tmp_path / "run" / "checkpoint.json").write_text(json.dumps(document | {"schema_version": 99}))
    with pytest.raises(InputError, match="schema version"):
        train(short(), out=tmp_path / "run", resume=True)
