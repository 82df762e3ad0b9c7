"""A series of checkpoints: one curve, whose every number is that of a probe; stopped, resumed, damaged, grown."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import THEMES, WORDS_CSV, jsonl, texts
from topicscope.cli import run as command_line
from topicscope.errors import InputError
from topicscope.monitoring import CheckpointSeries, onset
from topicscope.monitoring import checkpoints as series_run
from topicscope.monitoring.checkpoints import find_checkpoints
from topicscope.probing import inputs
from topicscope.probing.statistics import jackknife

QUICK = {"controls": 0, "permutations": 60, "profile": 0}
STEPS = (5, 40, 300)
TAUGHT = 300  # embeddings have topics from this step on


def checkpoint(folder: Path, step: int, family: str = "bert") -> None:
    """A random model whose embeddings know the themes from the step TAUGHT on."""
    model, tokenizer = tiny.build(family, seed=step)
    if step >= TAUGHT:
        rows = model.get_input_embeddings().weight.detach()
        draw = torch.Generator().manual_seed(1)
        for words in THEMES.values():
            shift = torch.randn(rows.shape[1], generator=draw) * float(rows.std()) * 2
            rows[[tokenizer.convert_tokens_to_ids(word) for word in words]] += shift
    model.save_pretrained(folder / f"checkpoint-{step}")
    tokenizer.save_pretrained(folder / f"checkpoint-{step}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run's folder of checkpoints, beside other things, and a text."""
    folder = tmp_path_factory.mktemp("series")
    for step in STEPS:
        checkpoint(folder / "run", step)
    (folder / "run" / "runs").mkdir()
    (folder / "run" / "trainer_state.json").write_text("{}")
    (folder / "words.csv").write_text(WORDS_CSV)
    jsonl(folder / "texts.jsonl", texts(16))
    return folder


@pytest.fixture(scope="module")
def series(place: Path) -> CheckpointSeries:
    return whole(place, place / "whole")


def whole(place: Path, out: Path, **more: object) -> CheckpointSeries:
    options = QUICK | {"topics": place / "words.csv", **more}
    return topicscope.probe_checkpoints(place / "run", place / "texts.jsonl", out=out, **options)


def test_checkpoints_of_a_trainer_come_by_step_not_by_name(place: Path) -> None:
    assert [c.step for c in find_checkpoints(place / "run")] == list(STEPS)
    assert [c.name for c in find_checkpoints(str(place / "run"))] == [f"checkpoint-{step}" for step in STEPS]
    given = [place / "run" / f"checkpoint-{step}" for step in (300, 5)]
    assert [c.step for c in find_checkpoints(given)] == [5, 300]


def test_revisions_of_one_model() -> None:
    found = find_checkpoints("EleutherAI/pythia-70m@step512, step8,step0")
    assert [(c.name, c.model, c.step) for c in found] == [
        ("step0", "EleutherAI/pythia-70m@step0", 0),
        ("step8", "EleutherAI/pythia-70m@step8", 8),
        ("step512", "EleutherAI/pythia-70m@step512", 512),
    ]
    assert [(c.name, c.step) for c in find_checkpoints("somebody/model@main,early,late")] == [
        ("main", 0),
        ("early", 1),
        ("late", 2),
    ]


