"""Figures of the exact theory, from plain arrays; no global matplotlib state is touched."""

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure


def landscape_figure(
    alphas: np.ndarray, betas: np.ndarray, loss: np.ndarray, *, optimum: tuple[float, float] | None, title: str
) -> Figure:
    """Contours of a loss [alpha, beta] over the attention weights, its minimum marked.

    optimum: (α, β), drawn as a star where it lies inside the grid.
    """
    figure = Figure(figsize=(6.4, 5.0), layout="constrained")
    axes = figure.subplots()
    # Levels crowd near the minimum: a landscape is flat there and steep at its edge.
    low, high = float(loss.min()), float(loss.max())
    levels = low + max(high - low, 1e-12) * np.linspace(0, 1, 25) ** 2
    norm = BoundaryNorm(levels.tolist(), 256)
    filled = axes.contourf(betas, alphas, loss, levels=levels, cmap="viridis_r", norm=norm)
    axes.contour(betas, alphas, loss, levels=levels, colors="white", linewidths=0.3)
    bar = figure.colorbar(filled, ax=axes)
    bar.set_label("squared loss")
    bar.ax.ticklabel_format(axis="y", useOffset=False)
    if optimum is not None and alphas[0] <= optimum[0] <= alphas[-1] and betas[0] <= optimum[1] <= betas[-1]:
        axes.plot(optimum[1], optimum[0], "*", color="#D55E00", markersize=14, markeredgecolor="white", clip_on=False)
    axes.set_xlabel("β, weight on the same word")
    axes.set_ylabel("α, weight on the same topic")
    axes.set_title(title, fontsize=9)
    return figure


def curves_figure(
    x: np.ndarray, curves: Mapping[str, np.ndarray], *, x_label: str, y_label: str, title: str, log_x: bool = False
) -> Figure:
    """Several named curves over one axis, told apart by colour and by line style."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
    styles = ("-", "--", "-.", ":")
    for index, (name, values) in enumerate(curves.items()):
        axes.plot(x, values, styles[index % len(styles)], color=colours[index % len(colours)], label=name)
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def stages_figure(
    t: np.ndarray, entries: Mapping[str, np.ndarray], loss: np.ndarray, *, growth_start: float, title: str
) -> Figure:
    """Stage one above (entries of the value matrix) and below (loss), with the time in which attention
    grows e-fold.

    t: times on a logarithmic axis; growth_start: 1/ρ, drawn where it lies inside the axis.
    """
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for (name, values), colour, style in zip(
        entries.items(), ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), ("-", "--", "-.", ":"), strict=False
    ):
        upper.plot(t, values, style, color=colour, label=name)
    lower.plot(t, loss, color="black")
    for axes in (upper, lower):
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
        if t[0] <= growth_start <= t[-1]:
            axes.axvline(growth_start, color="grey", linewidth=1)
    if t[0] <= growth_start <= t[-1]:
        lower.annotate("attention grows e-fold", (growth_start, float(loss.max())), ha="right", va="top", rotation=90)
    upper.set_ylabel("entry of the value matrix")
    upper.legend(frameon=False)
    lower.set_ylabel("squared loss")
    lower.set_xlabel("time (learning rate × steps)")
    upper.set_title(title, fontsize=10)
    return figure
