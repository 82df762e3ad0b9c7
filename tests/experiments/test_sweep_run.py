"""Rows are what `train` gives, whoever trains; what is finished is kept; what fails is a row with its reason."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topicscope
from experiments.small_sweeps import SWEEP, TINY, Shuffled, Stopped, rows, write
from topicscope.errors import InputError
from topicscope.experiments import SweepResult, resolve, sweep
from topicscope.lab import load_recipe, train
from topicscope.records import dump_json
from topicscope.report.style import PaperFigure
from topicscope.theory import value_matrix_blocks

# The package's function of this name hides the module.
point_module = import_module("topicscope.experiments.sweep")


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are the business of other tests, and take longer than these trainings."""
    monkeypatch.setattr("topicscope.report.draw_sweep", lambda *_: (pd.DataFrame(), PaperFigure((1, 1))))


# Checkpoints at every step, so that an unfinished training has something to go on from.
LASTING = TINY.replace("steps = 3", "steps = 25\ncheckpoint_every = 1")


def test_each_row_is_a_direct_training_of_that_recipe(tmp_path: Path) -> None:
    result = sweep(write(tmp_path / "spec"), out=tmp_path / "out")
    table = result.table()
    assert list(table["status"]) == ["finished"] * 4
    for _, row in table.iterrows():
        values = [f"{name}={row[name]}" for name in result.swept]
        recipe = load_recipe(tmp_path / "spec" / "tiny.toml", values)
        record = train(recipe, seeds=2, references=resolve(recipe)[1])
        final = record.final
        for name in set(final) - {"seed", "step"}:
            np.testing.assert_equal(row[name], np.mean(final[name]))
            np.testing.assert_equal(row[f"{name}_sd"], np.std(final[name], ddof=1))
            assert row[f"{name}_count"] == final[name].notna().sum()
        setting = recipe.setting()
        assert setting is not None
        if row["model.attention"] == "uniform":
            theory = value_matrix_blocks(setting)
            away = {name: row[f"W_V_{name}"] / getattr(theory, name) - 1 for name in ("same", "different", "diagonal")}
            for name, value in away.items():
                assert row[f"W_V_{name}_theory"] == getattr(theory, name)
                assert row[f"W_V_{name}_deviation"] == pytest.approx(value)
            away["mask_column"] = row["W_V_mask_column"] / theory.mask_column - 1
            assert row["deviation"] == pytest.approx(max(map(abs, away.values())))
        else:
            assert math.isnan(row["W_V_same_theory"])
            assert row["stage_k2"] == np.mean([stages["k2"] for stages in record.summary["stages"]])
        # The record is that of `topicscope train`, with theory beside it.
        kept = topicscope.load(tmp_path / "out" / "runs" / str(row["id"]))
        assert kept.summary["final"] == json.loads(dump_json(record.summary["final"]))  # NaN is null
        assert kept.weights["W_V"].tobytes() == record.weights["W_V"].tobytes()
        assert ("value_matrix" in kept.summary) == ("W_V_same" in final)


def test_rows_do_not_depend_on_who_trains_nor_on_what_is_kept(tmp_path: Path) -> None:
    spec = write(tmp_path / "spec")
    here = rows(sweep(spec, out=tmp_path / "here"))
    assert rows(sweep(spec, out=tmp_path / "shuffled", cluster=Shuffled())) == here
    summary = sweep(spec, out=tmp_path / "summary", keep="summary")
    assert rows(summary) == here
    assert not list((tmp_path / "summary" / "runs").glob("*"))
    assert rows(sweep(spec)) == here  # nothing is written
    first, second = (json.loads((tmp_path / name / "sweep.json").read_text()) for name in ("here", "shuffled"))
    for document in (first, second):
        assert document["kind"] == "sweep"
        for row in (*document["table"], *document["points"]):
            row["seconds"] = None
    assert first["table"] == second["table"]
    assert first["points"] == second["points"]


def test_a_diverged_point_is_a_row(tmp_path: Path) -> None:
    spec = write(
        tmp_path, 'recipe = "tiny.toml"\n[grid]\ntraining.optimizer = ["sgd"]\ntraining.learning_rate = [0.1, 1e30]\n'
    )
    result = sweep(spec, out=tmp_path / "out")
    assert [point["status"] for point in result.points] == ["finished", "diverged"]
    assert "diverged at step" in str(result.points[1]["reason"])
    assert not result.complete
    assert str(result) == "tiny: 1 of 2 points finished, 1 diverged"
    kept = sweep(spec, out=tmp_path / "out", resume=True, cluster=Stopped(0))  # it would diverge again
    assert rows(kept) == rows(result)
    assert kept.counts["kept"] == 2
    assert not kept.interrupted


