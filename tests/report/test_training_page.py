"""The page of a training run: its answer is the record's, its slider shows the matrices, nothing outside is let in."""

import base64
import html
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import topicscope
from report.reproduction_folders import run as made_up
from topicscope.cli import run as command_line
from topicscope.report.training_figures import MOST_CELLS, attention, matrix, run_matrices
from topicscope.report.training_page import answers, render_run

HOSTILE = "<script>alert(1)</script>{{7*7}}</style>&\"'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run by the command line that meets Theorem 3's conditions, with theory beside it."""
    base = tmp_path_factory.mktemp("run")
    recipe = base / "short.toml"
    recipe.write_text(
        'name = "short"\n[data]\nnum_topics = 4\nwords_per_topic = 3\ntopics_per_document = 2\nlength = 30\n'
        '[model]\nvalue = "fixed"\nsigma = 0.01\n[arrays]\nW_V = "theorem-2"\n[history]\ndocuments = 20\n'
        '[training]\nloss = "squared"\nlearning_rate = 0.02\nsteps = 30\nbatch_size = 8\n'
    )
    assert command_line(["train", str(recipe), "--seeds", "2", "--out", str(base / "out")]) == 0
    return base / "out"


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def documents(page):
    found = re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    return {name: json.loads(text) for name, text in found}


def test_train_leaves_a_page_and_redraws_it_the_same(folder, page) -> None:
    assert render_run(topicscope.load(folder)) == page
    assert len(page.encode()) < 2_000_000
    text, scripts = re.subn(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert scripts == len(documents(page)) + 1  # our own
    assert re.findall(r'(?:src|href)="(?!data:|#)', text) == []
    assert "default-src 'none'" in html.unescape(page)


def test_the_answer_has_theory_beside_it(folder, page) -> None:
    summary = json.loads((folder / "summary.json").read_text())["summary"]
    beside = summary["attention"]
    assert beside["theory"]["same_topic"] > 1
    sentence = f"{beside['measured']['same_topic']:.4g} times (theory {beside['theory']['same_topic']:.4g})"
    assert sentence in page
    assert f"theory {beside['theory']['same_topic']:.3g}</text>" in page


def test_curves_are_means_over_seeds(folder) -> None:
    record = topicscope.load(folder)
    _, figure = attention(record)
    history = record.history
    ratio = (history["attention_same_word"] / history["attention_different_topic"]).groupby(history["step"])
    asked = [(y, said) for axes, _, y, said in figure.points if axes is figure.axes[1] and said[:9] == "same word"]
    np.testing.assert_allclose([y for y, _ in asked], ratio.mean(), rtol=1e-12)
    rows = ratio.agg(["mean", "min", "max"]).to_numpy().tolist()
    means = [f"{mean:.7g} ({low:.7g} to {high:.7g})" for mean, low, high in rows]
    assert [said.partition(": ")[2] for _, said in asked] == means


def test_the_slider_shows_the_snapshots(folder, page) -> None:
    matrices = run_matrices(topicscope.load(folder))
    spec = documents(page)["cells-matrix-logits"]
    assert spec["prefix"] == "step "
    assert spec["slider"]
    steps = matrices["logits"].steps.tolist()
    assert [int(state["name"].replace(",", "")) for state in spec["states"]] == steps
    assert spec["shown"] == len(steps) - 1
    for state, expected in zip(spec["states"], matrices["logits"].frames, strict=True):
        np.testing.assert_allclose(state["values"], expected.ravel(), rtol=1e-3)
    # One drawing, whatever the number of states.
    assert len(re.findall('id="matrix-logits-cells"', page)) == 1


def test_large_matrices_have_fewer_states(folder) -> None:
    record = topicscope.load(folder)
    frames = np.random.default_rng(0).normal(size=(20, 150, 150)).astype(np.float32)
    topic, edge = np.repeat([-1, 0], [1, 149]), np.arange(151)
    large = replace(record, snapshots={"W_V": frames, "step": np.arange(20) ** 2, "topic": topic, "edge": edge})
    _, figure = matrix(large, name="W_V", step=361)
    states = figure.cells.states
    assert len(states) == MOST_CELLS // 150**2
    assert list(states)[-1] == figure.cells.shown == "361"
    _, small = matrix(large, name="W_V", step=361, most_cells=50_000)
    assert list(small.cells.states) == ["0", "361"]


def test_downloads_are_the_record(folder, page) -> None:
    links = re.findall(r'href="data:[^,]+,([^"]+)" download="([^"]+)"', page)
    found = {name: base64.b64decode(text).decode() for text, name in links}
    record = topicscope.load(folder)
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(found["history.csv"])), record.history)
    assert json.loads(found["summary.json"]) == json.loads((folder / "summary.json").read_text())
    assert json.loads(found["recipe.json"]) == record.config


def test_text_from_outside_is_escaped() -> None:
    record = made_up("two")
    history = record.history.assign(loss=1.0)
    final = [{"seed": s, "step": 200, "loss": 1.0} for s in range(2)]
    summary = record.summary | {"final": final, "name": HOSTILE, "description": HOSTILE, "seeds": 2}
    summary["stages"] = [one | {"verdict": HOSTILE} for one in record.summary["stages"]]
    manifest = record.manifest.model_copy(update={"command": HOSTILE, "sources": {HOSTILE: HOSTILE}})
    page = render_run(replace(record, history=history, summary=summary, manifest=manifest))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "{{7*7}}" in page


def test_answers_say_whether_stages_were_found() -> None:
    record = made_up("two")
    history = record.history.assign(loss=1.0)
    final = [{"seed": s, "step": 200, "loss": 1.0} for s in range(2)]
    found = replace(record, history=history, summary=record.summary | {"final": final})
    assert "two separate stages in 2 of 2 seeds: W_V had settled by step 10" in answers(found)[0]
    assert "attention began to move at step 100" in answers(found)[0]
    stages = [one | {"separated": False, "stage_two_reached": False} for one in record.summary["stages"]]
    none = replace(found, summary=found.summary | {"stages": stages})
    assert answers(none)[0].startswith("No two stages")
    assert "attention had not moved by the end" in answers(none)[0]
    early = [one | {"stage_two_reached": one["seed"] > 0} for one in record.summary["stages"]]
    said = answers(replace(found, summary=found.summary | {"stages": early}))[0]
    assert "two separate stages" not in said
    assert "had not begun by the end in 1 of 2 seeds" in said
    without = replace(found, summary={k: v for k, v in found.summary.items() if k != "stages"})
    assert answers(without)[0].startswith("The loss on held-out documents went from 1 to 1")


def test_matrices_keep_their_names_in_the_table(page) -> None:
    assert '<th scope="row">W_V same</th>' in page or "<td>W_V same</td>" in page
    assert "W V" not in page


def test_a_notebook_shows_answer_table_and_picture_without_a_script(folder):
    record = topicscope.load(folder)
    hostile = replace(record, summary=record.summary | {"name": HOSTILE})
    shown = hostile._repr_html_()
    assert html.escape(answers(hostile)[0]) in shown
    assert "<table" in shown
    assert "data:image/png;base64," in shown
    assert "<script" not in shown
