"""Figures and page of a reproduction: drawn from the folder alone, escaped, the same every time."""

import base64
import html
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from report.reproduction_folders import SEEDS, T, V, make, row, run, weights
from topicscope.claims import CLAIMS
from topicscope.errors import InputError
from topicscope.report import claims_figures, load_reproduction, to_png, write_reproduction
from topicscope.report.claims_figures import FIGURES, claim_figure, figure_text
from topicscope.report.forest import forest_figure
from topicscope.report.reproduction_page import answer, headline, rows_table
from topicscope.report.style import rendered


@pytest.fixture
def _coarse(monkeypatch):
    """Pages whose pictures are not looked at."""
    monkeypatch.setattr("topicscope.report.reproduction_page._DPI", 20)
    monkeypatch.setattr("topicscope.report.reproduction_page.rendered", lambda figure, kind: b"%PDF")


CLASSES = ("same word", "same topic", "different topic")


@pytest.fixture
def folder(tmp_path):
    """Every claim that is drawn from runs, arrays or particular rows."""
    claims = {
        "theory-holds": (
            "confirmed",
            [
                row(f"Theorem 1: share that holds {side} its assumptions", share, settings=50, lowest_share=share / 2)
                for side, share in (("inside", 1.0), ("outside", 0.5))
            ],
        ),
        "value-block": ("partly", [row("W_same", 1.1, "c", theory=1.0), row("W_diff", -0.2, "c", holds=False)]),
        "embedding-block": ("confirmed", [row("gap", 1.0, "c")]),
        "two-stage": ("confirmed", [row("log10(k2/k1)", 1.0, "c")]),
        "attention-block": (
            "confirmed",
            [
                row(f"{name}, block W_V, step 200", 0.01 + number, paper=0.02, paper_error=0.001)
                for number, name in enumerate(CLASSES)
            ],
        ),
        "landscape": ("confirmed", [row("γ*", 5.0, "c")]),
    }
    runs = [
        ("value-block", "theorem-2-a", run("theorem-2", seed=1, source="population")),
        ("value-block", "value-matrix-b", run("value-matrix", seed=2, loss="cross-entropy")),
        ("embedding-block", "embeddings-a", run("embeddings", seed=3)),
        ("embedding-block", "embeddings-b", run("embeddings", seed=4, rate=0.03)),
        ("two-stage", "two-stages-a", run("two-stages")),
        ("two-stage", "two-stages-short", run("two-stages", steps=1)),
        ("attention-block", "attention-block-a", run("attention-block")),
    ]
    labels = {"words_per_topic": V, "optimum": {"alpha": 1.0, "beta": 2.0, "gamma": 1.5}}
    arrays = [
        (
            "landscape",
            f"landscape-{value}.npz",
            {
                "alpha": np.linspace(0, 2, 5),
                "beta": np.linspace(0, 4, 7),
                "loss": np.random.default_rng(0).random((5, 7)),
            },
            labels | {"title": f"{value} W_V, T=3 v=2 τ=2 N=∞", "value": value},
        )
        for value in ("diagonal", "block")
    ]
    return make(tmp_path / "out", claims, runs=runs, arrays=arrays)


def axes_with(figure, **kinds) -> list[Axes]:
    return [axes for axes in figure.axes if all(getattr(axes, kind) for kind in kinds)]


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]


def test_every_claim_of_the_catalogue_has_a_figure_and_words_for_it(tmp_path) -> None:
    claims = {claim.id: ("confirmed", [row("q", 1.0, "c")]) for claim in CLAIMS}
    record = load_reproduction(make(tmp_path, claims))
    assert set(FIGURES) <= set(claims)
    for name in claims:
        assert len(claim_figure(record, name).axes) >= 1  # nothing kept: the forest of its rows
        assert figure_text(name)


def test_heat_maps_show_the_weights_of_the_first_seed(folder) -> None:
    figure = claim_figure(load_reproduction(folder), "value-block")
    images = [axes.collections[0] for axes in axes_with(figure, collections=True)[:2]]
    assert len([text for text in titles(figure) if "N = " in text]) == 2  # each run once, however often asked for
    for image, seed in zip(images, (1, 2), strict=True):
        np.testing.assert_array_equal(image.get_array(), weights(seed)["W_V"][0])
        low, high = image.get_clim()
        assert low == -high
    assert any("N = ∞" in title for title in titles(figure))
    assert any("N = 100-150" in title for title in titles(figure))


