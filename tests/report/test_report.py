"""The page and its pictures say what the record says, and text from outside stays text."""

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.report_records import THRESHOLDS, example, make_record
from topicscope.errors import InputError
from topicscope.report import head_map, ratio_figure, to_png
from topicscope.report.page import script_json
from topicscope.report.probe_page import ProbeRecord, head_charts, render_probe, verdict
from topicscope.report.style import rendered
from topicscope.report.tables import interval, number, with_error

VOID = {"meta", "img", "link", "br", "hr", "input"}
EVIL = "<script>alert(1)</script>{{7*7}}{% raw %}\"'"


class Page(HTMLParser):
    """Tags, attributes, text and tables of a page; asserts that tags are balanced."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.text = ""
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(str(dict(attrs)["aria-label"]), [])
        if tag == "tr":
            self._rows.append([])
        if tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"style", "script", "svg"} & set(self.open):
            return
        self.text += data
        if {"td", "th"} & set(self.open):
            self._rows[-1][-1] += data.replace("\u00a0", " ")

    def names(self) -> list[str]:
        return [name for name, _ in self.tags]

    def table(self, start: str) -> list[dict[str, str]]:
        (rows,) = [rows for caption, rows in self.tables.items() if caption.startswith(start)]
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def render(record: dict[str, Any], heads: pd.DataFrame) -> str:
    return render_probe(ProbeRecord(record, heads))


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(*make_record()))


def cell_texts(figure: Any) -> dict[tuple[int, int], str]:
    return {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in figure.axes[0].texts}


def test_every_cell_shows_its_own_head() -> None:
    _, heads = make_record((("encoder", 3, 5, False),))
    chosen = heads[heads["threshold"] == 0.001]
    expected = {}
    for row in chosen.to_dict(orient="records"):
        ratio, error = row["attention_ratio"], row["attention_ratio_se"]
        sure = ratio - 1.96 * error > 1 or ratio + 1.96 * error < 1
        expected[row["layer"], row["head"]] = f"{ratio:.2f}" if sure else f"({ratio:.2f})"
    shuffled = heads.sample(frac=1, random_state=3)
    shown = cell_texts(head_map(shuffled, part="encoder", threshold=0.001))
    assert shown == expected
    assert len({text[0] == "(" for text in shown.values()}) == 2
    # Negative control: another threshold shows other numbers.
    assert cell_texts(head_map(heads, part="encoder", threshold=0.002)) != expected


def test_colours_are_symmetric_about_one() -> None:
    _, heads = make_record((("encoder", 2, 4, False),))
    figure = head_map(heads, part="encoder", threshold=0.001)
    norm = figure.axes[0].collections[0].norm
    assert norm(1.0) == pytest.approx(0.5)
    assert norm(1.25) - 0.5 == pytest.approx(0.5 - norm(1 / 1.25))
    assert norm(1.25) > norm(1.1) > 0.5


def test_a_head_without_ratio_is_hatched_and_has_no_number() -> None:
    _, heads = make_record((("encoder", 2, 2, False),))
    heads.loc[(heads["layer"] == 1) & (heads["head"] == 0), "attention_ratio"] = math.nan
    figure = head_map(heads, part="encoder", threshold=0.001)
    mask = np.ma.getmaskarray(figure.axes[0].collections[0].get_array())
    assert mask.tolist() == [[False, False], [True, False]]
    assert set(cell_texts(figure)) == {(0, 0), (0, 1), (1, 1)}
    assert figure.axes[0].patch.get_hatch() == "////"


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e9, math.nan])
def test_extreme_ratios_are_drawn(value: float) -> None:
    _, heads = make_record((("encoder", 2, 2, False),))
    heads["attention_ratio"] = value
    assert to_png(head_map(heads, part="encoder", threshold=0.001)).startswith(b"\x89PNG")


def test_large_maps_are_light_and_unlettered() -> None:
    _, heads = make_record((("decoder", 48, 64, True),), (None,))
    figure = head_map(heads, part="decoder", threshold=None)
    assert cell_texts(figure) == {}
    assert len(rendered(figure, "svg")) < 1_000_000
    assert len(figure.axes[0].images) == 1  # one picture in place of 3,072 shapes


def test_causal_parts_show_the_corrected_ratio() -> None:
    _, heads = make_record((("decoder", 2, 3, True),))
    shown = cell_texts(head_map(heads, part="decoder", threshold=0.001))[0, 0].strip("()")
    first = heads[heads["threshold"] == 0.001].iloc[0]
    assert shown == f"{first['attention_ratio_position_corrected']:.2f}" != f"{first['attention_ratio']:.2f}"


@pytest.mark.parametrize(("part", "threshold"), [("decoder", 0.001), ("encoder", 0.003), ("encoder", None)])
def test_an_unknown_map_is_refused(part: str, threshold: float | None) -> None:
    with pytest.raises(InputError, match="no heads to draw"):
        head_map(make_record()[1], part=part, threshold=threshold)


def test_names_that_the_font_or_mathtext_cannot_read_are_drawn() -> None:
    _, heads = make_record((("encoder", 2, 2, False),))
    figure = head_map(heads, part="encoder", threshold=0.001, title="a$b_{$名")
    assert to_png(figure).startswith(b"\x89PNG")


def test_equal_figures_give_equal_svg() -> None:
    _, heads = make_record((("encoder", 2, 2, False),))
    first, second = (rendered(head_map(heads, part="encoder", threshold=0.001), "svg") for _ in range(2))
    assert first == second
    assert first != rendered(head_map(heads, part="encoder", threshold=0.002), "svg")


def ratio_table(*arguments: Any) -> pd.DataFrame:
    frame = pd.DataFrame.from_records(make_record(*arguments)[0]["table"])
    numeric = frame.columns.difference(["source", "model", "part", "verdict"])
    return frame.astype(dict.fromkeys(numeric, float))


def test_intervals_are_those_of_the_table() -> None:
    bars = ratio_figure(ratio_table()).axes[0].containers[0].lines[2][0].get_segments()
    assert [s[0, 1] for s in bars] == pytest.approx([1.62 - 0.12, 1.52 - 0.10, 1.42 - 0.08])
    assert [s[1, 1] for s in bars] == pytest.approx([1.62 + 0.15, 1.52 + 0.125, 1.42 + 0.10])


def test_the_papers_bert_stands_only_at_measured_thresholds_of_encoders() -> None:
    parts = (("encoder", 2, 2, False), ("cross", 2, 2, False))
    figure = ratio_figure(ratio_table(parts, (0.001, 0.004)))
    stars = [[line.get_ydata()[0] for line in a.lines if line.get_marker() == "*"] for a in figure.axes]
    assert stars == [[1.28], []]


def test_drawing_leaves_pyplot_alone() -> None:
    code = "import sys, topicscope.report.probe_page; print('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


def test_the_page_is_self_contained(page: Page) -> None:
    assert {"link", "iframe", "object"}.isdisjoint(page.names())
    addresses = [v for _, a in page.tags for k, v in a.items() if k in {"src", "href", "srcset"}]
    assert addresses
    assert all(
        v.startswith(("data:image/png;base64,", "data:text/csv;", "data:application/json;", "#")) for v in addresses
    )
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_the_page_is_readable_by_machine(page: Page) -> None:
    levels = [int(name[1]) for name in page.names() if name in {"h1", "h2", "h3"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    drawings = [a for name, a in page.tags if name == "svg"]
    assert len(drawings) == 3  # ratios, heads, coverage
    marks = [a for _, a in page.tags if a.get("class") == "mark"]
    assert len(marks) > 20
    assert all(a["role"] == "img" for a in marks)
    assert all(a["aria-label"] for a in [*drawings, *marks])
    assert all(a.get("scope") in {"col", "row"} for name, a in page.tags if name == "th")


def test_text_from_outside_stays_text() -> None:
    record, heads = make_record((("encoder", 2, 2, False),))
    record["model"]["name"] = record["headline"]["text"] = record["manifest"]["command"] = EVIL
    record["warnings"] = [EVIL]
    record["topics"] = [{"topic": 0, "words": [EVIL]}]
    record["manifest"]["options"] = {EVIL: EVIL}
    record["coverage"]["text"]["dropped"] = {EVIL: 3}
    record["embeddings"][0]["ratio_withheld"] = EVIL
    record["head_examples"] = [example(EVIL, EVIL)]
    page = Page(render(record, heads))
    # Text from outside makes no element: as many of each as with harmless text.
    harmless = re.sub(r"[^\w\s]", "x", EVIL)  # as long, or the title of the map would have other lines
    record = json.loads(json.dumps(record).replace(json.dumps(EVIL)[1:-1], harmless))
    assert page.names() == Page(render(record, heads)).names()
    # name (title, heading), sentence, warning, word, option twice, funnel, count, reason, command: each as it came.
    assert page.text.count(EVIL) >= 10
    assert "script" in Page(f"<p>{EVIL}</p>").names()


def test_text_in_data_is_no_markup_and_comes_back_as_it_was() -> None:
    escaped = script_json({"word": EVIL, "end": "</script><!--<script>", "nothing": math.nan})
    assert not set("<>&") & set(escaped)
    assert json.loads(escaped) == {"word": EVIL, "end": "</script><!--<script>", "nothing": None}


def test_attention_table_says_what_the_record_says(page: Page) -> None:
    first = page.table("Attention")[0]
    assert first == {
        "part": "encoder",
        "θ": "0.0005",
        "all pairs": "1.620 ± 0.060",
        "distinct words": "1.470 ± 0.060",
        "distance-matched": "1.420 ± 0.060",
        "distinct, distance-matched": "1.370 ± 0.060",
        "distinct, frequency-matched": "1.400 ± 0.060",
        "sd over topic seeds": "0.041",
        "random weights (95% CI)": "0.9974 to 1.0034",
        "permutation p": "0.002",
        "verdict": "higher",
        "same-topic pairs": "1,480",
        "different-topic pairs": "9,200",
    }
    assert len(page.table("The paper's figures")) == 9


def test_causal_page_has_the_corrected_column_and_its_control() -> None:
    page = Page(render(*make_record((("decoder", 2, 2, True),))))
    row = page.table("Attention")[1]
    assert (row["position-corrected"], row["random weights (95% CI)"]) == ("1.420 ± 0.050", "0.991 to 1.013")
    assert "This model (position-corrected)" in page.text
    assert "BERT in the paper" not in page.text


def test_embeddings_average_the_seeds_or_say_why_not(page: Page) -> None:
    rows = page.table("Embeddings")
    assert len(rows) == 2 * 2 * len(THRESHOLDS)
    raw, layer = rows[0], rows[-1]
    assert raw["S/D"] == "withheld: D is within two standard errors of 0 (3 of 3 topic seeds)"
    assert layer["S (same topic)"] == "0.1840 ± 0.0090"
    assert layer["S/D"] == "2.98 ± 0.21"
    assert (layer["z"], layer["any two words"], layer["S − D, random weights"]) == ("13.1", "0.055", "0.001")
    assert layer["verdict"] == "higher"


def test_the_funnel_counts_every_loss(page: Page) -> None:
    counts = {row["step"]: int(row["count"].replace(",", "")) for row in page.table("What was read")}
    lost = sum(n for step, n in counts.items() if step.startswith("− words lost"))
    assert counts["words in the units read"] == counts["words that are one token of the model"] + lost
    assert counts["− units left out: not drawn"] == 17_701
    assert "− words lost: drift" not in counts


def test_a_bare_record_still_makes_a_page() -> None:
    record, heads = make_record(
        (("encoder", 2, 2, False),),
        (None,),
        embeddings=[],
        topics=[],
        controls=[],
        warnings=[],
        coverage={},
        interrupted=True,
    )
    record["manifest"]["command"] = None
    record["headline"] |= dict.fromkeys(
        ("attention_ratio_se", "low", "high", "control_attention_ratio", "control_low", "control_high")
    )
    for row in record["table"]:
        row |= {name: None for name in row if name.endswith(("_se", "_low", "_high"))}
    page = Page(render(record, heads))
    assert page.table("Attention")[0]["θ"] == "word list"
    assert "interrupted" in page.text
    assert "number without a known precision" in page.text
    assert "nan" not in page.text.lower().replace("\n", " ").split()


def test_one_picture_for_every_part() -> None:
    parts = (("encoder", 2, 2, False), ("decoder", 2, 2, True), ("cross", 2, 2, False))
    record, heads = make_record(parts)
    charts = head_charts(heads, threshold=record["headline"]["threshold"], name="minilm")
    assert [c.caption for c in charts] == [f"Every head of the {p[0]}" for p in parts]
    assert all("2 layers by 2 heads" in c.alt for c in charts)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(1.01, 1.2, "above 1"), (0.8, 0.99, "below 1"), (0.9, 1.1, "includes 1"), (None, None, "too little text")],
)
def test_the_verdict_says_no_more_than_the_interval(low: float | None, high: float | None, words: str) -> None:
    assert words in verdict({"low": low, "high": high})


def test_a_verdict_of_the_probe_leads() -> None:
    above = {"low": 1.01, "high": 1.2}
    assert "need not be one of topics" in verdict(above | {"verdict": "no topic structure found"})
    assert "looks less" in verdict(above | {"verdict": "same-topic attention lower"})
    assert "looks more at words of the same topic." in verdict(above | {"verdict": "not tested"})


def test_the_verdict_credits_nothing_that_random_weights_or_repeats_explain() -> None:
    above = {"low": 1.01, "high": 1.2}
    assert "random weights reach into it" in verdict(above | {"control_high": 1.02})
    place = {"part": "encoder", "threshold": 0.001}
    rows = [place | {"attention_ratio_distinct": value, "attention_ratio_distinct_se": 0.01} for value in (1.025, 1.01)]
    above |= place | {"control_high": 1.001}
    assert "looks more" in verdict(above, rows[:1])
    assert "repeats of one word" in verdict(above, rows[1:])
    assert "looks more" in verdict(above | {"threshold": 0.002}, rows[1:])  # those of another threshold
    # The distinct ratio of a causal part is not corrected for position and cannot speak against one that is.
    assert "looks more" in verdict(above | {"quantity": "attention_ratio_position_corrected"}, rows[1:])


def test_small_errors_and_narrow_intervals_keep_their_digits() -> None:
    assert with_error({"x": 1.00017, "x_se": 0.000048}, "x") == "1.000170\u00a0±\u00a00.000048"
    assert with_error({"x": 1.62, "x_se": 0.06}, "x") == "1.620\u00a0±\u00a00.060"
    assert interval(1.00012, 1.00023) == "1.00012\u00a0to\u00a01.00023"


def test_the_papers_card_is_the_models_own_family() -> None:
    record, heads = make_record()
    record["model"]["model_type"] = "roberta"
    text = Page(render(record, heads)).text
    assert "RoBERTa in the paper" in text
    assert "BERT in the paper" not in text.replace("RoBERTa in the paper", "")


@pytest.mark.parametrize(
    ("value", "text"), [(1.5234, "1.52"), (0.01234, "0.0123"), (0.0, "0.00"), (None, "–"), (math.nan, "–")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text
