"""What the charts and the script's data of a probe's page say, held against the record and against slow twins."""

import base64
import hashlib
import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from report.report_records import example, make_record
from topicscope.report import Differences, write_probe
from topicscope.report.answer import cautions, strictest
from topicscope.report.comparison_page import names_of, render_comparison
from topicscope.report.coverage import steps_kept
from topicscope.report.embedding_figures import shares, topic_brackets
from topicscope.report.head_panel import head_charts, head_choices, head_data, pieces
from topicscope.report.page import downloads
from topicscope.report.plotly_charts import binned, edges, heat_map, rounded, stepped
from topicscope.report.probe_charts import embedding_charts, ratio_chart
from topicscope.report.probe_page import ProbeRecord, render_probe
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


def test_only_the_scripts_that_the_policy_names_can_run(page: str) -> None:
    code = [content for name, content in scripts(page).items() if name.startswith("code-")]
    assert len(code) == 2
    hashes = {base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in code}
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert set(re.findall(r"sha256-([\w+/=]+)", policy[1])) == hashes
    assert len(page.encode()) < 8_000_000
    assert sum("plotly.js v" in content[:200] for content in code) == 1


def test_every_spec_is_one_that_plotly_reads(page: str) -> None:
    specs = {name: json.loads(content) for name, content in scripts(page).items() if name.startswith("spec-")}
    assert set(specs) == {"spec-ratios", "spec-heads-encoder", "spec-blocks", "spec-similarities", "spec-coverage"}
    for spec in specs.values():
        go.Figure(spec)  # raises for an unknown or misspelt property
    with pytest.raises(ValueError, match="Invalid"):
        go.Figure({"data": [{"type": "heatmap", "zmiddle": 1}]})


def test_the_map_shows_the_logarithm_of_every_ratio_and_its_numbers_when_asked(probe: ProbeRecord) -> None:
    (chart,) = head_charts(probe.heads, threshold=0.001, name="minilm")
    trace = chart.spec["data"][0]
    rows = probe.heads[probe.heads["threshold"] == 0.001]
    for row in rows.to_dict(orient="records"):
        i, j = row["layer"], row["head"]
        assert 2 ** trace["z"][i][j] == pytest.approx(row["attention_ratio"], rel=1e-3)
        assert f"layer {i}, head {j}<" in trace["hovertext"][i][j]
        assert f"{row['attention_ratio']:.2f} ±" in trace["hovertext"][i][j]
        assert "n = 1,480" in trace["hovertext"][i][j]
        sure = abs(row["attention_ratio"] - 1) > 1.96 * row["attention_ratio_se"]
        assert trace["text"][i][j] == (f"{row['attention_ratio']:.2f}" if sure else f"({row['attention_ratio']:.2f})")
    assert trace["zmax"] == -trace["zmin"] > 0


def test_heads_that_were_not_read_have_no_number() -> None:
    _, heads = make_record((("encoder", 2, 2, False),), (None,))
    heads = heads[~((heads["layer"] == 1) & (heads["head"] == 0))]
    heads.loc[heads.index[0], "attention_ratio"] = math.nan
    trace = head_charts(heads, threshold=None, name="m")[0].spec["data"][0]
    assert [[value is None for value in row] for row in trace["z"]] == [[True, False], [True, False]]
    assert trace["hovertext"][1][0].endswith("not read")


def test_the_panel_s_numbers_are_those_of_heads_csv(probe: ProbeRecord) -> None:
    data = head_data(probe.record, probe.heads)
    rows = probe.heads[probe.heads["threshold"] == 0.001].reset_index(drop=True)
    assert len(data["heads"]) == len(rows) == 12
    names = ["attention_ratio", "attention_ratio_distinct", "mean_same", "mean_different", "entropy", "distance"]
    assert len(data["labels"]) == len(names)  # the column without numbers is left out
    for row in rows.to_dict(orient="records"):
        shown = data["heads"][f"encoder/{row['layer']}/{row['head']}"]
        assert shown == pytest.approx([row[name] for name in names], rel=1e-3)
    assert data["median"]["encoder"] == pytest.approx([float(rows[name].median()) for name in names], rel=1e-3)
    choices = head_choices(probe.record, probe.heads)["encoder"]
    ratios = {f"encoder/{r['layer']}/{r['head']}": r["attention_ratio"] for r in rows.to_dict(orient="records")}
    assert [key for key, _ in choices] == sorted(ratios, key=lambda key: -ratios[key])