def test_gram_matrices_are_in_units_of_their_diagonal(folder) -> None:
    figure = claim_figure(load_reproduction(folder), "embedding-block")
    W_E = weights(3)["W_E"][0]
    gram = W_E.T @ W_E
    shown = axes_with(figure, collections=True)[0].collections[0].get_array()
    np.testing.assert_allclose(shown, gram / np.diag(gram)[1:].mean())
    assert len(axes_with(figure, collections=True)) == 2


def test_norms_over_steps_with_the_stages(folder) -> None:
    figure = claim_figure(load_reproduction(folder), "two-stage")
    assert titles(figure) == ["two-stages: squared, Adam 0.01"]  # the short run has no stages to show
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["‖W_V‖"].get_ydata(), [0.1, 0.11, 0.2, 1.1, 2.1])
    assert lines["stage 1 ends"].get_xdata()[0] == 10
    assert lines["stage 2 begins"].get_xdata()[0] == 100


def test_attention_stands_beside_the_paper(folder) -> None:
    figure = claim_figure(load_reproduction(folder), "attention-block")
    upper = figure.axes[0]
    heights = sorted(float(line.get_ydata()[0]) for line in upper.lines if len(line.get_ydata()) == 1)
    assert [h for h in heights if h != 0.02 and h in (0.01, 1.01, 2.01)] == [0.01, 1.01, 2.01]
    assert heights.count(0.02) == len(CLASSES)


def test_landscapes_mark_the_optimum_and_the_ridge_of_the_block(folder) -> None:
    figure = claim_figure(load_reproduction(folder), "landscape")
    block, diagonal = figure.axes[:2]
    assert block.get_title(loc="left").startswith("block")
    assert (len(block.lines), len(diagonal.lines)) == (2, 1)
    along, ridge = block.lines[0].get_data()
    np.testing.assert_allclose(((V - 1) * np.asarray(ridge) + along) / V, 1.5)
    assert block.lines[1].get_xydata().tolist() == [[2.0, 1.0]]


def test_shares_say_of_how_many(folder) -> None:
    texts = [text.get_text() for text in claim_figure(load_reproduction(folder), "theory-holds").axes[0].texts]
    assert texts == ["100.0% of 50", "50.0% of 50"]


def test_the_forest_shows_every_row_with_a_number() -> None:
    rows = [
        row("judged", 1.0, "a", theory=1.1, paper=0.9),
        row("refused $x", 2.0, "a", holds=False),
        row("shown", 3.0),
        row("not here", None, "a", reason="no model"),
        row("no number", float("nan"), "a"),
    ]
    figure = forest_figure(rows, title="costs $5")
    assert len(figure.axes) == 2  # one panel for each criterion
    labels = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert labels == ["judged", r"refused \$x", "shown"]
    markers = {line.get_marker() for line in figure.axes[0].lines}
    assert {"o", "x", "D", "*"} <= markers
    assert to_png(figure)
    empty = forest_figure([rows[3]], title="nothing")
    assert not empty.axes
    assert to_png(empty)


def test_figures_are_the_same_every_time_and_hold_their_letters(folder) -> None:
    record = load_reproduction(folder)
    first, second = (claim_figure(record, "two-stage") for _ in range(2))
    assert to_png(first) == to_png(second)
    pdf = rendered(first, "pdf")
    assert pdf == rendered(second, "pdf")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf


@pytest.mark.usefixtures("_coarse")
def test_figures_are_drawn_once_unless_the_claim_is_new(folder, monkeypatch) -> None:
    drawn = []
    original = claims_figures.claim_figure
    monkeypatch.setattr(
        "topicscope.report.reproduction_page.claim_figure",
        lambda record, name: drawn.append(name) or original(record, name),
    )
    write_reproduction(folder)
    kept = len(drawn)
    assert kept == 6
    assert sorted(path.name for path in (folder / "figures").iterdir())[:2] == [
        "attention-block.pdf",
        "attention-block.png",
    ]
    write_reproduction(folder)
    assert len(drawn) == kept
    write_reproduction(folder, drawn="landscape")
    assert drawn[kept:] == ["landscape"]


@pytest.mark.usefixtures("_coarse")
def test_a_damaged_run_costs_its_figure_only(folder) -> None:
    (folder / "runs" / "theorem-2-a" / "weights.safetensors").write_bytes(b"broken")
    write_reproduction(folder)
    assert "Title of value-block" in (folder / "reproduction.html").read_text()
    (folder / "runs" / "two-stages-a" / "summary.json").unlink()
    write_reproduction(folder, drawn="two-stage")


