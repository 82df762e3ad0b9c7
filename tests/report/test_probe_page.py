"""What the charts and the script's data of a probe's page say, held against the record and against slow twins."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.report_records import example, make_record
from topicscope.report.comparison_page import names_of, render_comparison
from topicscope.report.page import Chart, downloads, inline_svg
from topicscope.report.probe_figures import block_matrix, ratio_figure, similarity_histogram
from topicscope.report.probe_page import (
    ProbeRecord,
    cautions,
    head_charts,
    head_panel,
    pieces,
    render_probe,
    verdict,
)
from topicscope.report.style import (
    CELLS,
    MOST_BINS,
    MOST_SHAPES,
    block_map,
    matrix_cells,
    paper_figure,
    show_values,
)
from topicscope.report.tables import control_table

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


def scripts(page: str) -> dict[str, str]:
    """Content by id; scripts that run are numbered."""
    found = {}
    for number, (attributes, content) in enumerate(_SCRIPT.findall(page)):
        name = re.search(r'id="([^"]+)"', attributes)
        found[name[1] if name else f"code-{number}"] = content
    return found


def similarities(words: int = 30, topics: int = 3) -> dict[str, np.ndarray]:
    starts = np.arange(topics) * (words // topics)
    cosine = np.full((words, words), 0.05, dtype=np.float32)
    for start in starts:
        cosine[start : start + words // topics, start : start + words // topics] = 0.4
    np.fill_diagonal(cosine, np.nan)
    same, different = np.zeros((2, 80), dtype=np.int64)
    same[56], different[42] = 135, 300
    return {
        "words": np.array([f"w{i}<b>" for i in range(words)]),
        "topics": np.arange(topics) * 2,
        "starts": starts,
        "edges": np.arange(words + 1),
        "cosine": cosine,
        "bounds": np.linspace(-1, 1, 81),
        "same": same,
        "different": different,
        "sampled_words": np.array(words),
        "left_out": np.array(1),
    }


@pytest.fixture(scope="module")
def probe() -> ProbeRecord:
    record, heads = make_record((("encoder", 3, 4, False),))
    heads["entropy"], heads["distance"] = 2.0 + heads["head"] / 8, 9.0
    examples = [example(), example(layer=2, head=3)]
    return ProbeRecord(record | {"head_examples": examples}, heads, similarities())


@pytest.fixture(scope="module")
def page(probe: ProbeRecord) -> str:
    return render_probe(probe)


def test_only_the_script_that_the_policy_names_can_run(page: str) -> None:
    (code,) = [content for name, content in scripts(page).items() if name.startswith("code-")]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert re.findall(r"sha256-([\w+/=]+)", policy[1]) == [digest]
    assert len(page.encode()) < 2_000_000


class Shapes(HTMLParser):
    """Tags and attributes of one drawing, in their order."""

    def __init__(self, chart: Chart) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.feed(str(chart.svg))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def said(self) -> list[str]:
        return [found["aria-label"] for _, found in self.tags if found.get("class") == "mark"]


def test_every_reference_of_a_drawing_is_its_own(probe: ProbeRecord) -> None:
    charts = head_charts(probe.heads, threshold=0.001, name="m") + head_charts(
        probe.heads, threshold=0.001, name="m", prefix="others"
    )
    ids = [[tag["id"] for _, tag in Shapes(chart).tags if "id" in tag] for chart in charts]
    assert not set(ids[0]) & set(ids[1])
    for chart, own in zip(charts, ids, strict=True):
        references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', str(chart.svg))
        assert references
        assert {first or second for first, second in references} <= set(own)
        assert "xmlns" not in chart.svg
        assert "<style" not in chart.svg


def test_greys_are_the_reader_s_and_values_keep_their_colors() -> None:
    with paper_figure(None, 2.0) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#222222")
        axes.plot([0, 1], [1, 0], color="#0072B2")
    drawn = str(inline_svg(figure, "a", "lines"))
    assert "stroke: var(--text)" in drawn
    assert "stroke: #0072b2" in drawn
    assert "#ffffff" not in drawn
    with paper_figure(None, 2.0) as figure:
        block_map(figure.subplots(), np.array([[0.0, 1.0], [1.0, 0.0]]), [], limit=1.0, bar=False)
    figure.cells = matrix_cells({"": np.array([[0.0, 1.0], [1.0, 0.0]])}, 1.0, text="{value}")
    # White in the middle of the scale is a value, not the page's background.
    middle = Shapes(Chart.of(figure, "a", "map", "map")).tags
    fills = [found["style"] for _, found in middle if "data-row" in found]
    assert len(fills) == 4
    assert not any("var(" in fill.partition(";")[0] for fill in fills)


def test_a_place_that_is_asked_is_where_its_value_is_drawn() -> None:
    with paper_figure(None, 2.0) as figure:
        axes = figure.subplots()
        axes.plot([1, 10, 100], [1.0, 2.0, 3.0], "o")
        axes.set(xscale="log", ylim=(0.5, 3.5))
        show_values(axes, [1, 10, 100, 1, -1], [1.0, 2.0, 3.0, 99.0, 1.0], ["a", "b", "<c>", "outside", "no logarithm"])
    shapes = Shapes(Chart.of(figure, "a", "points", "points"))
    circles = [(float(t["cx"]), float(t["cy"]), t["aria-label"]) for tag, t in shapes.tags if tag == "circle"]
    assert [label for *_, label in circles] == ["a", "b", "<c>"]
    points = [t for tag, t in shapes.tags if tag == "use" and "clip-path" not in t]
    drawn = [(float(t["x"]), float(t["y"])) for t in points]
    for x, y, _ in circles:
        assert any(abs(x - a) < 0.1 and abs(y - b) < 0.1 for a, b in drawn)


def test_the_map_shows_every_ratio_and_its_numbers_when_asked(probe: ProbeRecord) -> None:
    (chart,) = head_charts(probe.heads, threshold=0.001, name="minilm")
    rows = probe.heads[probe.heads["threshold"] == 0.001]
    said, found = Shapes(chart).said(), chart.cells
    assert found is not None
    assert [state["name"] for state in found["states"]] == ["all pairs", "distinct words"]
    for row in rows.to_dict(orient="records"):
        cell = row["layer"] * len(found["columns"]) + row["head"]
        for state, column in zip(found["states"], ("attention_ratio", "attention_ratio_distinct"), strict=True):
            ratio, error = row[column], row[f"{column}_se"]
            assert state["values"][cell] == pytest.approx(ratio, rel=1e-3)
            assert f"{ratio:.2f} ±" in state["said"][cell]
            sure = abs(ratio - 1) > 1.96 * error
            assert state["letters"][cell] == (f"{ratio:.2f}" if sure else f"({ratio:.2f})")
        assert said[cell].startswith(f"layer {row['layer']}, head {row['head']}\nratio {row['attention_ratio']:.2f} ±")
        assert "n = 1,480" in said[cell]
    assert found["low"] == pytest.approx(1 / found["high"])
    assert found["log"]
    assert len(set(found["colors"])) > 200


def test_heads_that_were_not_read_have_no_number() -> None:
    _, heads = make_record((("encoder", 2, 2, False),), (None,))
    heads = heads[~((heads["layer"] == 1) & (heads["head"] == 0))]
    heads.loc[heads.index[0], "attention_ratio"] = math.nan
    (chart,) = head_charts(heads, threshold=None, name="m")
    assert chart.cells is not None
    assert [value is None for value in chart.cells["states"][0]["values"]] == [True, False, True, False]
    assert Shapes(chart).said()[2] == "layer 1, head 0\nnot read"


def test_large_maps_are_one_image_and_a_table_of_values(probe: ProbeRecord) -> None:
    _, heads = make_record((("encoder", 48, 64, False),))
    (chart,) = head_charts(heads, threshold=0.001, name="m")
    shapes = Shapes(chart)
    assert MOST_SHAPES < 48 * 64
    assert shapes.said() == []
    (image,) = [found for tag, found in shapes.tags if found.get("class") == CELLS]
    assert (image["width"], image["height"]) == ("64", "48")
    assert chart.cells is not None
    assert len(chart.cells["states"][0]["values"]) == 48 * 64


def test_the_panel_s_numbers_are_those_of_heads_csv(probe: ProbeRecord) -> None:
    choices, data = head_panel(probe.record, probe.heads)
    rows = probe.heads[probe.heads["threshold"] == 0.001].reset_index(drop=True)
    assert len(data["heads"]) == len(rows) == 12
    names = ["attention_ratio", "attention_ratio_distinct", "mean_same", "mean_different", "entropy", "distance"]
    assert len(data["labels"]) == len(names)  # the column without numbers is left out
    for row in rows.to_dict(orient="records"):
        shown = data["heads"][f"encoder/{row['layer']}/{row['head']}"]
        assert shown == pytest.approx([row[name] for name in names], rel=1e-3)
    assert data["median"]["encoder"] == pytest.approx([float(rows[name].median()) for name in names], rel=1e-3)
    ratios = {f"encoder/{r['layer']}/{r['head']}": r["attention_ratio"] for r in rows.to_dict(orient="records")}
    assert [key for key, _ in choices["encoder"]] == sorted(ratios, key=lambda key: -ratios[key])


def test_equal_sentences_are_kept_once(probe: ProbeRecord) -> None:
    _, data = head_panel(probe.record, probe.heads)
    assert set(data["examples"]) == {"encoder/0/1", "encoder/2/3"}
    assert [e["sentence"] for e in data["examples"].values()] == [0, 0]
    (sentence,) = data["sentences"]
    assert [topic for topic, _ in sentence["topics"]] == [3, 5]
    assert data["examples"]["encoder/0/1"]["pairs"] == [[1, 0, "violin", "pianist", 0.31]]


def test_a_sentence_is_cut_at_its_words_and_whole_again() -> None:
    words = [{"word": w, "topics": [1]} for w in ("art", "art", "réel", "gone")]
    text = "Party art, smart Art? Réel."
    cut = pieces(text, words)
    assert "".join(piece[0] for piece in cut if piece[0] != " [gone]") == text
    assert [(p[0], p[1]) for p in cut if len(p) == 3] == [("art", 0), ("Art", 1), ("Réel", 2), (" [gone]", 3)]
    # A word inside another is taken only where it stands nowhere alone.
    assert pieces("smart", [{"word": "art", "topics": [0]}])[1] == ["art", 0, [0]]


def test_blocks_have_their_words_and_brackets(probe: ProbeRecord) -> None:
    _, figure = block_matrix(probe.similarities)
    found = Chart.of(figure, "blocks", "", "").cells
    assert found is not None
    values = found["states"][0]["values"]
    assert values[0] is None
    assert (values[1], values[29]) == (pytest.approx(0.4), pytest.approx(0.05))
    assert found["rows"][11] == found["columns"][11] == "w11<b> (topic 2)"
    # Each topic has its number above the middle of its words, and at the left.
    above = [(text.get_text(), text.get_position()[0]) for text in figure.axes[0].texts[::2]]
    assert above == [("0", pytest.approx(4.5)), ("2", pytest.approx(14.5)), ("4", pytest.approx(24.5))]
    table, _ = similarity_histogram(probe.similarities)
    assert isinstance(table, pd.DataFrame)
    assert table[["same", "different"]].sum().tolist() == pytest.approx([100, 100])
    assert len(table) == 15  # from the first bar that holds pairs to the last


def test_the_histogram_says_how_many_pairs_and_where_half_of_them_are(page: str) -> None:
    assert "same topic (135 pairs)" in page
    assert "different topics (300 pairs)" in page
    assert "half of the same-topic pairs are above 0.41" in page


def test_ratios_have_the_intervals_of_the_table() -> None:
    record, _ = make_record()
    frame = pd.DataFrame.from_records(record["table"])
    numeric = [c for c in frame if c.startswith(("threshold", "attention_", "control_"))]
    figure = ratio_figure(frame.astype(dict.fromkeys(numeric, float)))
    said = [text for _, _, _, text in figure.points if text.startswith("all pairs")]
    assert said == [
        f"all pairs, θ = {theta}: {value:.3f}\n95% CI {value - low:.3f} to {value + high:.3f}"
        for theta, value, low, high in (
            ("0.0005", 1.62, 0.12, 0.15),
            ("0.001", 1.52, 0.1, 0.125),
            ("0.002", 1.42, 0.08, 0.1),
        )
    ]


def test_controls_have_a_column_each() -> None:
    record, _ = make_record()
    rows = [row for row in record["table"] if row["source"] == "measured"]
    controls = [
        {"control_seed": seed, "part": "encoder", "threshold": row["threshold"], "attention_ratio": 1 + seed / 100}
        for seed in (0, 1)
        for row in rows
    ]
    table = control_table(rows, controls)
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["random weights, seed 0"], first["random weights, seed 1"]) == ("1.000", "1.010")
    assert first["permutation p"] == "0.002"
    many = [controls[0] | {"control_seed": seed} for seed in range(9)]
    assert not any("seed" in column for column in control_table(rows, many).columns)


def test_the_page_says_when_there_is_little_to_rest_on() -> None:
    record, _ = make_record()
    record["warnings"] = ["told by the probe"]
    assert cautions(record) == ["told by the probe"]
    record["headline"]["documents"] = 7
    record["coverage"]["alignment"] |= {"found": 10, "words": 100}
    record["topics"] = [{"topic": t, "words": ["a"]} for t in range(50)]
    record["coverage"]["pairs"] = [
        {"part": "encoder", "threshold": 0.001, "topic_seed": 0, "same_topic": 12, "words_with_topic_in_text": 60}
    ]
    said = cautions(record)
    assert len(said) == 5
    assert ["Only 7 documents" in said[-4], "Only 10% of the words" in said[-3]] == [True, True]
    assert ["60 different words" in said[-2], "Only 12 pairs" in said[-1]] == [True, True]


def test_the_strictest_ratio_stands_beside_the_headline() -> None:
    record, _ = make_record()
    rows = [row for row in record["table"] if row["source"] == "measured"]
    assert "the ratio is 1.27 (95% CI 1.17\u00a0to\u00a01.40)" in verdict(record["headline"], rows)
    corrected = record["headline"] | {"quantity": "attention_ratio_position_corrected"}
    without = [row | {"attention_ratio_distinct_distance_matched": None} for row in rows]
    # About another ratio than the headline's, at another threshold, and unknown.
    for headline, known in ((corrected, rows), (record["headline"], rows[:1]), (record["headline"], without)):
        assert "the ratio is" not in verdict(headline, known)


def test_downloads_hold_the_files_and_too_large_ones_are_named() -> None:
    small, large = downloads({"a.csv": "x,y\n1,é\n", "b.json": "1" * 2_000_000})
    assert small["href"] is not None
    assert base64.b64decode(small["href"].partition("base64,")[2]).decode() == "x,y\n1,é\n"
    assert large["href"] is None


def test_bins_are_means_of_blocks() -> None:
    matrix = np.random.default_rng(0).normal(size=(450, 450))
    cells = matrix_cells({"": matrix}, 1.0, text="{value}")
    found, edges = cells.states[""], [*map(int, cells.rows), 450]
    assert found.shape == (MOST_BINS, MOST_BINS)
    assert set(np.diff(edges)) == {2, 3}
    for a, b in [(0, 0), (77, 12), (199, 29)]:
        block = matrix[edges[a] : edges[a + 1], edges[b] : edges[b + 1]]
        assert found[a, b] == pytest.approx(block.mean())
    small = matrix[:30, :30]
    assert np.array_equal(matrix_cells({"": small}, 1.0, text="{value}").states[""], small)


def test_values_have_as_many_digits_as_a_page_needs() -> None:
    matrix = np.array([[1.23456, math.nan], [1e-9, -4.0]])
    with paper_figure(None, 2.0) as figure:
        block_map(figure.subplots(), matrix, [])
    figure.cells = matrix_cells({"": matrix}, 1.0, text="{value}")
    cells = Chart.of(figure, "map", "", "").cells
    assert cells is not None
    assert cells["states"][0]["values"] == [1.235, None, 1e-09, -4.0]


def test_equal_records_give_equal_pages(probe: ProbeRecord, page: str, tmp_path: Any) -> None:
    from topicscope.records import write_json, write_npz, write_text

    assert render_probe(probe) == page
    write_json(tmp_path / "result.json", probe.record)
    write_text(tmp_path / "heads.csv", probe.heads.to_csv(index=False))
    write_npz(tmp_path / "embedding_map.npz", probe.similarities)
    assert render_probe(ProbeRecord.load(tmp_path)) == page  # nothing is lost on the way through the files
    (tmp_path / "embedding_map.npz").unlink()  # a result of before
    older = render_probe(ProbeRecord.load(tmp_path))
    assert 'id="blocks"' in page
    assert 'id="blocks"' not in older


def test_results_stand_side_by_side_in_one_scale(probe: ProbeRecord) -> None:
    record, heads = make_record((("encoder", 2, 2, False),))
    heads["attention_ratio"] *= 2
    rows = pd.DataFrame(
        [
            {"a": "one", "b": "<two>", "part": "encoder", "threshold": 0.001, "quantity": "attention_ratio"}
            | {"difference": 0.5, "se": 0.1, "low": 0.3, "high": 0.7, "paired": False}
        ]
    )
    page = render_comparison({"one": probe, "<two>": ProbeRecord(record, heads)}, rows, ("<note>",))
    specs = [json.loads(content) for name, content in scripts(page).items() if name.startswith("cells-")]
    assert len(specs) == 2
    assert specs[0]["high"] == specs[1]["high"]
    assert "<two>" not in page
    assert "<note>" not in page
    assert "+0.5000\u00a0±\u00a00.1000" in page
    assert names_of(["a/x", "b/y", "c/y", "c/y"])[0] == "x"
    assert len(set(names_of(["a/x", "b/y", "c/y", "c/y"]))) == 4
