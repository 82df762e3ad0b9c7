"""How topic structure appears while a model trains: curves over steps, and the page of a series of checkpoints."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.ticker import FuncFormatter

from topicscope.errors import InputError
from topicscope.report.labels import ORANGE, RANDOM, YELLOW
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.style import REFERENCE, Columns, PaperFigure, paper_figure, show_values
from topicscope.report.tables import MISSING, Table, number, with_error

_Z, _NULL = 4.0, 1.96
_TITLES = {
    "embeddings": "embeddings, z (grey: shuffled topics)",
    "ov": "OV circuits, z (grey: shuffled topics)",
    "attention": "attention, same-topic / different-topic",
}
_STYLES = (("-", "solid"), ("--", "dashed"), (":", "dotted"))


def emergence(
    layers: pd.DataFrame,
    embeddings: pd.DataFrame,
    onsets: Sequence[Mapping[str, Any]],
    *,
    name: str,
    columns: Columns | None = None,
) -> tuple[pd.DataFrame, PaperFigure]:
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
        colors = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, 0.88, max(len(numbers), 1))))
        norm = BoundaryNorm(np.arange(len(numbers) + 1) - 0.5, max(len(numbers), 2))
        for axes, quantity in zip(panels, quantities, strict=True):
            rows = data[data["quantity"] == quantity]
            for _, curve in rows.groupby(["part", "layer"], dropna=False):
                part, layer = curve["part"].iloc[0], curve["layer"].iloc[0]
                color = colors(numbers.index(int(layer))) if layer in numbers else "#444444"
                style = _STYLES[parts.index(part) % 3][0] if part in parts else "-"
                axes.plot(curve["step"], curve["value"], style, marker="o", ms=2.5, lw=1.2, color=color)
                where = "" if pd.isna(layer) else f"layer {layer:.0f}, "
                texts = [f"{where}step {at:,.0f}: {y:.4g}" for at, y in zip(curve["step"], curve["value"], strict=True)]
                show_values(axes, curve["step"], curve["value"], texts)
                axes.fill_between(curve["step"], curve["low"], curve["high"], color=color, alpha=0.13, lw=0)
            # What no structure looks like.
            if quantity == "attention":
                axes.axhline(1, **REFERENCE, zorder=0)
            else:
                axes.axhspan(-_NULL, _NULL, color=RANDOM, alpha=0.25, lw=0, zorder=0)
                axes.axhline(_Z, **REFERENCE | {"ls": ":"}, zorder=0)
            _onset(axes, [onset for onset in onsets if onset["quantity"] == quantity], float(data["step"].max()))
            axes.set_title(_TITLES[quantity])
            axes.set_xscale("symlog", linthresh=1, linscale=0.3)
            axes.set_xlim(0, max(float(data["step"].max()) * 1.08, 1.0))
            axes.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel("training step (logarithmic from 1)")
        panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        if numbers:
            bar = figure.colorbar(ScalarMappable(norm, colors), ax=list(panels), aspect=30, pad=0.02)
            shown = range(0, len(numbers), max(1, math.ceil(len(numbers) / 12)))
            bar.set_ticks(list(shown), labels=[str(numbers[i]) for i in shown])
            bar.ax.minorticks_off()
            lines = ", ".join(f"{part} {_STYLES[i % 3][1]}" for i, part in enumerate(parts))
            bar.set_label("layer" if len(parts) < 2 else f"layer ({lines})")
        figure.suptitle(f"{name}: topic structure while it trains", x=0.01, ha="left", parse_math=False)
    return data, figure


def _curves(layers: pd.DataFrame, embeddings: pd.DataFrame) -> pd.DataFrame:
    frames = []
    if len(embeddings):
        rows = embeddings[embeddings["kind"] == "cosine"]
        frames.append(_curve("embeddings", rows, rows["z_banded"].fillna(rows["z"])))
    if "ov_z" in layers:
        frames.append(_curve("ov", layers, layers["ov_z_banded"].fillna(layers["ov_z"])))
    if "attention_ratio" in layers:
        value, error = layers["attention_ratio"], layers["attention_ratio_se"]
        if "attention_ratio_position_corrected" in layers:
            value = layers["attention_ratio_position_corrected"].fillna(value)
            error = layers["attention_ratio_position_corrected_se"].fillna(error)
        frames.append(_curve("attention", layers, value, error))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _curve(quantity: str, rows: pd.DataFrame, value: pd.Series, error: pd.Series | float = 1.0) -> pd.DataFrame:
    half = 1.96 * error
    found = pd.DataFrame({"quantity": quantity, "step": rows["step"], "value": value})
    found["low"], found["high"] = value - half, value + half
    found["part"] = rows.get("part")
    found["layer"] = rows["layer"].astype(float) if "layer" in rows else math.nan
    # What was not measured here: the attention of a layer, where only that of a whole part is known.
    return found.dropna(subset=["value"])[["quantity", "part", "layer", "step", "value", "low", "high"]]


def _onset(axes: Axes, onsets: Sequence[Mapping[str, Any]], last: float) -> None:
    known = [onset for onset in onsets if math.isfinite(onset["step"])]
    if not known:
        axes.text(0.01, 0.93, "no onset yet", transform=axes.transAxes, va="top", color=ORANGE)
        return
    first = min(known, key=lambda onset: onset["step"])
    axes.axvspan(first["low"], min(first["high"], last), color=YELLOW, alpha=0.2, lw=0, zorder=0)
    axes.axvline(first["step"], color=ORANGE, lw=1, zorder=1)
    where = "" if first["layer"] is None else f", layer {first['layer']}"
    high = f"{first['high']:,.0f}" if math.isfinite(first["high"]) else "…"
    text = f" onset {first['step']:,.0f} [{first['low']:,.0f}, {high}]{where}"
    axes.text(0.01, 0.93, text, transform=axes.transAxes, va="top", color=ORANGE)


# ---- the page of a series

_ALT = (
    "Over training steps: z of the embeddings, z of the OV circuit of each layer, and attention to words of the same "
    "topic over attention to words of other topics, with 95% CIs; the shaded band is the interval of the onset."
)


def render_series(record: Mapping[str, Any], rows: pd.DataFrame, figure: PaperFigure | None) -> str:
    """The page.

    record: the document of series.json; rows: its table; figure: the curves, None where nothing was measured.
    """
    skipped = [c for c in record["checkpoints"] if c["status"] == "skipped"]
    missing = [f"{c['name']} was skipped: {str(c['reason']).splitlines()[0]}" for c in skipped]
    if record["counts"]["waiting"]:
        missing.append(
            f"{record['counts']['waiting']} checkpoints were not probed yet; the same command with --resume goes on."
        )
    return render_page(
        "series.html.j2",
        name=record["name"],
        verdict=record["verdict"],
        counts=record["counts"],
        checkpoints=len(record["checkpoints"]),
        missing=missing,
        charts=[] if figure is None else [Chart.of(figure, "curves", "Topic structure by training step", _ALT)],
        steps=_by_checkpoint(rows),
        layers=_by_layer(rows),
        command=record["command"],
        downloads=downloads({"series.csv": rows.to_csv(index=False)}),
    )


def _by_checkpoint(rows: pd.DataFrame) -> Table:
    """Embeddings and the attention of every part."""
    found = []
    for (step, name), of in rows.groupby(["step", "checkpoint"], sort=False):
        (embeddings,) = of[of["quantity"] == "embeddings"].to_dict(orient="records") or [{}]
        for attention in of[of["quantity"] == "attention"].to_dict(orient="records"):
            cells = [
                number(embeddings.get(column)) for column in ("same", "different", "difference", "ratio", "z_banded")
            ]
            cells += [str(attention["part"]), with_error(attention, "ratio"), number(attention.get("z_banded"))]
            found.append([str(name), f"{step:,}", *cells, str(attention["verdict"])])
    columns = ["checkpoint", "step", "S", "D", "S - D", "S / D", "z", "part", "attention", "z", "verdict"]
    note = (
        "S, D: mean cosine of the embeddings of words of one topic, and of two. Attention: same topic over different "
        "topics, ± standard error, position-corrected where the part is causal. z: topics shuffled among words of like "
        "frequency."
    )
    return Table("Checkpoints", columns, found, note)


def _by_layer(rows: pd.DataFrame) -> Table:
    """z of every layer's OV circuit."""
    ov = rows[rows["quantity"] == "ov"]
    layers = ov[["part", "layer"]].drop_duplicates().to_records(index=False).tolist()
    found = []
    for (step, name), of in ov.groupby(["step", "checkpoint"], sort=False):
        values = {(row["part"], row["layer"]): number(row.get("z_banded")) for row in of.to_dict(orient="records")}
        found.append([str(name), f"{step:,}", *(values.get(layer, MISSING) for layer in layers)])
    several = len({part for part, _ in layers}) > 1
    columns = [f"{part} {layer:.0f}" if several else f"layer {layer:.0f}" for part, layer in layers]
    note = "z of S - D of the OV circuit W_O W_V, from embeddings to predictions, summed over the heads of a layer."
    return Table("OV circuits", ["checkpoint", "step", *columns], found, note)