HOSTILE = "<script>alert(1)</script>{{7*7}}{% raw %}&\"'"


@pytest.mark.usefixtures("_coarse")
def test_the_page_has_everything_and_escapes_it(tmp_path) -> None:
    rows = [
        row(HOSTILE, 1.234567, "c", paper=2.0, theory=3.0),
        row("model not here", None, "c", reason=f"pip install {HOSTILE}"),
        row("exact", 4.0, error=0.0, seeds=None),
    ]
    folder = make(tmp_path, {"toy": ("confirmed", rows)}, unfinished=("later", HOSTILE))
    write_reproduction(folder)
    page = (folder / "reproduction.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count('<script>"use strict"') == 1  # our own
    assert "alert(1)" in page
    assert page.count(html.escape(HOSTILE, quote=False).split("&amp;")[0]) >= 3
    assert "49" not in re.sub(r"data:image[^\"]*", "", page)
    for text in ("Title of toy", "Theorem 9", "What toy asserts.", "confirmed: always", "value-matrix", "Of 1 claims"):
        assert text in page
    assert "topicscope reproduce toy --quick --seeds 2 --out reproduction-toy" in page
    assert "1.235\u00a0±\u00a00.1" in page
    assert "Not finished when this page was written: later, &lt;script" in page
    assert "Yes: title of toy; the one comparison holds." in page


@pytest.mark.usefixtures("_coarse")
def test_the_page_needs_no_network(folder) -> None:
    write_reproduction(folder)
    page = (folder / "reproduction.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)=\"(?!data:|#)", page) == []
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/2000/svg", "", page)  # the name of a format
    assert "default-src 'none'" in html.unescape(page)
    assert page.count("<img") == 6
    assert len(set(re.findall(r'id="([^"]+)"', page))) == len(re.findall(r'id="([^"]+)"', page))
    anchors = re.findall(r'href="#([^"]+)"', page)
    assert len(anchors) == 6
    assert all(f'id="{anchor}"' in page for anchor in anchors)


@pytest.mark.usefixtures("_coarse")
def test_the_numbers_of_the_page_can_be_saved(folder) -> None:
    write_reproduction(folder)
    page = (folder / "reproduction.html").read_text(encoding="utf-8")
    saved = {
        name: base64.b64decode(text).decode()
        for text, name in re.findall(r'href="data:[^,]+,([^"]+)" download="([^"]+)"', page)
    }
    document = json.loads((folder / "claims.json").read_text())
    assert json.loads(saved["claims.json"]) == document
    rows = pd.read_csv(io.StringIO(saved["rows.csv"]))
    expected = [row["measured"] for claim in document["claims"] for row in claim["rows"]]
    np.testing.assert_allclose(rows["measured"], np.array(expected, dtype=float))


@pytest.mark.parametrize(
    ("verdict", "holds", "expected"),
    [
        ("confirmed", [True, True, None], "Yes: it is so; all 2 comparisons hold."),
        ("partly", [True, False], "In part: it is so; 1 of 2 comparisons does not hold, none of them decisive."),
        (
            "not_confirmed",
            [False, True],
            "Not confirmed: it is so; 1 of 2 comparisons does not hold, a decisive one among them.",
        ),
        ("not_run", [], "Not measured: it is so."),
    ],
)
def test_the_answer_is_one_sentence(verdict, holds, expected) -> None:
    rows = [row("q", 1.0, "c", holds=value) for value in holds]
    assert answer({"verdict": verdict, "rows": rows}, "It is so") == expected


def test_the_headline_counts_the_verdicts(tmp_path) -> None:
    claims = {name: (verdict, []) for name, verdict in (("a", "confirmed"), ("b", "not_run"), ("c", "confirmed"))}
    assert headline(load_reproduction(make(tmp_path, claims))) == "Of 3 claims: 2 confirmed, 1 not run."
    assert headline(load_reproduction(make(tmp_path / "none", {}))) == "No claim is finished yet."


def test_the_table_says_what_was_not_run_and_what_is_exact() -> None:
    table = rows_table([row("a", None, "c", holds=None, reason="why"), row("b", 2.0, error=0.0, seeds=None)], "rows")
    assert table.rows[0] == ["a", "–", "–", "why", str(SEEDS), "not judged"]
    assert table.rows[1] == ["b", "–", "–", "2", "–", "not judged"]


def test_other_folders_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no reproduction here"):
        load_reproduction(tmp_path)
    folder = make(tmp_path / "out", {})
    (folder / "claims.json").write_text(json.dumps({"schema_version": 99, "claims": []}))
    with pytest.raises(InputError, match="unknown schema version"):
        load_reproduction(folder)


def test_the_made_up_runs_have_the_size_they_say() -> None:
    assert weights(0)["W_V"].shape == (SEEDS, 1 + T * V, 1 + T * V)


def drawn(tmp_path, claim, rows):
    return claim_figure(load_reproduction(make(tmp_path, {claim: ("confirmed", rows)})), claim)


def points(axes) -> list[float]:
    """x of every single point, in the order in which they were drawn."""
    return [
        float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 1 and line.get_marker() != "|"
    ]


def test_effects_show_where_none_would_be(tmp_path) -> None:
    rows = [
        row("log attention, MiniLM: same-topic, given log co-occurrence", 0.3, "c"),
        row("cosine, MiniLM: same-topic, given log co-occurrence", 0.1, "c"),
        row("cosine, MiniLM: share of shuffled topics whose interval holds 0", 0.95),
        row("log attention, correlated topics: same-topic, given log co-occurrence", 0.4, "c"),
    ]
    figure = drawn(tmp_path, "co-occurrence", rows)
    assert [points(axes) for axes in figure.axes] == [[0.3, 0.4], [0.1]]
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert low < 0 < high


def test_joint_training_has_losses_on_an_axis_of_their_own(tmp_path) -> None:
    rows = [row("log(a / b), free", 0.5, "c"), row("held-out loss, free", 3.0, "c"), row("log(a / b), parts", 0.2, "c")]
    upper, lower = drawn(tmp_path, "joint-training", rows).axes
    assert (points(upper), points(lower)) == ([0.5, 0.2], [3.0])
    assert upper.get_xlim()[0] < 0
    assert lower.get_xlim()[0] > 2


def test_shares_of_variance_are_points_by_model(tmp_path) -> None:
    kinds = ("R² of the classes, word pairs", "R² of the classes, positions", "R² of shuffled classes, positions")
    rows = [row(f"{kind}, {how}", 0.1 * (i + 1)) for how in ("block, step 5", "MiniLM") for i, kind in enumerate(kinds)]
    axes = drawn(tmp_path, "topicwise-assumption", [*rows, row("column sums", 1.0)]).axes[0]
    np.testing.assert_allclose(points(axes), [0.1, 0.2, 0.3] * 2)
    heights = [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() in ("o", "s", "^")]
    assert [round(height) for height in heights] == [0, 0, 0, 1, 1, 1]  # each on the line of its model
    assert [label.get_text() for label in axes.get_yticklabels()] == ["block, step 5", "MiniLM"]


def test_models_that_were_not_run_show_the_paper_alone(tmp_path) -> None:
    rows = []
    for theta, value in ((0.001, 1.5), (0.002, 1.4)):
        about = {"model": "MiniLM", "threshold": theta}
        quantity = f"MiniLM (sentence encoder), θ = {theta:g}: attention, same / different topic"
        rows += [row(quantity, value, **about), row(f"{quantity}, random weights", 1.0, **about)]
    rows.append(
        row("BERT, θ = 0.001: attention, same / different topic", None, paper=1.28, model="BERT", threshold=0.001)
    )
    figure = drawn(tmp_path, "pretrained-table", rows)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["MiniLM", "BERT"]
    stars = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert [star for star in stars if star] == [[[1.28, pytest.approx(0.89)]]]
    assert {1.5, 1.4, 1.0, 1.28} <= set(points(figure.axes[0]))


def test_ratios_and_cosines_of_ambiguous_words_have_their_own_zero(tmp_path) -> None:
    rows = [
        row("cosine, overlapping topics: a", 0.5, "c"),
        row("attention same / different, MiniLM, θ = 0.001, kept", 1.5, "c"),
        row("ratio of distinct words less the largest of 20 with shuffled topics", 0.2, "c"),
        row("cosine same - different, MiniLM", 0.1),
    ]
    ratios, cosines = drawn(tmp_path, "ambiguous-words", rows).axes
    assert (points(ratios), points(cosines)) == ([1.5], [0.5, 0.1])
    assert 0 < ratios.get_xlim()[0] < 1
    assert cosines.get_xlim()[0] < 0
