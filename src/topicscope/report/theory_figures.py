"""Figures of the exact theory, from plain arrays; no global matplotlib state is touched."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

from topicscope.report.labels import THEORY
from topicscope.report.style import LINES, paper_figure, tidy


def landscape_figure(
    alphas: np.ndarray, betas: np.ndarray, loss: np.ndarray, *, optimum: tuple[float, float] | None, title: str
) -> Figure:
    """Contours of a loss [alpha, beta] over the attention weights, its minimum marked.

    optimum: (α, β), drawn as a star where it lies inside the grid.
    """
    with paper_figure(None, 5.0) as figure:
        axes = figure.subplots()
        filled = draw_landscape(axes, alphas, betas, loss)
        axes.contour(betas, alphas, loss, levels=filled.levels, colors="white", linewidths=0.3)
        bar = figure.colorbar(filled, ax=axes, label="squared loss")
        bar.ax.ticklabel_format(axis="y", useOffset=False)
        if optimum is not None and alphas[0] <= optimum[0] <= alphas[-1] and betas[0] <= optimum[1] <= betas[-1]:
            mark_optimum(axes, *optimum)
        axes.set(xlabel="β, weight on the same word", ylabel="α, weight on the same topic", title=title)
    return figure


def draw_landscape(axes: Axes, alphas: np.ndarray, betas: np.ndarray, loss: np.ndarray) -> ContourSet:
    """Filled contours of a loss [alpha, beta], dark where it is low."""
    # Levels crowd near the minimum: a landscape is flat there and steep at its edge.
    low, high = float(loss.min()), float(loss.max())
    levels = low + max(high - low, 1e-12) * np.linspace(0, 1, 25) ** 2
    norm = BoundaryNorm(levels.tolist(), 256)
    filled = axes.contourf(betas, alphas, loss, levels=levels, cmap="viridis", norm=norm)
    filled.set_rasterized(True)
    return filled


def mark_optimum(axes: Axes, alpha: float, beta: float) -> None:
    """A star at the minimum of a landscape."""
    axes.plot(beta, alpha, "*", color=THEORY, ms=10, mec="white", mew=0.7, clip_on=False, zorder=4)


def curves_figure(
    x: np.ndarray, curves: Mapping[str, np.ndarray], *, x_label: str, y_label: str, title: str, log_x: bool = False
) -> Figure:
    """Several named curves over one axis, told apart by color and by line style."""
    with paper_figure(None, 4.2) as figure:
        axes = figure.subplots()
        _draw(axes, x, curves)
        axes.set(xscale="log" if log_x else "linear", xlabel=x_label, ylabel=y_label, title=title)
    return figure


def stages_figure(
    t: np.ndarray, entries: Mapping[str, np.ndarray], loss: np.ndarray, *, growth_start: float, title: str
) -> Figure:
    """Stage one above (entries of the value matrix) and below (loss), with the time in which attention grows e-fold.

    t: times on a logarithmic axis; growth_start: 1/ρ, drawn where it lies inside the axis.
    """
    with paper_figure(None, 6.0) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        _draw(upper, t, entries)
        lower.plot(t, loss, color="black")
        tidy(lower)
        if t[0] <= growth_start <= t[-1]:
            for axes in (upper, lower):
                axes.axvline(growth_start, color="grey", linewidth=1)
            place = (growth_start, float(loss.max()))
            lower.annotate("attention grows e-fold", place, ha="right", va="top", rotation=90)
        upper.set(xscale="log", ylabel="entry of the value matrix", title=title)
        lower.set(xscale="log", ylabel="squared loss", xlabel="time (learning rate × steps)")
    return figure


def _draw(axes: Axes, x: np.ndarray, curves: Mapping[str, np.ndarray]) -> None:
    for number, (name, values) in enumerate(curves.items()):
        color, line, _ = LINES[number % len(LINES)]
        axes.plot(x, values, ls=line, color=color, label=name)
    axes.legend()
    tidy(axes)
