"""The charts of a probe's page beside its head maps, each with its still picture."""

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from topicscope.report.coverage import coverage_figure, steps_kept
from topicscope.report.embedding_figures import KINDS, block_matrix, shares, similarity_histogram, topic_brackets
from topicscope.report.heatmaps import Bracket, at_threshold, ratio_column, ratio_figure, spread, threshold_label
from topicscope.report.page import Chart, Picture
from topicscope.report.plotly_charts import LINES, axes, heat_map, rounded

# Beyond this many labels along a side they would run into each other.
_MOST_LABELS = 14
_MEASURES = (
    ("attention_ratio", "all pairs"),
    ("attention_ratio_distinct", "distinct words"),
    ("attention_ratio_distance_matched", "distance-matched"),
    ("attention_ratio_position_corrected", "position-corrected"),
)


def ratio_chart(table: Sequence[Mapping[str, Any]], name: str) -> Chart:
    """Ratios by threshold with 95 % intervals, random weights and the paper's BERT. table: of result.json."""
    frame = pd.DataFrame.from_records(table)
    numeric = [c for c in map(str, frame) if c.startswith(("threshold", "attention_", "control_"))]
    frame[numeric] = frame[numeric].astype(float)
    measured = frame[frame["source"] == "measured"]
    paper = frame[(frame["source"] == "paper") & (frame["model"] == "BERT")]
    parts = list(dict.fromkeys(measured["part"]))
    traces: list[dict[str, Any]] = []
    for part in parts:
        traces += _ratios(measured[measured["part"] == part], paper, f"{part}, " if len(parts) > 1 else "")
    # A place for each series, one beside the other.
    for number, trace in enumerate(traces):
        trace["x"] = rounded([x + 0.7 * ((number + 0.5) / len(traces) - 0.5) for x in trace["x"]])
    labels = list(dict.fromkeys(threshold_label(float(t)) for t in measured["threshold"]))
    ticks = {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": labels, "showgrid": False}
    ticks |= {"range": [-0.5, len(labels) - 0.5], "zeroline": False}
    layout = axes(x="threshold θ", y="same-topic / different-topic attention", xaxis=ticks)
    rule = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": {"dash": "dot", "width": 1}}
    picture = Picture.of(
        ratio_figure(frame),
        "The ratio by threshold, with random weights and the paper beside it",
        f"Attention ratios of {name} by threshold with 95 % intervals; the numbers are in the attention table.",
    )
    return Chart("ratios", {"data": traces, "layout": layout | {"shapes": [rule]}}, picture, height=430)


def _ratios(rows: pd.DataFrame, paper: pd.DataFrame, prefix: str) -> list[dict[str, Any]]:
    """Traces whose x is the number of a threshold."""
    numbers = list(range(len(rows)))
    hover = "%{fullData.name}: %{y:.3f}<extra></extra>"
    found: list[dict[str, Any]] = []
    for (column, label), (color, _, symbol) in zip(_MEASURES, LINES, strict=False):
        if column not in rows or not bool(rows[column].notna().any()):
            continue
        value, low, high = (rows[f"{column}{end}"].to_numpy(dtype=float) for end in ("", "_low", "_high"))
        error = {"type": "data", "symmetric": False, "array": rounded(high - value), "arrayminus": rounded(value - low)}
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers",
            "name": prefix + label,
            "x": numbers,
            "y": rounded(value),
        }
        trace |= {"error_y": error, "marker": {"color": color, "symbol": symbol, "size": 9}, "hovertemplate": hover}
        found.append(trace)
    control = f"control_{ratio_column(rows)}"
    others: list[tuple[str, list[int], list[float], str]] = []
    if control in rows and bool(rows[control].notna().any()):
        others.append((f"{prefix}random weights", numbers, rows[control].tolist(), "line-ew-open"))
    if bool((rows["part"] == "encoder").all()):
        known = [at_threshold(paper, t)["attention_ratio"].iloc[:1].tolist() for t in rows["threshold"]]
        places = [(x, y[0]) for x, y in zip(numbers, known, strict=True) if y]
        others.append(("BERT in the paper", [x for x, _ in places], [y for _, y in places], "star"))
    for label, x, y, symbol in others:
        marker = {"color": "#888888", "symbol": symbol, "size": 12, "line": {"width": 3, "color": "#888888"}}
        trace = {"type": "scatter", "mode": "markers", "name": label, "x": x, "y": rounded(y)}
        found.append(trace | {"marker": marker, "hovertemplate": hover})
    return found


def embedding_charts(similarities: Mapping[str, np.ndarray]) -> list[Chart]:
    """The block matrix of cosines by topic, and the histogram of cosines of both kinds of pairs."""
    return [_block_chart(similarities), _histogram_chart(similarities)]


