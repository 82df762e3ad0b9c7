"""How topic structure appears while a model trains: curves over steps, as a matplotlib `Figure` without pyplot."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from topicscope.errors import InputError
from topicscope.report.style import Columns, paper_figure, show_values

_Z, _NULL = 4.0, 1.96
_TITLES = {
    "embeddings": "embeddings, z (grey: shuffled topics)",
    "ov": "OV circuits, z (grey: shuffled topics)",
    "attention": "attention, same-topic / different-topic",
}
_COLOUR = "#444444"


def emergence(
    layers: pd.DataFrame,
    embeddings: pd.DataFrame,
    onsets: Sequence[Mapping[str, Any]],
    *,
    name: str,
    columns: Columns | None = None,
) -> tuple[pd.DataFrame, Figure]:
    """What is drawn, and the figure: one panel each for embeddings, OV circuits and attention, a curve for each layer.

    layers, embeddings: as in `MonitorHistory`. onsets: quantity, part, layer, step, low, high of every curve; of each
    quantity the earliest is drawn, its interval shaded.
    The data: quantity, part, layer, step, value, low, high. z has a standard error of 1, attention its clustered one
    (in causal parts the ratio is the position-corrected one); low and high are 95% limits.

    Raises:
        InputError: nothing was measured, or an unknown width.
    """
    data = _curves(layers, embeddings)
    if data.empty:
        raise InputError("nothing to draw", received="a history without a measurement")
    quantities = [quantity for quantity in _TITLES if quantity in set(data["quantity"])]
    numbers = sorted({int(layer) for layer in data["layer"].dropna()})
    parts = list(dict.fromkeys(data["part"].dropna()))
    with paper_figure(columns, 1.75 * len(quantities) + 0.6) as figure:
        panels = np.atleast_1d(figure.subplots(len(quantities), 1, sharex=True))
        # Without the lightest yellow, which does not show on white.
        colours = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, 0.88, max(len(numbers), 1))))
        norm = BoundaryNorm(np.arange(len(numbers) + 1) - 0.5, max(len(numbers), 2))
        for axes, quantity in zip(panels, quantities, strict=True):
            rows = data[data["quantity"] == quantity]
            for _, curve in rows.groupby(["part", "layer"], dropna=False):
                part, layer = curve["part"].iloc[0], curve["layer"].iloc[0]
                colour = colours(numbers.index(int(layer))) if layer in numbers else _COLOUR
                style = ("-", "--", ":")[parts.index(part) % 3] if part in parts else "-"
                axes.plot(curve["step"], curve["value"], style, marker="o", ms=2.5, lw=1.2, color=colour)
                where = "" if pd.isna(layer) else f"layer {layer:.0f}, "
                texts = [f"{where}step {at:,.0f}: {y:.4g}" for at, y in zip(curve["step"], curve["value"], strict=True)]
                show_values(axes, curve["step"], curve["value"], texts)
                axes.fill_between(curve["step"], curve["low"], curve["high"], color=colour, alpha=0.13, lw=0)
            _reference(axes, quantity)
            _onset(axes, [onset for onset in onsets if onset["quantity"] == quantity], float(data["step"].max()))
            axes.set_title(_TITLES[quantity])
            axes.set_xscale("symlog", linthresh=1, linscale=0.3)
            axes.set_xlim(0, max(float(data["step"].max()) * 1.08, 1.0))
            axes.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel("training step (logarithmic from 1)")
        panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        if numbers:
            bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(panels), aspect=30, pad=0.02)
            shown = range(0, len(numbers), max(1, math.ceil(len(numbers) / 12)))
            bar.set_ticks(list(shown), labels=[str(numbers[i]) for i in shown])
            bar.ax.minorticks_off()
            lines = ", ".join(f"{p} {('solid', 'dashed', 'dotted')[i % 3]}" for i, p in enumerate(parts))
            bar.set_label("layer" if len(parts) < 2 else f"layer ({lines})")
        figure.suptitle(f"{name}: topic structure while it trains", x=0.01, ha="left", parse_math=False)
    return data, figure


def _curves(layers: pd.DataFrame, embeddings: pd.DataFrame) -> pd.DataFrame:
    frames = []
    if len(embeddings):
        rows = embeddings[embeddings["kind"] == "cosine"]
        frames.append(_curve("embeddings", rows, rows["z_banded"].fillna(rows["z"]), None))
    if "ov_z" in layers:
        frames.append(_curve("ov", layers, layers["ov_z_banded"].fillna(layers["ov_z"]), None))
    if "attention_ratio" in layers:
        value, error = layers["attention_ratio"], layers["attention_ratio_se"]
        if "attention_ratio_position_corrected" in layers:
            value = layers["attention_ratio_position_corrected"].fillna(value)
            error = layers["attention_ratio_position_corrected_se"].fillna(error)
        frames.append(_curve("attention", layers, value, error))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _curve(quantity: str, rows: pd.DataFrame, value: pd.Series, error: pd.Series | None) -> pd.DataFrame:
    half = 1.96 * (1.0 if error is None else error)
    found = pd.DataFrame({"quantity": quantity, "step": rows["step"], "value": value})
    found["low"], found["high"] = value - half, value + half
    found["part"] = rows.get("part")
    found["layer"] = rows["layer"].astype(float) if "layer" in rows else math.nan
    # What was not measured here: the attention of a layer, where only that of a whole part is known.
    return found.dropna(subset=["value"])[["quantity", "part", "layer", "step", "value", "low", "high"]]


def _reference(axes: Any, quantity: str) -> None:
    """What no structure looks like."""
    if quantity == "attention":
        axes.axhline(1, color="#999999", lw=0.8, zorder=0)
        return
    axes.axhspan(-_NULL, _NULL, color="#dddddd", alpha=0.6, lw=0, zorder=0)
    axes.axhline(_Z, color="#999999", lw=0.8, ls=":", zorder=0)


def _onset(axes: Any, onsets: Sequence[Mapping[str, Any]], last: float) -> None:
    known = [onset for onset in onsets if math.isfinite(onset["step"])]
    if not known:
        axes.text(0.01, 0.93, "no onset yet", transform=axes.transAxes, va="top", color="#b2182b")
        return
    first = min(known, key=lambda onset: onset["step"])
    axes.axvspan(first["low"], min(first["high"], last), color="#fdb863", alpha=0.25, lw=0, zorder=0)
    axes.axvline(first["step"], color="#b35806", lw=1, zorder=1)
    where = "" if first["layer"] is None else f", layer {first['layer']}"
    high = f"{first['high']:,.0f}" if math.isfinite(first["high"]) else "…"
    text = f" onset {first['step']:,.0f} [{first['low']:,.0f}, {high}]{where}"
    axes.text(0.01, 0.93, text, transform=axes.transAxes, va="top", color="#b35806")
