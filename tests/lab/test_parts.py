"""Seeds dealt to jobs: one record, whoever trains which group and whenever it ends."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lab.laboratory import stopped_run
from lab.test_resume import DATA, FINISHED, assert_same
from shuffled import Shuffled
from topicscope.errors import InputError, RunError
from topicscope.lab import make_recipe, train
from topicscope.records import load_run
from topicscope.runner import Here
from topicscope.topics import TopicModel

TOKEN = {"data": DATA, "training": {"steps": 12, "engine": "token", "checkpoint_every": 4, "seed": 3}}
RUNS = {
    "token": TOKEN,
    "token, a fixed set, clipped": {
        "data": DATA | {"source": "fixed", "documents": 13},
        "training": {"steps": 8, "optimizer": "sgd", "batch_size": 5, "engine": "token", "clip": 0.1},
    },
    "stacked, averaged, in stages": {
        "data": DATA,
        "training": {
            "steps": 12,
            "dtype": "float64",
            "average": 0.3,
            "stages": [{"share": 0.5, "train": ["W_V"]}, {"share": 0.5, "train": ["W_K", "W_Q"]}],
        },
    },
    "attention": {"data": DATA, "model": {"attention": "trained"}, "training": {"steps": 12, "dtype": "float64"}},
}


def close(found, expected, tolerance: float) -> None:
    """As `assert_same`, within the rounding of sums over other stacks of seeds."""
    assert found.weights.keys() == expected.weights.keys()
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, rtol=0, atol=tolerance * np.abs(value).max())
    pd.testing.assert_frame_equal(found.history, expected.history, rtol=tolerance, atol=tolerance)
    assert found.summary.keys() == expected.summary.keys()
    pd.testing.assert_frame_equal(found.final, expected.final, rtol=tolerance, atol=tolerance, check_dtype=False)


@pytest.mark.parametrize("name", RUNS)
def test_the_record_is_that_of_one_process(name, tmp_path) -> None:
    recipe = make_recipe(RUNS[name])
    expected = load_run(train(recipe, seeds=5, out=tmp_path / "whole") and tmp_path / "whole")
    runner = Shuffled()
    first = train(recipe, seeds=5, out=tmp_path / "run", cluster=runner, seeds_per_task=2, command="a command")
    assert len(runner.done) == 3
    assert runner.checked == [tmp_path / "run"]
    assert {path.name for path in (tmp_path / "run").iterdir()} <= FINISHED
    assert first.manifest.command == "a command"
    assert first.manifest.options["seeds"] == expected.manifest.options["seeds"]
    again = load_run(tmp_path / "run")
    assert_same(again, first)
    compare = assert_same if expected.summary["engine"] == "token" else lambda *pair: close(*pair, 1e-10)
    compare(again, expected)
    # The order in which groups end, and who trains them, change nothing at all.
    assert_same(train(recipe, seeds=5, out=tmp_path / "here", cluster=Here(), seeds_per_task=2), first)


def test_one_group_of_all_seeds_has_the_bits_of_one_process(tmp_path) -> None:
    recipe = make_recipe({"data": DATA, "training": {"steps": 12}})
    expected = load_run(train(recipe, seeds=3, out=tmp_path / "whole") and tmp_path / "whole")
    assert expected.summary["engine"] == "reduced"
    assert_same(train(recipe, seeds=3, out=tmp_path / "run", cluster=Here(), seeds_per_task=3), expected)


def test_what_failed_is_named_and_alone_is_tried_again(tmp_path) -> None:
    recipe = make_recipe(TOKEN)
    with pytest.raises(RunError, match=r"(?s)2 of 5 seeds.*seeds-005-006: its worker died.*--resume"):
        train(recipe, seeds=5, out=tmp_path / "run", cluster=Shuffled(failing=["seeds-005-006"]), seeds_per_task=2)
    assert not (tmp_path / "run" / "summary.json").exists()
    runner = Shuffled()
    before = (tmp_path / "run" / "parts" / "seeds-003-004" / "summary.json").stat().st_mtime_ns
    spoil(tmp_path / "run" / "parts" / "seeds-007-007")
    record = train(recipe, seeds=5, out=tmp_path / "run", cluster=runner, seeds_per_task=2, resume=True)
    assert before  # a finished group is read: were it trained again, the change to it would be gone
    assert (record.weights["W_V"][4] == 7).all()
    expected = train(recipe, seeds=5)
    np.testing.assert_array_equal(record.weights["W_V"][:4], expected.weights["W_V"][:4])


def spoil(folder: Path) -> None:
    record = load_run(folder)
    record.weights["W_V"][:] = 7
    record.write(folder)


def test_an_unfinished_group_goes_on_from_its_checkpoint(tmp_path) -> None:
    recipe = make_recipe({"data": DATA, "training": {"steps": 24, "checkpoint_every": 5}})
    expected = load_run(train(recipe, seeds=2, out=tmp_path / "whole") and tmp_path / "whole")
    with pytest.raises(RunError):
        train(recipe, seeds=2, out=tmp_path / "run", cluster=Shuffled(failing=["seeds-000-001"]), seeds_per_task=2)
    stopped_run(recipe, tmp_path / "run" / "parts" / "seeds-000-001", 20, seeds=2)
    assert (tmp_path / "run" / "parts" / "seeds-000-001" / "checkpoint.json").is_file()
    steps = Steps()
    assert_same(train(recipe, seeds=2, out=tmp_path / "run", cluster=steps, seeds_per_task=2, resume=True), expected)
    assert steps.first == 20


class Steps(Here):
    """Says where the first job begins."""

    first = 0

    def run(self, work, jobs):
        pointer = jobs[0].arguments[-1] / "checkpoint.json"
        self.first = json.loads(pointer.read_text())["state"]["step"]
        yield from super().run(work, jobs)


def test_a_finished_run_is_read_and_cleared_up_after(tmp_path) -> None:
    recipe = make_recipe(TOKEN)
    first = train(recipe, seeds=3, out=tmp_path / "run", cluster=Here())
    shutil.copytree(tmp_path / "run", tmp_path / "run" / "parts" / "seeds-003-005")  # killed just after its last word
    runner = Shuffled()
    assert_same(train(recipe, seeds=3, out=tmp_path / "run", cluster=runner, resume=True), first)
    assert runner.done == []
    assert {path.name for path in (tmp_path / "run").iterdir()} <= FINISHED
    assert_same(train(recipe, seeds=3, out=tmp_path / "run", resume=True), first)


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": 4},
        {"seeds_per_task": 1},
        {"cluster": None},
        {"arrays": {"W_V": np.ones((10, 10))}},
        {"recipe": make_recipe(TOKEN | {"masking": {"p_mask": 0.2}})},
        {"topic_model": TopicModel.disjoint(3, 3, 0.5)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parts_of_another_run_are_not_gone_on_with(change, tmp_path) -> None:
    options = {"recipe": make_recipe(TOKEN), "seeds": 5, "seeds_per_task": 2, "out": tmp_path / "run"}
    with pytest.raises(RunError):
        train(**options, cluster=Shuffled(failing=["seeds-005-006"]))
    with pytest.raises(InputError, match=r"another|dealt"):
        train(**options | {"cluster": Here(), "resume": True} | change)
    train(**options, cluster=Here(), resume=True)


def test_a_run_of_one_process_is_not_gone_on_with_in_parts(tmp_path) -> None:
    stopped_run(make_recipe(TOKEN), tmp_path / "run", 8, seeds=2)
    with pytest.raises(InputError, match=r"(?s)dealt in another way.*expected: without a cluster"):
        train(make_recipe(TOKEN), seeds=2, out=tmp_path / "run", cluster=Here(), resume=True)


class Refuses(Here):
    def check(self, folder):
        raise InputError("the workers cannot write to the output folder")


@pytest.mark.parametrize(
    ("document", "options", "message"),
    [
        (TOKEN, {"cluster": Refuses()}, "workers cannot write"),
        (TOKEN, {"seeds_per_task": 0}, "--seeds-per-task"),
        (TOKEN, {"arrays": {"W_V": np.ones((2, 2))}}, "W_V"),
        ({"data": DATA, "training": {"ridge": {"W_X": 1.0}}}, {}, "W_X"),
        ({"data": {"phi": "missing.npz"}}, {}, "not there"),
    ],
)
def test_bad_input_is_said_before_anything_is_written(document, options, message, tmp_path) -> None:
    with pytest.raises(InputError, match=message):
        train(make_recipe(document), seeds=2, out=tmp_path / "run", **{"cluster": Here()} | options)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_needs_a_folder() -> None:
    with pytest.raises(InputError, match="cluster needs a folder"):
        train(make_recipe(TOKEN), cluster=Here())


def test_files_beside_the_recipe_are_found_by_jobs_elsewhere(tmp_path, monkeypatch) -> None:
    """The recipe's folder is relative here, and a job may run in another folder."""
    (tmp_path / "topics").mkdir()
    np.savez(tmp_path / "topics" / "phi.npz", phi=TopicModel.disjoint(3, 3).phi)
    monkeypatch.chdir(tmp_path)
    recipe = make_recipe({"data": {"phi": "phi.npz"}, "training": {"steps": 5}}, folder="topics")
    expected = train(recipe, seeds=2)
    (tmp_path / "away").mkdir()

    class Away(Here):
        def run(self, work, jobs):
            monkeypatch.chdir(tmp_path / "away")
            yield from super().run(work, jobs)
            monkeypatch.chdir(tmp_path)

    record = train(recipe, seeds=2, out="run", cluster=Away(), seeds_per_task=2)
    np.testing.assert_array_equal(record.weights["W_V"], expected.weights["W_V"])
    assert list((tmp_path / "away").iterdir()) == []
    # Negative control: a machine that sees another file under this name.
    with pytest.raises(InputError, match=r"another data\.phi"):
        train(recipe, seeds=2, out="other", cluster=Changes(tmp_path / "topics" / "phi.npz"))


class Changes(Here):
    def __init__(self, path):
        self.path = path

    def run(self, work, jobs):
        np.savez(self.path, phi=TopicModel.disjoint(3, 4).phi)
        return super().run(work, jobs)
