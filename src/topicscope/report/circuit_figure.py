"""The layer × head map of a circuit's z, as a matplotlib `Figure` without pyplot."""

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from topicscope.errors import InputError
from topicscope.report.cells import is_dark, map_size, name_cells, title_map
from topicscope.report.heatmaps import at_threshold, threshold_label
from topicscope.report.style import STYLE, Columns, PaperFigure

_UNSURE = 4.0


def circuit_map(
    heads: pd.DataFrame,
    *,
    circuit: str,
    place: str,
    part: str,
    threshold: float,
    name: str,
    columns: Columns | None = None,
) -> Figure:
    """z of every head, within frequency bands where they are known. Purple below 0, orange above, grey within ±4.

    heads: `CircuitResult.heads()`. columns: as wide as one or two columns of a paper; small cells have no numbers.

    Raises:
        InputError: no such rows in `heads`, or another width.
    """
    where = (heads["circuit"] == circuit) & (heads["place"] == place) & (heads["part"] == part)
    chosen = at_threshold(heads[where], threshold)
    if chosen.empty:
        known = heads[["circuit", "place", "part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no circuits to draw", received=(circuit, place, part, threshold), expected=f"one of {known}")
    column = "z_banded" if bool(chosen["z_banded"].notna().any()) else "z"
    z = chosen.pivot_table(index="layer", columns="head", values=column, aggfunc="mean", dropna=False)
    values, layers, numbers = z.to_numpy(dtype=float), list(z.index), list(z.columns)
    annotated, letters, size = map_size((len(layers), len(numbers)), columns)
    limit = max(float(np.nanmax(np.abs(values), initial=0.0)), 2 * _UNSURE)
    norm = SymLogNorm(linthresh=_UNSURE, linscale=0.5, vmin=-limit, vmax=limit, base=10)
    with mpl.rc_context(STYLE):
        figure = PaperFigure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.patch.set(facecolor="#f2f2f2", edgecolor="#8a8a8a", hatch="////")
        shown = np.ma.masked_invalid(values)
        mesh = axes.pcolormesh(shown, norm=norm, cmap="PuOr_r", rasterized=not annotated, edgecolors="white", lw=0.3)
        axes.set(xlim=(0, len(numbers)), ylim=(len(layers), 0), xlabel="head", ylabel="layer")
        name_cells(axes, layers, numbers, annotated)
        bar = figure.colorbar(mesh, ax=axes, aspect=15, pad=0.02)
        marks = [m for m in (-100, -30, -10, -_UNSURE, 0, _UNSURE, 10, 30, 100) if abs(m) <= limit]
        bar.set_ticks(marks, labels=[f"{m:g}" for m in marks])
        bar.ax.minorticks_off()
        bar.ax.tick_params(labelsize=letters)
        bar.set_label("z (0 = no difference)", fontsize=letters)
        if annotated:
            for (row, head), value in np.ndenumerate(values):
                if math.isfinite(value):
                    text = f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
                    colour = "white" if is_dark(mesh.cmap(norm(value))) else "black"
                    axes.text(head + 0.5, row + 0.5, text, ha="center", va="center", fontsize=letters - 1, color=colour)
        banded = ", within frequency bands" if column == "z_banded" else ""
        title = f"{name}: {circuit} circuit, same-topic minus different-topic words, z{banded}"
        title_map(axes, f"{title} ({part}, {place}, θ = {threshold_label(threshold)})", size[0], columns)
    return figure
