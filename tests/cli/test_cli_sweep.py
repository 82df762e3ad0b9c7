"""`topicscope sweep`: what it prints, what it returns."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.small_sweeps import SWEEP, Stopped, write
from topicscope.cli import run
from topicscope.experiments import sweep

DIVERGING = 'recipe = "tiny.toml"\n[grid]\ntraining.optimizer = ["sgd"]\ntraining.learning_rate = [0.1, 1e30]\n'
IMPOSSIBLE = 'recipe = "tiny.toml"\n[grid]\ntraining.momentum = [0.0, 0.5]\n'


def test_the_table_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = write(tmp_path), tmp_path / "out"
    assert run(["sweep", str(spec), "--out", str(out), "--seeds", "1", "--set", "training.steps=2"]) == 0
    printed = capsys.readouterr().out
    assert "tiny: 4 of 4 points finished" in printed
    assert "learning_rate" in printed
    assert f"page: {out / 'report.html'}" in printed
    assert {path.name for path in out.iterdir()} == {
        *("sweep.json", "table.csv", "sweep.png", "report.html", "rows", "runs", "files.json"),
    }
    document = json.loads((out / "sweep.json").read_text())
    assert document["spec"]["seeds"] == 1
    assert document["manifest"]["command"].startswith("topicscope")
    assert run(["report", str(out / "runs" / document["points"][0]["id"])]) == 0
    (out / "report.html").unlink()
    assert run(["report", str(out)]) == 0
    assert (out / "report.html").is_file()


def test_json_is_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", str(write(tmp_path)), "--out", str(tmp_path / "out"), "--json", "--metric", "W_V_same"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert document["metric"] == "W_V_same"


def test_failures_are_counted_and_give_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", str(write(tmp_path, DIVERGING)), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 points finished, 1 diverged" in printed
    assert "diverged: training.optimizer = sgd, training.learning_rate = 1e+30: training diverged at step" in printed


def test_impossible_settings_stop_it_or_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", str(write(tmp_path, IMPOSSIBLE)), "--out", str(tmp_path / "out")]
    assert run(arguments) == 2
    assert not (tmp_path / "out").exists()
    assert "1 of 2 settings cannot be trained" in capsys.readouterr().err
    assert run([*arguments, "--on-error", "skip"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 1 points finished, 1 impossible" in printed
    assert "left out: training.momentum = 0.5: " in printed


def test_a_dry_run_lists_points_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", str(write(tmp_path, IMPOSSIBLE)), "--out", str(tmp_path / "out"), "--dry-run"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 points, 4 seed(s) each" in printed
    assert "cannot be trained: training.momentum = 0.5" in printed
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [point["values"] for point in document["points"]] == [{"training.momentum": 0.0}]
    assert [one["values"] for one in document["impossible"]] == [{"training.momentum": 0.5}]
    assert not (tmp_path / "out").exists()


def test_interrupted_it_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any, **options: Any) -> Any:
        return sweep(*arguments, **options | {"cluster": Stopped(1)})

    out = tmp_path / "out"
    monkeypatch.setattr("topicscope.cli.sweep.run_sweep", stopped)
    assert run(["sweep", str(write(tmp_path)), "--out", str(out)]) == 130
    printed = capsys.readouterr().out
    assert "1 of 4 points finished, 3 waiting" in printed
    assert f"--out {out} --resume" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume"], "--resume needs"),
        (["--set", "training.learning_rate=1"], "varies this field"),
        (["--set", "training.nothing=1"], "no field training.nothing"),
        (["--metric", "los"], "did you mean loss?"),
        (["--workers", "2"], "--workers and --gpus-per-worker are of a cluster"),
        (["--cluster", "nowhere"], "--cluster"),
        (["--cluster", "local", "--gpus-per-worker", "1"], "does not use the GPUs"),
        (["--keep", "everything"], "keep"),
    ],
)
def test_what_cannot_be_is_bad_usage(
    tmp_path: Path,
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["sweep", str(write(tmp_path, SWEEP)), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "topicscope-runs").exists()
