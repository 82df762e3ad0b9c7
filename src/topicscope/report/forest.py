"""The figure that any claim has: every row as a point with its interval, beside theory and the paper."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topicscope.report.labels import MEASURED, PAPER, THEORY
from topicscope.report.reproduction_record import Row
from topicscope.report.style import REFERENCE, name_rows, paper_figure, plain, shared_legend, tidy

_ROW = 0.19
# A panel whose numbers span more than this many powers of ten is drawn on a logarithmic axis.
_DECADES = 3
# What stands beside a measured value: color, marker and the color inside it.
_BESIDE = {"theory": (THEORY, "D", "none"), "paper": (PAPER, "*", PAPER)}


def forest_figure(
    rows: Sequence[Row],
    *,
    title: str,
    group: Callable[[Row], object] = lambda row: row["criterion"],
    references: Mapping[Any, float] | None = None,
) -> Figure:
    """Measured ± error (dot), theory (diamond) and paper (star) of every row that has a number.

    A cross stands for a measured value whose criterion says no. group: rows that follow each other with the same answer
    share a panel and its axis. references: answer -> a value that this panel shows as a line, such as 0 for no effect.
    """
    shown = [row for row in rows if _finite(row.get("measured")) is not None]
    panels = [(answer, list(found)) for answer, found in groupby(shown, key=group)]
    if not panels:
        return note_figure(title, "No row has a number.")
    heights = [len(panel) + 1.9 for _, panel in panels]
    with paper_figure(None, 0.75 + _ROW * sum(heights)) as figure:
        grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, (answer, panel) in zip(grid, panels, strict=True):
            draw_rows(axes, panel)
            _scale(axes, panel)
            if references is not None and answer in references:
                axes.axvline(references[answer], **REFERENCE, zorder=1)
        figure.suptitle(plain(title), fontsize=9, x=0.01, ha="left")
        shared_legend(figure, 4)
    return figure


def _scale(axes: Axes, rows: Sequence[Row]) -> None:
    """A linear axis, or one with both ends marked where the numbers span many powers of ten."""
    numbers = [abs(n) for row in rows for name in ("measured", *_BESIDE) if (n := _finite(row.get(name)))]
    if numbers and max(numbers) / min(numbers) > 10**_DECADES:
        axes.set_xscale("symlog", linthresh=max(min(numbers), max(numbers) * 1e-6))
        axes.autoscale(axis="x")  # its margins, not those of a linear axis
        low, high = axes.get_xlim()
        ends = [t for t in (min(numbers), max(numbers)) if low <= t <= high]
        axes.set_xticks(ends, [f"{t:.3g}" for t in ends])
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.ticklabel_format(axis="x", useOffset=False)


def note_figure(title: str, text: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    with paper_figure(None, 1.0) as figure:
        figure.suptitle(plain(title), fontsize=9, x=0.01, ha="left")
        figure.text(0.01, 0.3, plain(text))
    return figure


def whisker(
    axes: Axes,
    x: float | int,
    y: float | int,
    *,
    across: tuple[float | int, float | int] = (0, 0),
    upright: float | int = 0,
    marker: str = "o",
    color: str = MEASURED,
    size: float = 5.0,
    label: str | None = None,
) -> None:
    """A point with its error: lengths to the left and right, or one length up and down."""
    errors = {"xerr": [[across[0]], [across[1]]]} if any(across) else {"yerr": upright} if upright else {}
    axes.errorbar(x, y, **errors, fmt=marker, color=color, ms=size, mew=1.2, capsize=2.5, lw=1.1, zorder=3, label=label)


def draw_rows(axes: Axes, rows: Sequence[Row]) -> None:
    """The points of rows, the first on top; every row has a number."""
    for place, row in enumerate(rows):
        value, error = _finite(row["measured"]), _finite(row.get("error")) or 0.0
        assert value is not None
        label, marker, size = "measured, 95% CI", "o", 4.0
        if row.get("holds") is False:
            label, marker, size = "measured, criterion not met", "x", 5.0
        whisker(axes, value, place, across=(error, error), marker=marker, size=size, label=label)
        for name, (color, marker, face) in _BESIDE.items():
            other = _finite(row.get(name))
            if other is not None:
                axes.plot(other, place, marker, color=color, ms=7, mfc=face, mew=1.0, label=name)
    names = [textwrap.shorten(row["quantity"], 88, placeholder="…") for row in rows]
    name_rows(axes, [plain(name) for name in names], size=6.5)
    tidy(axes)  # lines from the names to their points as well
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", labelsize=7)


def _finite(value: Any) -> float | None:
    """A number, None for what is missing or not finite."""
    return float(value) if value is not None and math.isfinite(value) else None