def test_equal_sentences_are_kept_once(probe: ProbeRecord) -> None:
    data = head_data(probe.record, probe.heads)
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
    blocks, histogram = embedding_charts(probe.similarities)
    trace = blocks.spec["data"][0]
    assert trace["z"][0][0] is None
    assert (trace["z"][0][1], trace["z"][0][29]) == (pytest.approx(0.4), pytest.approx(0.05))
    assert trace["x"][11] == "11: w11&lt;b&gt; (topic 2)"
    lines = [s for s in blocks.spec["layout"]["shapes"] if s["xref"] == "x"]
    assert [(s["x0"], s["x1"]) for s in lines] == [(-0.3, 9.3), (9.7, 19.3), (19.7, 29.3)]
    assert [(b.topic, b.begin, b.end) for b in topic_brackets(probe.similarities)] == [
        (0, 0, 10),
        (2, 10, 20),
        (4, 20, 30),
    ]
    same, different = histogram.spec["data"]
    assert (same["name"], different["name"]) == ("same topic (135 pairs)", "different topics (300 pairs)")
    assert "above 0.41" in histogram.picture.alt
    table = shares(probe.similarities)
    assert table[["same", "different"]].sum().tolist() == pytest.approx([100, 100])
    assert len(table) == 15  # from the first bar that holds pairs to the last


def test_ratios_have_the_intervals_of_the_table() -> None:
    record, _ = make_record()
    first = ratio_chart(record["table"], "minilm").spec["data"][0]
    assert first["y"] == pytest.approx([1.62, 1.52, 1.42])
    assert first["error_y"]["array"] == pytest.approx([0.15, 0.125, 0.1])
    assert first["error_y"]["arrayminus"] == pytest.approx([0.12, 0.1, 0.08])


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
    assert first["topics shuffled: p"] == "0.002"
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
    said = strictest(record["headline"], rows)
    assert "the ratio is 1.27 (95 % interval 1.17\u00a0to\u00a01.40)" in said
    corrected = record["headline"] | {"quantity": "attention_ratio_position_corrected"}
    assert strictest(corrected, rows) == ""  # another ratio than the headline's
    assert strictest(record["headline"], rows[:1]) == ""
    without = [row | {"attention_ratio_distinct_distance_matched": None} for row in rows]
    assert strictest(record["headline"], without) == ""


def test_coverage_counts_what_is_kept() -> None:
    pairs = [{"part": "encoder", "threshold": 0.1, "topic_seed": s, "same_topic": 2 + s, "no_topic": 8} for s in (1, 0)]
    table = steps_kept(
        {"text": {"documents": 10, "documents_kept": 5}, "alignment": {"words": 8, "found": 6}, "pairs": pairs}
        | {"pairs": [p | {"same_word": 1, "same_word_no_topic": 1, "different_topic": 8} for p in pairs]},
        "encoder",
        0.1,
    )
    assert table[["kept", "whole"]].to_numpy().tolist() == [[5, 10], [6, 8], [11, 20]]


def test_downloads_hold_the_files_and_too_large_ones_are_named() -> None:
    small, large = downloads({"a.csv": "x,y\n1,é\n", "b.json": "1" * 2_000_000})
    assert base64.b64decode(small.href.partition("base64,")[2]).decode() == "x,y\n1,é\n"
    assert large.text is None


def test_bins_are_means_of_blocks() -> None:
    matrix = np.random.default_rng(0).normal(size=(450, 30))
    found, rows = binned(matrix, 200), edges(450)
    assert found.shape == (200, 30)
    for a, b in [(0, 0), (77, 12), (199, 29)]:
        assert found[a, b] == pytest.approx(matrix[rows[a] : rows[a + 1], b].mean())
    assert rounded(np.array([[1.23456, math.nan], [1e-9, -4.0]])) == [[1.235, None], [1e-09, -4.0]]
    assert np.array_equal(binned(matrix[:30]), matrix[:30])


def test_a_slider_has_a_frame_for_every_step() -> None:
    frames = [(str(step), [heat_map(np.eye(3) * step, hover="%{z}")]) for step in (1, 5)]
    spec = stepped(frames, {"title": {"text": "x"}})
    assert [frame["name"] for frame in spec["frames"]] == ["1", "5"]
    assert spec["data"] == spec["frames"][1]["data"]
    go.Figure({name: spec[name] for name in ("data", "layout", "frames")})


def test_equal_records_give_equal_pages(probe: ProbeRecord, page: str, tmp_path: Any) -> None:
    from topicscope.records import write_json, write_npz, write_text

    assert render_probe(probe) == page
    write_json(tmp_path / "result.json", probe.record)
    write_text(tmp_path / "heads.csv", probe.heads.to_csv(index=False))
    write_npz(tmp_path / "embedding_map.npz", probe.similarities)
    assert write_probe(tmp_path).read_text() == page  # nothing is lost on the way through the files
    (tmp_path / "embedding_map.npz").unlink()  # a result of before
    older = write_probe(tmp_path, out=tmp_path / "older.html").read_text()
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
    page = render_comparison({"one": probe, "<two>": ProbeRecord(record, heads)}, Differences(rows, ("<note>",)))
    specs = [json.loads(content) for name, content in scripts(page).items() if name.startswith("spec-")]
    assert len(specs) == 2
    assert specs[0]["data"][0]["zmax"] == specs[1]["data"][0]["zmax"]
    assert "<two>" not in page
    assert "<note>" not in page
    assert "+0.5000\u00a0±\u00a00.1000" in page
    assert names_of(["a/x", "b/y", "c/y", "c/y"])[0] == "x"
    assert len(set(names_of(["a/x", "b/y", "c/y", "c/y"]))) == 4