def _block_chart(similarities: Mapping[str, np.ndarray]) -> Chart:
    data, figure = block_matrix(similarities)
    cosine, topics = np.asarray(data["cosine"]), topic_brackets(similarities)
    bins = _bin_names(similarities, topics)
    trace = heat_map(
        cosine,
        x=bins,
        y=bins,
        hover="%{y}<br>× %{x}<br>mean cosine %{z:.3f}",
        middle=0.0,
        limit=spread(cosine),
        bar="cosine",
    )
    step = -(-len(topics) // _MOST_LABELS)
    ticks = {
        "tickmode": "array",
        "tickvals": [round((one.begin + one.end) / 2 - 0.5, 2) for one in topics[::step]],
        "ticktext": [str(one.topic) for one in topics[::step]],
        "showgrid": False,
    }
    layout = axes(
        x="words, by topic (number)",
        y="words, by topic (number)",
        upside_down=True,
        xaxis={**ticks, "side": "top"},
        yaxis=ticks,
        margin={"l": 40, "r": 10, "t": 40, "b": 10},
        shapes=[shape for one in topics for shape in _bracket(one)],
    )
    alt = (
        f"Matrix of the mean cosines of {len(similarities['words'])} words in the order of their {len(topics)} topics; "
        "orange blocks along the diagonal are topics whose words are alike."
    )
    picture = Picture.of(figure, "Which word embeddings are alike: every word by its topic", alt)
    return Chart("blocks", {"data": [trace], "layout": layout}, picture, height=600, width=680)


def _bin_names(similarities: Mapping[str, np.ndarray], topics: Sequence[Bracket]) -> list[str]:
    """What each bin holds, told apart by its number: plotly takes equal names for one place."""
    edges, words = similarities["edges"].tolist(), similarities["words"]
    of_word = np.repeat(similarities["topics"], np.diff(np.append(similarities["starts"], len(words))))
    names = []
    for begin, end in pairwise(edges):
        first, last = str(words[begin]), str(words[end - 1])
        held = first if end - begin == 1 else f"{first} … {last}"
        # Plotly reads a little HTML in names, and words are from outside.
        names.append(f"{begin}: {html.escape(held)} (topic {of_word[begin]})")
    return names


def _bracket(one: Bracket) -> list[dict[str, Any]]:
    """A line above and one at the left, as long as the topic."""
    gap = min(0.2, (one.end - one.begin) / 8)
    begin, end = round(one.begin - 0.5 + gap, 2), round(one.end - 0.5 - gap, 2)
    line = {"width": 2}
    above = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": begin,
        "x1": end,
        "y0": 1.005,
        "y1": 1.005,
        "line": line,
    }
    left = {"type": "line", "xref": "paper", "yref": "y", "x0": -0.005, "x1": -0.005, "y0": begin, "y1": end}
    return [above, {**left, "line": line}]


def _histogram_chart(similarities: Mapping[str, np.ndarray]) -> Chart:
    table = shares(similarities)
    middle = (table["low"] + table["high"]) / 2
    traces = []
    for (name, label), (color, dash, _) in zip(KINDS, LINES, strict=False):
        pairs = int(similarities[name].sum())
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines",
            "name": f"{label} ({pairs:,} pairs)",
            "x": rounded(middle.to_numpy()),
        }
        trace |= {
            "y": rounded(table[name].to_numpy()),
            "line": {"shape": "hvh", "color": color, "dash": dash, "width": 2.5},
        }
        traces.append(trace | {"hovertemplate": "cosine %{x:.3f}: %{y:.3g} % of these pairs"})
    layout = axes(x="cosine of two words", y="% of the pairs of a kind")
    alt = "Histogram of cosines: " + "; ".join(
        f"half of the {name}-topic pairs are above {_median(similarities, name):.2f}" for name, _ in KINDS
    )
    _, figure = similarity_histogram(similarities)
    picture = Picture.of(figure, "Similarities of same-topic and of different-topic words", alt + ".")
    return Chart("similarities", {"data": traces, "layout": layout}, picture, height=380)


def _median(similarities: Mapping[str, np.ndarray], name: str) -> float:
    """The middle of the bar that holds the median; NaN without a pair."""
    counts, bounds = similarities[name], similarities["bounds"]
    if not counts.sum():
        return float("nan")
    bar = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return float(bounds[bar] + bounds[bar + 1]) / 2


def coverage_chart(coverage: Mapping[str, Any], part: str, threshold: float | None) -> Chart | None:
    """What was kept of documents, units, words and pairs; None where nothing was counted."""
    table = steps_kept(coverage, part, threshold)
    if table.empty:
        return None
    said = [f"{row['kept']:,.0f} of {row['whole']:,.0f} {row['step']}" for _, row in table.iterrows()]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": table["step"].tolist(),
        "x": rounded(100 * table["share"].to_numpy()),
        "text": [f"{row['share']:.1%}" for _, row in table.iterrows()],
        "textposition": "auto",
        "hovertext": said,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": LINES[0][0]},
    }
    layout = axes(x="% kept", y="", upside_down=True, xaxis={"range": [0, 100]}, bargap=0.35)
    _, figure = coverage_figure(coverage, part, threshold)
    picture = Picture.of(figure, "What was kept of the text", f"Kept: {'; '.join(said)}.")
    return Chart("coverage", {"data": [trace], "layout": layout}, picture, height=90 + 55 * len(table))
