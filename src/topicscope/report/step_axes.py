"""Axes of training steps: logarithmic with step 0 on them, the seeds as a band, the stages as lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from topicscope.records import RunRecord
from topicscope.report.style import LINES, tidy

# Where step 0 stands on a logarithmic axis.
ORIGIN = 0.5


def band(axes: Axes, history: pd.DataFrame, name: Any, label: str, number: int) -> None:
    """The mean over seeds, and the band from the least to the largest."""
    color, line, _ = LINES[number % len(LINES)]
    means = history.groupby("step")[name].agg(["mean", "min", "max"])
    where = place(means.index.to_numpy())
    axes.plot(where, means["mean"], ls=line, color=color, lw=1.3, label=label)
    axes.fill_between(where, means["min"], means["max"], color=color, alpha=0.2, lw=0)


def place(steps: Any) -> np.ndarray:
    """Where steps stand on a logarithmic axis: step 0, which has no logarithm, half a step before 1."""
    return np.asarray(np.maximum(np.asarray(steps, dtype=np.float64), ORIGIN))


def ticks(last: int | float) -> tuple[list[float], list[str]]:
    """Places and labels of a logarithmic axis of steps: 0 and the powers of ten."""
    powers = [10**k for k in range(int(np.log10(max(last, 1))) + 1)]
    return [ORIGIN, *map(float, powers)], ["0", *(f"{power:,}" for power in powers)]


def by_step(axes: Axes, history: pd.DataFrame) -> None:
    """A logarithmic axis of steps that shows step 0 as well."""
    axes.set_xscale("log")
    places, labels = ticks(float(history["step"].max()))
    axes.set_xticks(places, labels)
    axes.minorticks_off()
    axes.set_xlabel("step")
    tidy(axes)


def mark_stages(axes: Axes, record: RunRecord) -> None:
    """Lines at the end of stage one and the begin of stage two, means over seeds, where the record has stages."""
    found: Sequence[Mapping[str, Any]] = record.summary.get("stages") or []
    if not found:
        return
    for name, label, line in (("k1", "stage 1 ends", ":"), ("k2", "stage 2 begins", "--")):
        # Without a second stage k2 is only the last step.
        if name == "k1" or all(one["stage_two_reached"] for one in found):
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
