"""Figures of training runs show what the record says, are the same from a loaded record, and name what they lack."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import topicscope
from topicscope.errors import InputError
from topicscope.lab import make_recipe, train
from topicscope.report import save
from topicscope.report.style import WIDTHS, Bracket, block_map, brackets, paper_figure, rendered, spread
from topicscope.report.training_figures import KINDS, band, by_step, run_matrices

DATA = {"num_topics": 3, "words_per_topic": 2, "topics_per_document": 2, "length": 20}


@pytest.fixture(scope="module")
def run():
    """Everything trained, squared loss: it has norms, stages, attention, W_V, E and logits."""
    model = {"embedding": "trained", "width": 4, "sigma": 0.05}
    training = {"loss": "squared", "learning_rate": 0.05, "steps": 40, "batch_size": 8}
    document = {"name": "all", "data": DATA, "model": model, "training": training, "history": {"documents": 20}}
    return train(make_recipe(document), seeds=2)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_the_same_from_a_loaded_record(run, tmp_path, kind) -> None:
    again = topicscope.load(run.save(tmp_path / "run"))
    assert rendered(run.plot(kind), "svg") == rendered(again.plot(kind), "svg")


@pytest.mark.parametrize("columns", ["single", "double"])
def test_as_wide_as_asked(run, columns) -> None:
    assert run.plot("norms", columns=columns).get_figwidth() == WIDTHS[columns]
    with pytest.raises(InputError, match="unknown width"), paper_figure("triple", 1.0):
        pass


def test_an_unknown_kind_names_the_kinds(run) -> None:
    with pytest.raises(InputError) as caught:
        run.plot("no such kind")
    assert all(kind in str(caught.value) for kind in KINDS)


def test_what_a_run_lacks_is_said() -> None:
    document = {"data": DATA | {"source": "population"}, "model": {"attention": "uniform"}, "training": {"steps": 3}}
    run = train(make_recipe(document))
    for kind in ("stages", "attention", "gram", "logits"):
        with pytest.raises(InputError):
            run.plot(kind)
    assert isinstance(run.plot("values"), Figure)


def test_the_data_are_the_record_s(run) -> None:
    for kind, name in (("norms", "W_V_norm"), ("losses", "loss"), ("attention", "attention_same_topic")):
        data = run.plot_data(kind)
        pd.testing.assert_series_equal(data[name], run.history[name])
    last = run.plot_data("gram", columns="single")
    W_E = run.weights["W_E"][0]
    np.testing.assert_allclose(last["matrix"][0], (W_E.T @ W_E)[:7, :7], rtol=1e-5)
    assert last["step"].tolist() == [40]
    early = run.plot_data("gram", step=1)
    assert early["step"].tolist() == [1]
    assert not np.allclose(early["matrix"], last["matrix"])


def test_stages_are_where_the_record_has_them(run) -> None:
    data = run.plot_data("stages")
    for one in run.summary["stages"]:
        rows = data[data["seed"] == one["seed"]].set_index("step")
        assert rows.loc[one["k2"], "value_way"] == pytest.approx(1.0)
        assert rows["value_way"].ge(0.9).idxmax() == one["k1"]
        if one["stage_two_reached"]:
            assert rows["attention_moved"].ge(0.1).idxmax() == one["k2"]


def test_brackets_stand_where_the_topics_do() -> None:
    topic = np.array([-1, 0, 0, 0, 2, 2, 1])
    assert brackets(topic, np.arange(8)) == [Bracket(0, 1.0, 4.0), Bracket(2, 4.0, 6.0), Bracket(1, 6.0, 7.0)]
    # Bins of two tokens: a topic that begins inside a bin begins in its middle.
    binned = brackets(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 2, 4, 6]))
    assert binned == [Bracket(0, 0.0, 1.5), Bracket(1, 1.5, 3.0)]


def test_brackets_are_drawn_around_their_words() -> None:
    axes = Figure().subplots()
    block_map(axes, np.eye(6), brackets(np.array([-1, 0, 0, 1, 1, 1]), np.arange(7)))
    first, second = [line.get_xdata() for line in axes.lines[::2]]  # above; those in between are at the left
    # Cells 1 and 2 span 0.5 to 2.5 on the axis of `imshow`, cells 3 to 5 span 2.5 to 5.5.
    assert 0.5 < min(first) < 1
    assert 2 < max(first) < 2.5
    assert 2.5 < min(second) < 3
    assert 5 < max(second) < 5.5
    assert [text.get_text() for text in axes.texts] == ["0", "0", "1", "1"]


def test_colours_do_not_hang_on_the_diagonal() -> None:
    matrix = np.full((50, 50), 0.5)
    np.fill_diagonal(matrix, 100.0)
    assert spread(matrix) == 0.5
    assert spread(np.full((3, 3), np.nan)) == 1.0


def test_old_records_show_the_last_moment(run, tmp_path) -> None:
    folder = run.save(tmp_path / "run")
    (folder / "snapshots.npz").unlink()
    old = topicscope.load(folder)
    found = run_matrices(old)["E"]
    np.testing.assert_allclose(found.frames[-1], run_matrices(run)["E"].frames[-1], rtol=1e-5)
    assert found.topics == run_matrices(run)["E"].topics


def test_step_zero_is_on_the_axis() -> None:
    with paper_figure(None, 2.0) as figure:
        axes = figure.subplots()
    history = pd.DataFrame({"step": [0, 1, 1500], "loss": [3.0, 2.0, 1.0]})
    band(axes, history, "loss", "loss", 0)
    assert axes.lines[0].get_xdata().tolist() == [0.5, 1, 1500]
    by_step(axes, history)
    assert axes.get_xticks().tolist() == [0.5, 1, 10, 100, 1000]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "10", "100", "1,000"]


@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_saved_by_its_ending(run, tmp_path, ending, begin) -> None:
    path = save(run.plot("losses"), tmp_path / f"a.{ending}")
    assert path.read_bytes().startswith(begin)
    with pytest.raises(InputError, match="kind of file"):
        save(run.plot("losses"), tmp_path / "a.doc")


def test_fonts_are_embedded_whichever_way_it_is_saved(run, tmp_path) -> None:
    run.plot("losses").savefig(tmp_path / "own.pdf")
    written = (tmp_path / "own.pdf").read_bytes()
    assert b"/Subtype /Type0" in written or b"/CIDFontType2" in written  # TrueType, which stays text
    assert b"/Subtype /Type3" not in written


def test_a_theory_of_zero_is_said_though_a_logarithm_has_no_place_for_it(run) -> None:
    theory = {"theory": {"same_word": 23.1, "same_topic": 0.0}}
    zero = replace(run, summary=run.summary | {"attention": theory})
    right = zero.plot("attention").axes[1]
    assert [text.get_text() for text in right.texts] == ["theory 23.1", "theory 0 ↓"]
    assert rendered(zero.plot("attention"), "svg")  # a place at minus infinity would leave no room for the axes