def test_a_lost_point_is_tried_again_by_resume(tmp_path: Path) -> None:
    spec = write(tmp_path)
    result = sweep(spec, out=tmp_path / "out", cluster=Shuffled(losing=[1, 2]))
    assert [point["status"] for point in result.points] == ["finished", "failed", "failed", "finished"]
    assert result.points[1]["reason"] == "its worker died"
    runner = Stopped(2)
    again = sweep(spec, out=tmp_path / "out", resume=True, cluster=runner)
    assert (again.complete, runner.begun, again.counts["kept"]) == (True, 2, 2)
    assert rows(again) == rows(sweep(spec))


def test_what_a_worker_refuses_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InputError("no such device", received="cuda")

    monkeypatch.setattr(point_module, "train", refuse)
    result = sweep(write(tmp_path), out=tmp_path / "out")
    assert {(point["status"], point["reason"]) for point in result.points} == {("failed", "no such device: cuda")}
    assert not list((tmp_path / "out" / "rows").glob("*"))
    with pytest.raises(InputError, match="no such device"):
        sweep(write(tmp_path), overrides=["training.device=nowhere"])


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    spec = write(tmp_path)
    result = sweep(spec, out=tmp_path / "out", cluster=Stopped(1))
    assert result.interrupted
    assert [point["status"] for point in result.points] == ["finished", "waiting", "waiting", "waiting"]
    loaded = SweepResult.load(tmp_path / "out")
    assert loaded.interrupted
    assert loaded.counts["waiting"] == 3
    again = sweep(spec, out=tmp_path / "out", resume=True)
    assert (again.interrupted, again.complete, again.counts["kept"]) == (False, True, 1)


def test_a_sweep_that_grew_keeps_what_it_had(tmp_path: Path) -> None:
    sweep(write(tmp_path), out=tmp_path / "out")
    grown = write(tmp_path, SWEEP.replace("[0.01, 0.1]", "[0.1, 1.0]"))
    runner = Stopped(2)
    result = sweep(grown, out=tmp_path / "out", resume=True, cluster=runner)
    assert result.complete
    assert (runner.begun, result.counts["kept"], result.counts["left_over"]) == (2, 2, 2)
    assert sorted(result.table()["training.learning_rate"]) == [0.1, 0.1, 1.0, 1.0]
    assert rows(result) == rows(sweep(grown))


def test_rows_of_other_code_or_files_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'recipe = "tiny.toml"\n[grid]\ntraining.steps = [1, 2]\n'
    own = TINY.replace("num_topics = 2\nwords_per_topic = 2", 'phi = "phi.npy"').partition("[references]")[0]
    spec = write(tmp_path, text, own)
    phi = np.array([[0.6, 0.4, 0, 0], [0, 0, 0.5, 0.5]])
    np.save(tmp_path / "phi.npy", phi)
    first = sweep(spec, out=tmp_path / "out")
    np.save(tmp_path / "phi.npy", phi[::-1, ::-1])
    second = sweep(spec, out=tmp_path / "out", resume=True)
    assert second.counts["kept"] == 0
    assert second.table()["loss"].tolist() != first.table()["loss"].tolist()
    assert sweep(spec, out=tmp_path / "out", resume=True).counts["kept"] == 2
    monkeypatch.setattr(point_module, "NUMBERS_VERSION", 0)
    assert sweep(spec, out=tmp_path / "out", resume=True).counts["kept"] == 0


def test_records_that_are_wanted_later_are_made(tmp_path: Path) -> None:
    sweep(write(tmp_path), out=tmp_path / "out", keep="summary")
    assert sweep(write(tmp_path), out=tmp_path / "out", keep="summary", resume=True).counts["kept"] == 4
    result = sweep(write(tmp_path), out=tmp_path / "out", resume=True)
    assert result.counts["kept"] == 0
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    assert result.counts["bytes"] > 4 * 5000


KILLED = """
import sys
from topicscope.experiments import sweep
sweep(sys.argv[1], out=sys.argv[2])
"""


