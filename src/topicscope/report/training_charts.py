"""The charts of a training run's page: what `training_figures` draws, as plotly's plain dicts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from topicscope.records import RunRecord
from topicscope.report import plotly_charts as plotly
from topicscope.report.heatmaps import Bracket, spread
from topicscope.report.page import significant
from topicscope.report.training_figures import (
    CLASSES,
    LOSSES,
    RunMatrix,
    place,
    relative,
    shown_losses,
    theory_of,
    ticks,
)

# Cells of all sliders of a page together, about nine bytes each, beside the five megabytes of plotly.
MOST_CELLS = 200_000


def norms_chart(record: RunRecord) -> dict[str, Any]:
    """‖X‖_F of every trained matrix, means over seeds."""
    names = [str(name) for name in record.history if str(name).endswith("_norm")]
    traces = [_mean(record.history, n, f"‖{n.removesuffix('_norm')}‖", i) for i, n in enumerate(names)]
    return {"data": traces, "layout": _layout(record, "Frobenius norm", log=True)}


def losses_chart(record: RunRecord) -> dict[str, Any]:
    """Every loss that the history holds, means over seeds."""
    traces = [_mean(record.history, n, LOSSES[n], i) for i, n in enumerate(shown_losses(record))]
    return {"data": traces, "layout": _layout(record, f"{record.config['training']['loss']} loss")}


def attention_chart(record: RunRecord) -> dict[str, Any]:
    """Attention of the same word and of the same topic relative to different topics, with theory's lines."""
    ratios, theory = relative(record.history), theory_of(record, "attention")
    first, last = place([0, ratios["step"].max()]).tolist()
    traces = []
    for number, name in enumerate(("same_word", "same_topic")):
        traces.append(_mean(ratios, name, CLASSES[name], number))
        if name in theory:
            value = theory[name]
            label = f"{CLASSES[name]}, theory" + ("" if value > 0 else f" {value:.3g}: below this axis")
            line = plotly.line([first, last], [value, value], label, number, mode="lines")
            traces.append(line | {"line": {"color": line["line"]["color"], "dash": "longdashdot", "width": 1.5}})
    traces.append(plotly.line([first, last], [1.0, 1.0], "uniform attention", 2, mode="lines"))
    return {"data": traces, "layout": _layout(record, "relative to different topics", log=True, stages=False)}


def matrix_chart(one: RunMatrix, most_cells: int = MOST_CELLS) -> dict[str, Any]:
    """A heat map with a slider of steps; topics as brackets along both sides, and in what the pointer shows.

    most_cells: cells of all frames together; above it frames in between are left out, evenly, the last one kept.
    """
    frames, cells = one.frames, one.frames.shape[1] ** 2
    count = max(1, min(len(frames), plotly.MOST_FRAMES, most_cells // cells))
    chosen = np.unique(np.linspace(len(frames) - 1, 0, count).round().astype(int))
    limit = spread(frames[-1])
    hover = "row %{y}, column %{x}: %{z:.4g}"
    traces = [
        (f"{int(one.steps[i]):,}", [plotly.heat_map(frames[i], hover=hover, middle=0.0, limit=limit)])
        for i in chosen.tolist()
    ]
    size = frames.shape[1]
    layout = plotly.axes(x="", y="", upside_down=True, **_sides(one.topics, size))
    layout |= {
        "shapes": [shape for b in one.topics for shape in _bracket(b)],
        "margin": {"l": 45, "r": 10, "t": 35, "b": 30},
    }
    return plotly.stepped(traces, layout)


def _sides(topics: Sequence[Bracket], size: int) -> dict[str, Any]:
    """Axes whose labels are topic numbers in the middle of their brackets."""
    step = -(-len(topics) // 12)
    shown = topics[::step]
    middles = [significant((b.begin + b.end) / 2 - 0.5) for b in shown]
    side = {"tickvals": middles, "ticktext": [str(b.topic) for b in shown], "ticks": "", "showgrid": False}
    end = size - 0.5
    return {
        "xaxis": side
        | {"side": "top", "constrain": "domain", "range": [-0.5, end], "zeroline": False, "ticklabelstandoff": 8},
        "yaxis": side
        | {
            "scaleanchor": "x",
            "constrain": "domain",
            "autorange": False,
            "range": [end, -0.5],
            "zeroline": False,
            "ticklabelstandoff": 8,
        },
    }


def _bracket(one: Bracket) -> list[dict[str, Any]]:
    """The two brackets of a topic, above and to the left; plotly measures the other side in shares of the plot."""
    gap = min(0.15, (one.end - one.begin) / 8)
    begin, end = one.begin - 0.5 + gap, one.end - 0.5 - gap
    line = {"color": "#808080", "width": 1.5}
    return [
        {"type": "line", "yref": "y domain", "x0": begin, "x1": end, "y0": 1.015, "y1": 1.015, "line": line},
        {"type": "line", "xref": "x domain", "y0": begin, "y1": end, "x0": -0.015, "x1": -0.015, "line": line},
    ]


def _mean(history: pd.DataFrame, name: str, label: str, number: int) -> dict[str, Any]:
    """The mean over seeds by step, with the least and the largest of them under the pointer."""
    by_step = history.groupby("step")[name].agg(["mean", "min", "max"])
    text = [
        f"step {step:,}: {mean:.4g} ({low:.4g} to {high:.4g})"
        for step, mean, low, high in zip(by_step.index, *(by_step[c] for c in ("mean", "min", "max")), strict=True)
    ]
    where = place(by_step.index.to_numpy())
    line = plotly.line(where.tolist(), [], label, number, text=text)
    # More digits than elsewhere: a ratio may leave 1 by a thousandth at first.
    return (
        line
        | {"y": [significant(value, 7) for value in by_step["mean"].tolist()]}
        | {
            "hovertemplate": f"{label}<br>%{{text}}<extra></extra>",
            "marker": line["marker"] | {"size": 6, "maxdisplayed": 30},
        }
    )


def _layout(record: RunRecord, title: str, *, log: bool = False, stages: bool = True) -> dict[str, Any]:
    places, labels = ticks(float(record.history["step"].max()))
    x = {"type": "log", "tickvals": places, "ticktext": labels}
    layout = plotly.axes(x="step", y=title, xaxis=x, yaxis={"type": "log"} if log else {})
    found = record.summary.get("stages") or []
    shapes, notes = [], []
    for name, words, dash in (("k1", "stage 1 ends", "dot"), ("k2", "stage 2 begins", "dash")):
        if stages and found and (name == "k1" or all(one["stage_two_reached"] for one in found)):
            step = float(place(np.mean([one[name] for one in found])))
            line = {"color": "#808080", "dash": dash, "width": 1.5}
            shapes.append({"type": "line", "yref": "paper", "x0": step, "x1": step, "y0": 0, "y1": 1, "line": line})
            notes.append(
                {
                    "text": words,
                    "x": float(np.log10(step)),
                    "y": 1,
                    "yref": "paper",
                    "yanchor": "bottom",
                    "xanchor": "right" if name == "k1" else "left",
                    "showarrow": False,
                }
            )
    return layout | {"shapes": shapes, "annotations": notes, "margin": layout["margin"] | {"t": 30}}
