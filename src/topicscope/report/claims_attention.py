"""Norms over steps, and attention by class of word pair, from saved runs."""

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topicscope.records import RunRecord
from topicscope.report.forest import MEASURED, PAPER, PAPER_STYLE, WIDTH, whisker
from topicscope.report.reproduction_record import Entry, ReproductionRecord, Row, training_words

# Name, label, colour, line style: Okabe-Ito colours, told apart by their lines as well.
_NORMS = (
    ("W_V_norm", "‖W_V‖", "#0072B2", "-"),
    ("W_K_norm", "‖W_K‖", "#D55E00", "--"),
    ("W_Q_norm", "‖W_Q‖", "#009E73", ":"),
)
_CLASSES = (
    ("same_word", "same word", "#0072B2", "-"),
    ("same_topic", "same topic", "#D55E00", "--"),
    ("different_topic", "different topic", "#009E73", ":"),
)
# Shorter runs were made for the first gradients and for stage one alone.
_SHORTEST = 100


def stages_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """‖W_V‖, ‖W_K‖ and ‖W_Q‖ over steps for every run that was long enough to show stages."""
    runs = [
        (entry, run)
        for entry, run in record.runs(claim)
        if run.summary["steps"] >= _SHORTEST and not (entry["recipe"].endswith("population") and entry["overrides"])
    ]
    if not runs:
        return None
    columns = min(2, len(runs))
    lines = -(-len(runs) // columns)
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 0.4 + 2.2 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes in panels[len(runs) :]:
            axes.set_axis_off()
        for axes, (entry, run) in zip(panels, runs, strict=False):
            _norms(axes, entry, run)
        legend: dict[str, Any] = {}
        for axes in panels:
            legend |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def _norms(axes: Axes, entry: Entry, run: RunRecord) -> None:
    history = run.history[run.history["step"] > 0]
    for name, label, color, style in _NORMS:
        _band(axes, history, name, label, color, style)
    stages = pd.DataFrame(run.summary["stages"])
    for name, label, style in (("k1", "stage 1 ends", ":"), ("k2", "stage 2 begins", "--")):
        # Without a second stage k2 is only the last step.
        if name == "k1" or bool(stages["stage_two_reached"].all()):
            axes.axvline(max(float(stages[name].mean()), 1.0), color="#555555", lw=0.9, ls=style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="Frobenius norm")
    axes.set_title(f"{entry['recipe']}: {training_words(run)}", fontsize=7.5, loc="left")
    _plain_grid(axes)


def _band(axes: Axes, history: pd.DataFrame, name: str, label: str, color: str, style: str) -> None:
    """The mean over seeds, and the band from the least to the largest."""
    by_step = history.groupby("step")[name].agg(["mean", "min", "max"])
    axes.plot(by_step.index, by_step["mean"], style, color=color, lw=1.4, label=label)
    axes.fill_between(by_step.index, by_step["min"], by_step["max"], color=color, alpha=0.2, lw=0)


def classes_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """Attention by class: our mean beside the paper's, then the run's way there."""
    groups = _class_rows(record.claims[claim]["rows"])
    runs = record.runs(claim)
    if not groups or not runs:
        return None
    columns = max(len(groups), len(runs))
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        panels = figure.subplots(2, columns, squeeze=False)
        for axes in (*panels[0][len(groups) :], *panels[1][len(runs) :]):
            axes.set_axis_off()
        for axes, (how, rows) in zip(panels[0], groups.items(), strict=False):
            _points(axes, rows, how)
        for axes, (entry, run) in zip(panels[1], runs, strict=False):
            for name, label, color, style in _CLASSES:
                _band(axes, run.history, f"attention_{name}", label, color, style)
            axes.set_title(f"{entry['recipe']}: {training_words(run)}", fontsize=7.5, loc="left")
            axes.set(xlabel="step", ylabel="mean attention", yscale="log")
            _plain_grid(axes)
        panels[1][0].legend(frameon=False, fontsize=7)
        panels[0][0].legend(frameon=False, fontsize=7)
    return figure


def _class_rows(rows: list[Row]) -> dict[str, dict[str, Row]]:
    """How the run was made -> class -> row, from rows that are called "same word, block W_V, step 500"."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        name, _, how = row["quantity"].partition(", ")
        if name in {label for _, label, *_ in _CLASSES} and how:
            found.setdefault(how, {})[name] = row
    return found


def _points(axes: Axes, rows: dict[str, Row], how: str) -> None:
    """Measured and printed means on a logarithmic axis: points, since bars need a zero to stand on."""
    for number, (_, label, *_) in enumerate(_CLASSES):
        row = rows.get(label)
        if row is None:
            continue
        for name, error, shift, color, marker in (
            ("measured", "error", -0.12, MEASURED, "o"),
            ("paper", "paper_error", 0.12, PAPER, "*"),
        ):
            if row[name] is not None:
                shown, half = name if number == 0 else None, row.get(error) or 0.0
                whisker(axes, number + shift, row[name], upright=half, marker=marker, color=color, label=shown)
    axes.set(yscale="log", xlim=(-0.5, len(_CLASSES) - 0.5), ylabel="mean attention")
    axes.set_xticks(range(len(_CLASSES)), [label.replace(" ", "\n") for _, label, *_ in _CLASSES])
    axes.set_title(how, fontsize=7.5, loc="left")
    _plain_grid(axes)


def _plain_grid(axes: Axes) -> None:
    axes.grid(color="#e3e3e3", lw=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)