@pytest.mark.process
def test_a_killed_sweep_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    spec, out = write(tmp_path, recipe=LASTING), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(spec), str(out)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    while not (list((out / "rows").glob("[!.]*.json")) and list((out / "runs").glob("*/checkpoint.json"))):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = len(list((out / "rows").glob("[!.]*.json")))
    assert 0 < finished < 4
    (unfinished,) = [path.parent for path in (out / "runs").glob("*/checkpoint.json")]
    runner = Stopped(4)
    result = sweep(spec, out=out, resume=True, cluster=runner)
    assert (runner.begun, result.counts["kept"]) == (4 - finished, finished)
    assert rows(result) == rows(sweep(spec))
    assert not [
        path.name for path in out.rglob("*") if path.name.startswith((".", "checkpoint")) or path.suffix == ".key"
    ]
    assert (out / "runs" / unfinished.name / "summary.json").is_file()


def test_checkpoints_of_another_numbers_version_are_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out, real = write(tmp_path, recipe=LASTING), tmp_path / "out", train
    begun: list[bool] = []

    def stopped(*arguments: Any, out: Path, **options: Any) -> Any:
        begun.append(out.exists())
        if len(begun) == 1:
            out.mkdir(parents=True)
            (out / "recipe.json").write_text("{}")  # as of a training under way
            raise KeyboardInterrupt
        return real(*arguments, out=out, **options)

    monkeypatch.setattr(point_module, "train", stopped)
    assert sweep(spec, out=out).interrupted
    monkeypatch.setattr(point_module, "NUMBERS_VERSION", 0)
    assert sweep(spec, out=out, resume=True).complete
    assert not any(begun)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", "another's", "no measurements"])
def test_a_damaged_row_is_named(tmp_path: Path, damage: str) -> None:
    spec, out = write(tmp_path), tmp_path / "out"
    result = sweep(spec, out=out)
    path = out / "rows" / f"{result.points[2]['id']}.json"
    another = json.loads((out / "rows" / f"{result.points[1]['id']}.json").read_text())
    made = {"another's": another, "no measurements": another | {"id": path.stem, "measurements": {"loss": 0.5}}}
    path.write_text(json.dumps(made[damage]) if damage in made else damage)
    with pytest.raises(InputError, match="not the row of a sweep") as error:
        sweep(spec, out=out, resume=True)
    assert path.name in str(error.value)
    path.unlink()
    assert rows(sweep(spec, out=out, resume=True)) == rows(result)


def test_folders(tmp_path: Path) -> None:
    spec, out = write(tmp_path / "spec"), tmp_path / "out"
    sweep(spec, out=out, resume=True)  # nothing there: it begins
    with pytest.raises(InputError, match="not empty"):
        sweep(spec, out=out)
    assert sweep(spec, out=out, overwrite=True).counts["kept"] == 0
    assert not (out / "lock").exists()
    with pytest.raises(InputError, match="nothing to resume"):
        sweep(spec, out=tmp_path / "spec", resume=True)
    with pytest.raises(InputError, match="resume needs a folder"):
        sweep(spec, resume=True)
    with pytest.raises(InputError, match="one of them"):
        sweep(spec, out=out, resume=True, overwrite=True)


def test_two_sweeps_never_write_to_one_folder(tmp_path: Path) -> None:
    spec, out = write(tmp_path), tmp_path / "out"

    class Second(Stopped):
        def run(self, *_: Any) -> Any:
            for more in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(InputError, match="another run is writing"):
                    sweep(spec, out=out, **more)
            return iter(())

    sweep(spec, out=out, cluster=Second(0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "W_V_sam"}, "did you mean W_V_same?"),
        ({"keep": "all"}, "record or summary"),
        ({"on_error": "go"}, "stop or skip"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        sweep(write(tmp_path), out=tmp_path / "out", **options)
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_progress_counts_points_and_failures(tmp_path: Path) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def start(self, task: str, total: int | float | None, unit: str) -> None:
            self.seen.append((task, total, unit))

        def update(self, task: str, done: int | float) -> None:
            self.seen.append(done)

        def finish(self, task: str) -> None:
            self.seen.append("end")

        def note(self, task: str, figures: dict[str, float]) -> None:
            self.seen.append(figures)

    watcher = Watcher()
    sweep(write(tmp_path), progress=watcher, cluster=Shuffled(losing=[0, 1, 2, 3]))
    counted = [item for n in range(1, 5) for item in ({"failed": n}, n)]
    assert watcher.seen == [("tiny", 4, "points"), 0, *counted, "end"]