def test_runs_of_several_seeds_are_told_apart(place: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        shutil.copytree(place / "run" / "checkpoint-5", tmp_path / f"seed_{seed}" / "model")
    found = find_checkpoints([tmp_path / "seed_1" / "model", tmp_path / "seed_0" / "model"])
    assert [(c.name, c.step) for c in found] == [("seed_0-model", 0), ("seed_1-model", 1)]


@pytest.mark.parametrize("source", ["nowhere", "model@", "model@a,,b", "model@a,a", [], "EMPTY"])
def test_what_is_no_series_is_refused(source: object, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        find_checkpoints(tmp_path if source == "EMPTY" else source)  # type: ignore[arg-type]


def test_every_number_is_that_of_a_probe(place: Path, series: CheckpointSeries, tmp_path: Path) -> None:
    """The oracle: a probe of one checkpoint alone, and sums over its documents."""
    alone = topicscope.probe(
        str(place / "run" / "checkpoint-300"), documents=place / "texts.jsonl", topics=place / "words.csv", **QUICK
    )
    rows = series.rows[series.rows["step"] == 300].set_index("quantity")
    measured = alone.table().iloc[0]
    attention = rows.loc["attention"]
    assert attention["ratio"] == measured["attention_ratio"]
    assert attention["z_banded"] == measured["permutation_z"]
    documents = alone.documents

    def means(d: pd.DataFrame) -> tuple[float, float]:
        s = (d["sum_same_word"] + d["sum_same_topic"]).sum() / (d["count_same_word"] + d["count_same_topic"]).sum()
        return s, d["sum_different_topic"].sum() / d["count_different_topic"].sum()

    assert (attention["same"], attention["different"]) == pytest.approx(means(documents), rel=1e-9)
    left_out = np.array([np.subtract(*means(documents.drop(index=i))) for i in documents.index])
    assert attention["difference_se"] == pytest.approx(jackknife(left_out), rel=0.15)
    embeddings = alone.embeddings.query("place == 'raw' and kind == 'cosine'").iloc[0]
    assert (
        rows.loc["embeddings", ["same", "difference", "z"]].tolist() == embeddings[["same", "difference", "z"]].tolist()
    )
    layers = alone.circuits.query("circuit == 'OV' and head == -1 and place == 'raw'")
    assert rows.loc["ov", "z"].tolist() == layers["z"].tolist()
    assert rows.loc["ov", "layer"].tolist() == [0, 1]


def test_the_onset_is_where_topics_were_taught(series: CheckpointSeries) -> None:
    found = series.stages
    embeddings = found.first("embeddings")
    assert (embeddings.low, embeddings.step, embeddings.high) == (40, TAUGHT, TAUGHT)
    # Random weights have none; attention of random weights over embeddings that have topics is not free of them.
    assert found.first("attention").low >= 40
    assert math.isnan(onset(series.curve("attention").query("step < 300"), "", quantity="attention").step)
    data, _ = series.plot()
    assert set(data["quantity"]) == {"embeddings", "ov", "attention"}
    assert data["value"].notna().all()
    assert list(data[data["quantity"] == "attention"]["step"]) == list(STEPS)
    with pytest.raises(InputError, match="unknown figure"):
        series.plot("heads")
    assert series.curve("ov", layer=1)["step"].tolist() == list(STEPS)
    with pytest.raises(InputError, match="no such curve"):
        series.curve("ov", layer=9)


def test_what_is_written_is_read_again(series: CheckpointSeries) -> None:
    found = CheckpointSeries.load(series.folder)
    pd.testing.assert_frame_equal(found.rows, series.rows)
    assert str(found) == str(series)
    assert found.complete
    assert found.result("checkpoint-5").headline["attention_ratio"] == series.curve("attention")["ratio"].iloc[0]
    table = pd.read_csv(series.folder / "series.csv")
    assert table["z"].tolist() == pytest.approx(series.rows["z"].tolist(), nan_ok=True)
    assert len(series.pictures()["emergence.png"]) > 10_000
    document = json.loads((series.folder / "series.json").read_text())
    assert document["counts"] == {"measured": 3, "skipped": 0, "waiting": 0}
    (series.folder / "series.json").rename(series.folder / "kept")
    (series.folder / "series.json").write_text('{"kind": "probe"}')
    with pytest.raises(InputError, match="not a result of topicscope probe --checkpoints"):
        CheckpointSeries.load(series.folder)
    (series.folder / "kept").rename(series.folder / "series.json")


def test_topics_are_fitted_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fit = inputs.fit
    monkeypatch.setattr(inputs, "fit", lambda *a, **k: calls.append(1) or fit(*a, **k))
    options = {"topics": 3, "min_count": 1, "sweeps": 20, "threshold": (0.2,), "permutations": 0}
    found = whole(place, tmp_path / "out", **options)
    assert calls == [1]  # for three checkpoints
    models = [found.result(name).topics[0].model.phi for name in ("checkpoint-5", "checkpoint-300")]
    assert np.array_equal(*models)
    assert whole(place, tmp_path / "out", resume=True, **options).rows.equals(found.rows)
    assert calls == [1]


def test_a_stopped_series_goes_on_to_the_same_curve(
    place: Path, series: CheckpointSeries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the third checkpoint; what was finished is not probed again."""
    probe, seen = series_run.probe, []

    def stopping(view, **options):  # type: ignore[no-untyped-def]
        seen.append(view.name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return probe(view, **options)

    monkeypatch.setattr(series_run, "probe", stopping)
    out = tmp_path / "out"
    stopped = whole(place, out)
    assert stopped.interrupted
    assert (stopped.count("measured"), stopped.count("waiting")) == (2, 1)
    assert CheckpointSeries.load(out).interrupted
    monkeypatch.setattr(series_run, "probe", probe)
    first = out / "results" / "checkpoint-5" / "result.json"
    before = first.stat().st_mtime_ns
    with pytest.raises(InputError, match="not empty"):
        whole(place, out)
    with pytest.raises(InputError, match="another one"):
        whole(place, out, resume=True, permutations=10)
    resumed = whole(place, out, resume=True)
    assert not resumed.interrupted
    pd.testing.assert_frame_equal(resumed.rows, series.rows)
    assert first.stat().st_mtime_ns == before


def test_a_run_that_went_on_has_more_checkpoints(place: Path, series: CheckpointSeries, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "place")
    out = tmp_path / "place" / "whole"
    checkpoint(tmp_path / "place" / "run", 9000)
    grown = whole(tmp_path / "place", out, resume=True)
    assert sorted(set(grown.rows["step"])) == [*STEPS, 9000]
    pd.testing.assert_frame_equal(grown.rows[grown.rows["step"] < 9000], series.rows)


def test_a_checkpoint_that_cannot_be_read_is_named(place: Path, series: CheckpointSeries, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "place")
    broken = tmp_path / "place" / "run" / "checkpoint-40"
    (broken / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(InputError, match=r"checkpoint checkpoint-40: .*weights"):
        whole(tmp_path / "place", tmp_path / "stop")
    assert CheckpointSeries.load(tmp_path / "stop").count("measured") == 1
    skipped = whole(tmp_path / "place", tmp_path / "stop", resume=True, on_error="skip")
    assert skipped.count("skipped") == 1
    assert "2 of 3 checkpoints measured, 1 skipped" in str(skipped)
    assert sorted(set(skipped.rows["step"])) == [5, 300]
    pd.testing.assert_frame_equal(skipped.rows, series.rows[series.rows["step"] != 40].reset_index(drop=True))
    assert not skipped.complete
    assert "checkpoint-40 was skipped: " in skipped.page()
    assert skipped.stages.first("embeddings").low == 5  # less is known than with the checkpoint
    for step in (5, 300):
        (tmp_path / "place" / "run" / f"checkpoint-{step}" / "config.json").write_text("{")
    with pytest.raises(InputError, match="checkpoint-5"):
        whole(tmp_path / "place", tmp_path / "none", on_error="skip")
    with pytest.raises(InputError, match="on_error"):
        whole(place, tmp_path / "unknown", on_error="log")


def test_a_causal_model_is_read_by_the_corrected_figure(place: Path, tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint(tmp_path / "run", step, "gpt2")
    options = QUICK | {"topics": place / "words.csv", "out": tmp_path / "out"}
    found = topicscope.probe_checkpoints(tmp_path / "run", place / "texts.jsonl", **options)
    row = found.curve("attention").iloc[0]
    measured = found.result("checkpoint-1").table().iloc[0]
    assert row["ratio"] == measured["attention_ratio_position_corrected"] != measured["attention_ratio"]
    assert row["same"] / row["different"] == pytest.approx(row["ratio"], rel=1e-9)


def test_the_command_line(place: Path, series: CheckpointSeries, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["probe", "--checkpoints", str(place / "run"), "--corpus", str(place / "texts.jsonl"), "--topics"]
    arguments += [str(place / "words.csv"), "--controls", "0", "--permutations", "60", "--profile", "0"]
    arguments += ["--out", str(series.folder), "--progress", "none"]
    assert command_line([*arguments, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert "3 of 3 checkpoints measured" in printed
    assert "checkpoint-300" in printed
    page = (series.folder / "report.html").read_text()
    assert page.count("<td>encoder</td>") == len(STEPS)
    (series.folder / "report.html").unlink()
    assert command_line(["report", str(series.folder)]) == 0
    assert (series.folder / "report.html").read_text() == page
    capsys.readouterr()
    assert command_line([*arguments, "--resume", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["z"] for row in rows if row["quantity"] == "embeddings"] == series.curve("embeddings")["z"].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["probe"], "needs MODEL, or --checkpoints"),
        (["probe", "model", "--checkpoints", "run"], "needs MODEL, or --checkpoints"),
        (["probe", "--checkpoints", "nowhere"], "no such folder"),
        (["probe", "--checkpoints", "run", "--cluster", "local"], "--cluster is of one model"),
    ],
)
def test_what_does_not_go_together(
    arguments: list[str], message: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--corpus", str(place / "texts.jsonl"), "--out", str(tmp_path / "out"), "--progress", "none"]
    assert command_line([*arguments, *more]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
