"""Figures of a training run, each with the numbers it shows; drawn from a `RunRecord` alone.

Axes of training steps: logarithmic with step 0 on them, the seeds as a band, the stages as lines.

The matrices of a training run by moment, with topics along their sides: from its snapshots, or its final weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from topicscope.errors import InputError
from topicscope.records import RunRecord
from topicscope.report.labels import PAIRS
from topicscope.report.style import (
    LINES,
    MOST_BINS,
    REFERENCE,
    STATE,
    Bracket,
    Columns,
    Drawn,
    block_map,
    brackets,
    matrix_cells,
    paper_figure,
    shared_legend,
    show_values,
    spread,
    tidy,
)

# Where step 0, which has no logarithm, stands on a logarithmic axis: half a step before 1.
ORIGIN = 0.5


def band(axes: Axes, history: pd.DataFrame, name: Any, label: str, number: int) -> None:
    """The mean over seeds, and the band from the least to the largest."""
    color, line, _ = LINES[number % len(LINES)]
    means = history.groupby("step")[name].agg(["mean", "min", "max"])
    where = np.maximum(means.index.to_numpy(), ORIGIN)
    axes.plot(where, means["mean"], ls=line, color=color, lw=1.3, label=label)
    axes.fill_between(where, means["min"], means["max"], color=color, alpha=0.2, lw=0)
    # More digits than elsewhere: a ratio may leave 1 by a thousandth at first.
    rows = zip(means.index, means["mean"], means["min"], means["max"], strict=True)
    texts = [f"{label}\nstep {step:,}: {mean:.7g} ({low:.7g} to {high:.7g})" for step, mean, low, high in rows]
    show_values(axes, where, means["mean"], texts)


def by_step(axes: Axes, history: pd.DataFrame) -> None:
    """A logarithmic axis of steps, marked at 0 and at the powers of ten."""
    powers = [10**k for k in range(int(np.log10(max(history["step"].max(), 1))) + 1)]
    axes.set_xscale("log")
    axes.set_xticks([ORIGIN, *powers], ["0", *(f"{power:,}" for power in powers)])
    axes.minorticks_off()
    axes.set_xlabel("step")
    tidy(axes)


def draw_norms(axes: Axes, record: RunRecord, names: Sequence[str]) -> None:
    """‖X‖_F of matrices over steps, and the stages where they were found."""
    for number, name in enumerate(names):
        band(axes, record.history, f"{name}_norm", f"‖{name}‖", number)
    mark_stages(axes, record)
    axes.set_ylabel("Frobenius norm")
    plain_log(axes)
    by_step(axes, record.history)


def mark_stages(axes: Axes, record: RunRecord) -> None:
    """Lines at the end of stage one and the begin of stage two, means over seeds, where the record has stages."""
    found: Sequence[Mapping[str, Any]] = record.summary.get("stages") or []
    for name, label, line in (("k1", "stage 1 ends", ":"), ("k2", "stage 2 begins", "--")):
        # Without a second stage k2 is only the last step.
        if found and (name == "k1" or all(one["stage_two_reached"] for one in found)):
            middle = float(np.mean([one[name] for one in found]))
            axes.axvline(max(middle, ORIGIN), color="#444444", lw=0.9, ls=line, label=label)


def plain_log(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers at 1, 2, 5 times powers of ten, or evenly where fewer than two fit."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1.0, 2.0, 5.0) if len(decades) <= 4 else (1.0,)
    marks = [step * 10.0**k for k in decades for step in steps if low <= step * 10.0**k <= high]
    marks = marks if len(marks) >= 2 else [float(m) for m in MaxNLocator(4).tick_values(low, high) if low <= m <= high]
    axes.yaxis.set_major_locator(FixedLocator(marks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.minorticks_off()


NAMES: Mapping[str, str] = {
    "W_V": "value matrix W_V, [output, input]",
    "E": "Gram matrix W_Eᵀ W_E of the embeddings",
    "logits": "attention logits, [key, query]",
}


@dataclass(frozen=True, eq=False)
class RunMatrix:
    """One matrix along a run, of the first seed.

    frames [frame bin bin]; steps [frame]; topics: where each topic lies along both sides; none where unknown.
    """

    frames: np.ndarray
    steps: np.ndarray
    topics: list[Bracket]


def run_matrices(record: RunRecord) -> dict[str, RunMatrix]:
    """W_V, E and logits, those that the run trained, by name; from older records only the last moment."""
    kept = record.snapshots
    if kept:
        topics = brackets(kept["topic"], kept["edge"])
        return {name: RunMatrix(kept[name], kept["step"], topics) for name in NAMES if name in kept}
    data, frozen = record.config.get("data", {}), record.summary.get("frozen", [])
    T, v = data.get("num_topics", 0), data.get("words_per_topic", 0)
    regular = T and v and not any(data.get(name) for name in ("topic_sizes", "shared_words", "phi"))
    last = np.array([record.summary.get("steps", 0)])
    W_E, W_V = record.weights.get("W_E"), record.weights.get("W_V")
    final = {}
    if W_E is not None and "W_E" not in frozen:
        final["E"] = W_E[0].T @ W_E[0]
    elif W_V is not None and "W_V" not in frozen:
        final["W_V"] = W_V[0]
    found = {}
    for name, matrix in final.items():
        tokens = 1 + T * v if regular else len(matrix)
        topic = np.concatenate([[-1], np.repeat(np.arange(T), v)]) if regular else np.full(tokens, -1)
        if tokens <= len(matrix):
            cut = matrix[None, :tokens, :tokens]
            found[name] = RunMatrix(cut, last, brackets(topic, np.arange(tokens + 1)))
    return found


LOSSES = {"loss": "held-out documents", "batch_loss": "batch", "objective": "batch, with the L2 term"}
# Of `topicscope.lab.find_stages`.
_SETTLED, _MOVED = 0.9, 0.1


def norms(record: RunRecord, columns: Columns | None = None) -> Drawn:
    """‖X‖_F of every trained matrix over steps; the band spans the seeds, lines mark the stages where they were found.

    Data: seed, step, and a column X_norm for each matrix X.
    """
    found = [str(name) for name in record.history if str(name).endswith("_norm")]
    _need(found, "norms", "trained matrices")
    with paper_figure(columns, 2.6) as figure:
        draw_norms(figure.subplots(), record, [name.removesuffix("_norm") for name in found])
        shared_legend(figure, 5 if columns != "single" else 3)
    return record.history[["seed", "step", *found]].copy(), figure


def losses(record: RunRecord, columns: Columns | None = None) -> Drawn:
    """The loss on held-out documents, of the batches, and with the L2 term if there is one; the band spans the seeds.

    A loss that is the same as one before it is left out.

    Data: seed, step, loss, batch_loss, objective.
    """
    names: list[str] = []
    for name in LOSSES:
        there = name in record.history and bool(record.history[name].notna().any())
        if there and not any(record.history[name].equals(record.history[other]) for other in names):
            names.append(name)
    _need(names, "losses", "a measured loss")
    with paper_figure(columns, 2.4) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            band(axes, record.history, name, LOSSES[name], number)
        mark_stages(axes, record)
        axes.set_ylabel(f"{record.config['training']['loss']} loss")
        axes.ticklabel_format(axis="y", useOffset=False)
        by_step(axes, record.history)
        axes.legend()
    return record.history[["seed", "step", *names]].copy(), figure


def stages(record: RunRecord, columns: Columns | None = None) -> Drawn:
    """How the two stages were told apart, seed by seed: the way of W_V, and how far W_K or W_Q had moved.

    Data: seed, step; value_way = ‖W_V - W_V(0)‖ over its value at k₂; attention_moved, the larger of
    ‖X - X(0)‖ / ‖X(0)‖ for X = W_K, W_Q. k₁: first step with value_way ≥ 0.9; k₂: first with attention_moved ≥ 0.1.
    """
    found = record.summary.get("stages")
    _need(found, "stages", "W_V, W_K and W_Q trained together")
    ways = []
    for one in found or []:
        rows = record.history[record.history["seed"] == one["seed"]].sort_values("step")
        whole = float(rows.loc[rows["step"] == one["k2"], "W_V_change"].iloc[0])
        moved = [rows[f"{name}_change"] / rows[f"{name}_norm"].iloc[0] for name in ("W_K", "W_Q")]
        ways.append(
            rows[["seed", "step"]].assign(value_way=rows["W_V_change"] / whole, attention_moved=np.maximum(*moved))
        )
    data = pd.concat(ways, ignore_index=True)
    with paper_figure(columns, 3.2) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, name, line, label in (
            (upper, "value_way", _SETTLED, "share of W_V's way"),
            (lower, "attention_moved", _MOVED, "W_K or W_Q moved by"),
        ):
            for _, rows in data.groupby("seed"):
                axes.plot(np.maximum(rows["step"], ORIGIN), rows[name], color=LINES[0][0], lw=1.0, alpha=0.8)
            axes.axhline(line, **REFERENCE | {"ls": (0, (1, 1))})
            axes.set_ylabel(label)
            mark_stages(axes, record)
        plain_log(lower)
        upper.legend()
        by_step(upper, data)
        by_step(lower, data)
        upper.set_xlabel("")
    return data, figure


def attention(record: RunRecord, columns: Columns | None = None) -> Drawn:
    """Mean attention by class of word pair, and beside it relative to pairs of different topics, with theory's lines.

    Data: seed, step, attention_same_word, attention_same_topic, attention_different_topic. Theory: the best topic-wise
    weights β (same word) and α (same topic) of the setting, where the record has them; 1 is uniform attention.
    """
    names = [f"attention_{name}" for name in PAIRS]
    _need([n for n in names if n in record.history], "attention", "trained attention")
    with paper_figure(columns, 2.6 if columns != "single" else 4.6) as figure:
        left, right = figure.subplots(*((2, 1) if columns == "single" else (1, 2)))
        for number, (name, label) in enumerate(PAIRS.items()):
            band(left, record.history, f"attention_{name}", label, number)
        left.set_ylabel("mean attention")
        other = record.history["attention_different_topic"]
        other = other.where(other > 0)
        theory = (record.summary.get("attention") or {}).get("theory") or {}
        for number, name in enumerate(("same_word", "same_topic")):
            ratio = record.history[["step"]].assign(**{name: record.history[f"attention_{name}"] / other})
            band(right, ratio, name, PAIRS[name], number)
            value, color = theory.get(name), LINES[number][0]
            if value is None:
                continue
            y, height, arrow = value, "data", ""
            if value > 0:
                right.axhline(value, color=color, lw=0.9, ls=(0, (4, 2, 1, 2)))
            else:  # a logarithmic axis has no place for 0: an arrow at its end says it
                y, height, arrow = 0.0, "axes fraction", " ↓"
            right.annotate(
                f"theory {value:.3g}{arrow}",
                (1.0, y),
                (-2, 2),
                xycoords=("axes fraction", height),
                textcoords="offset points",
                ha="right",
                fontsize="small",
                color=color,
            )
        right.axhline(1.0, **REFERENCE | {"ls": ":"}, label="uniform attention")
        right.set_ylabel("relative to different topics")
        for axes in (left, right):
            plain_log(axes)
            by_step(axes, record.history)
            axes.legend()
    return record.history[["seed", "step", *names]].copy(), figure


# What a page can hold of the matrices that its sliders show: moments of one, and cells of all its moments together.
MOST_FRAMES, MOST_CELLS = 20, 200_000


def matrix(
    record: RunRecord,
    columns: Columns | None = None,
    *,
    name: str,
    step: int | None = None,
    most_cells: int = MOST_CELLS,
) -> Drawn:
    """Heat maps of W_V, E or logits of the first seed, topics in brackets.

    step: the last kept one up to it; unless given the end, and in two columns two moments before it as well. All share
    the colors of the last one. most_cells: of all moments that a page's slider shows of one matrix. Data: matrix
    [moment bin bin], step [moment]; topic, begin and end of every bracket, in bins.

    Raises:
        InputError: the run trained no such matrix.
    """
    found = run_matrices(record)
    if name not in found:
        known = ", ".join(kind for kind, of in MATRICES.items() if of in found) or "none of the heat maps"
        raise InputError(f"the run has no trained {NAMES[name]}", received=record.config.get("name"), expected=known)
    one = found[name]
    last = len(one.steps) - 1
    moments = [last] if columns == "single" or last < 2 else sorted({last // 3, 2 * last // 3, last})
    if step is not None:
        moments = [max(int(np.searchsorted(one.steps, step, side="right")) - 1, 0)]
    height = 3.2 if columns == "single" else 2.7 if len(moments) > 1 else 4.2
    with paper_figure(columns, height) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(moments)))
        limit = spread(one.frames[moments[-1]])
        for axes, moment in zip(panels, moments, strict=True):
            block_map(axes, one.frames[moment], one.topics, limit=limit, bar=moment == moments[-1])
            axes.set_xlabel(f"step {one.steps[moment]:,}", gid=STATE)
        figure.suptitle(NAMES[name], x=0.01, ha="left")
    if len(moments) == 1:
        # As many moments as there is room for, evenly spread, up to the one that is drawn.
        bins = min(one.frames.shape[1], MOST_BINS)
        count = max(1, min(moments[0] + 1, MOST_FRAMES, most_cells // bins**2))
        frames = np.unique(np.linspace(moments[0], 0, count).round()).astype(int)
        states = {f"{one.steps[i]:,}": one.frames[i] for i in frames}
        figure.cells = matrix_cells(states, limit, text="row {row}, column {column}: {value}", prefix="step ")
    return {
        "matrix": one.frames[moments],
        "step": one.steps[moments],
        "topic": np.array([b.topic for b in one.topics]),
        "begin": np.array([b.begin for b in one.topics]),
        "end": np.array([b.end for b in one.topics]),
    }, figure


MATRICES: Mapping[str, str] = {"values": "W_V", "gram": "E", "logits": "logits"}
KINDS: Mapping[str, Callable[..., Drawn]] = {
    "norms": norms,
    "losses": losses,
    "stages": stages,
    "attention": attention,
    **{kind: partial(matrix, name=name) for kind, name in MATRICES.items()},
}


def draw_run(record: RunRecord, kind: str, columns: Columns | None = None, **more: Any) -> Drawn:
    """The figure of one kind and its numbers.

    Raises:
        InputError: no such kind, or the run lacks what it would show.
    """
    if kind not in KINDS:
        raise InputError("unknown kind of plot", received=kind, expected="one of " + ", ".join(KINDS))
    return KINDS[kind](record, columns, **more)


def _need(found: object, kind: str, what: str) -> None:
    if not found:
        raise InputError(f"the run has no {kind} to draw", expected=what)
