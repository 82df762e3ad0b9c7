"""Figures of a probe, as matplotlib `Figure` objects without pyplot, so that drawing changes no global state."""

import math
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from topicscope.errors import InputError
from topicscope.report.cells import is_dark, map_size, name_cells, title_map
from topicscope.report.style import DIVERGING, STYLE, WIDTHS, Columns, PaperFigure, check_columns, style

# Okabe-Ito colours, each with its own marker, so that no meaning hangs on colour alone.
_MEASURES = (
    ("attention_ratio", "all pairs", "#0072B2", "o"),
    ("attention_ratio_distinct", "distinct words", "#D55E00", "s"),
    ("attention_ratio_distance_matched", "distance-matched", "#009E73", "^"),
    ("attention_ratio_position_corrected", "position-corrected", "#CC79A7", "D"),
)


def ratio_column(table: pd.DataFrame) -> str:
    """The ratio that leads: the position-corrected one where it exists (causal parts), else `attention_ratio`."""
    corrected = "attention_ratio_position_corrected"
    return corrected if corrected in table and bool(table[corrected].notna().any()) else "attention_ratio"


def at_threshold(table: pd.DataFrame, threshold: float | None) -> pd.DataFrame:
    """Rows of one threshold; None and NaN mean the rows without one (topics from a labelled word list)."""
    if threshold is None or math.isnan(threshold):
        return table[table["threshold"].isna()]
    return table[np.isclose(table["threshold"], threshold, rtol=1e-9, atol=0.0)]


def threshold_label(threshold: float | None) -> str:
    """A threshold as people read it; "word list" where topics came from one."""
    return "word list" if threshold is None or math.isnan(threshold) else f"{threshold:g}"


def head_map(
    heads: pd.DataFrame,
    *,
    part: str,
    threshold: float | None,
    title: str | None = None,
    columns: Columns | None = None,
) -> Figure:
    """Layer × head map of the same-topic / different-topic attention ratio of one part and threshold.

    heads: `ProbeResult.heads()`: one row per part, threshold, layer, head (both from 0).
    Colour: log ratio, symmetric about 1, saturating at its 98th percentile (at least 1.1, at most 16; the colour bar
    has arrows where values lie beyond). Brackets: 1 lies within 1.96 standard errors. Hatched: no ratio.
    Causal parts show the position-corrected ratio. columns: as wide as one or two columns of a paper, instead of as
    wide as the numbers in the cells need; cells too small for numbers have none.

    Raises:
        InputError: no such part or threshold in `heads`, or another width.
    """
    chosen = at_threshold(heads[heads["part"] == part], threshold)
    if chosen.empty:
        known = heads[["part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no heads to draw", received=(part, threshold), expected=f"one of {known}")
    column = ratio_column(chosen)
    shape = (int(chosen["layer"].max()) + 1, int(chosen["head"].max()) + 1)
    values, errors = np.full(shape, math.nan), np.full(shape, math.nan)
    cells = (chosen["layer"].to_numpy(dtype=int), chosen["head"].to_numpy(dtype=int))
    values[cells] = chosen[column].to_numpy(dtype=float)
    errors[cells] = chosen[f"{column}_se"].to_numpy(dtype=float)

    annotated, letters, size = map_size(shape, columns)
    with mpl.rc_context(STYLE):
        figure = PaperFigure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        _draw_heads(figure, axes, values, errors, annotated, letters)
        name = "position-corrected ratio" if column != "attention_ratio" else "ratio"
        text = title if title is not None else "Same-topic / different-topic attention"
        title_map(axes, f"{text} ({part}, θ = {threshold_label(threshold)}, {name})", size[0], columns)
    return figure


def _draw_heads(
    figure: Figure, axes: Axes, values: np.ndarray, errors: np.ndarray, annotated: bool, letters: float
) -> None:
    known = values[np.isfinite(values) & (values > 0)]
    strongest = float(np.quantile(np.abs(np.log(known)), 0.98)) if known.size else 0.0
    limit = math.exp(min(max(strongest, math.log(1.1)), math.log(16.0)))
    norm = LogNorm(1 / limit, limit)
    axes.patch.set(facecolor="#f2f2f2", edgecolor="#8a8a8a", hatch="////")
    shown = np.ma.masked_invalid(np.clip(values, 1 / limit, limit))
    rows, columns = values.shape
    # `pcolormesh` draws edges where `imshow` blurs them; rasterised, as 48 × 64 vector squares make a heavy file.
    mesh = axes.pcolormesh(shown, norm=norm, cmap=DIVERGING, rasterized=not annotated, edgecolors="white", lw=0.3)
    axes.set(xlim=(0, columns), ylim=(rows, 0), xlabel="head", ylabel="layer")
    name_cells(axes, range(rows), range(columns), annotated)
    above, below = bool((known > limit * (1 + 1e-9)).any()), bool((values < (1 - 1e-9) / limit).any())
    extend: Literal["both", "max", "min", "neither"] = (
        "both" if above and below else "max" if above else "min" if below else "neither"
    )
    bar = figure.colorbar(mesh, ax=axes, extend=extend, aspect=15, pad=0.02)
    # Marks close to 1 would run into each other on a bar that reaches far.
    far, near = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16), (1 / 2, 2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
    marks = far if limit > 2.5 else near
    ticks = tuple(float(t) for t in marks if 1 / limit <= t <= limit)
    bar.set_ticks(ticks, labels=[f"{t:.3g}" for t in ticks])
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=letters)
    bar.set_label("1 = no difference (log scale)", fontsize=letters)
    if not annotated:
        return
    for (row, column), value in np.ndenumerate(values):
        if not math.isfinite(value):
            continue
        number = f"{value:.2f}" if value < 99.5 else f"{value:.0f}"
        unsure = not abs(value - 1) > 1.96 * errors[row, column]
        dark = is_dark(mesh.cmap(norm(float(np.clip(value, 1 / limit, limit)))))
        axes.text(
            column + 0.5,
            row + 0.5,
            f"({number})" if unsure else number,
            ha="center",
            va="center",
            fontsize=letters,
            color="white" if dark else "#1a1a1a",
        )


def ratio_figure(table: pd.DataFrame, *, columns: Columns | None = None) -> Figure:
    """Attention ratios by threshold with 95 % intervals, the random-weights band and the paper's BERT row.

    table: `ProbeResult.table()`; one panel per part with measured rows. Intervals hold the spread over documents and
    over topic seeds. Band: 95 % interval of the mean over random initialisations (causal parts: of the
    position-corrected ratio). The paper's BERT is drawn in encoder panels at thresholds that were measured too.

    Raises:
        InputError: no measured row.
    """
    measured = table[table["source"] == "measured"]
    if measured.empty:
        raise InputError("no measured rows to draw", received=f"{len(table)} rows", expected='source "measured"')
    parts = list(dict.fromkeys(measured["part"]))
    paper = table[(table["source"] == "paper") & (table["model"] == "BERT")]
    with mpl.rc_context(STYLE if columns is None else style(columns)):
        width = max(6.4, 3.4 * len(parts)) if check_columns(columns) is None else WIDTHS[columns or "double"]
        figure = PaperFigure(figsize=(width, 4.0 if columns is None else 3.0), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(parts), sharey=True))
        legend: dict[str, Any] = {}
        for axes, part in zip(panels, parts, strict=True):
            rows = measured[measured["part"] == part]
            _draw_ratios(axes, rows, paper if part == "encoder" else paper.iloc[:0])
            axes.set_title(part, fontsize=10 if columns is None else None, loc="center")
            legend |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        panels[0].set_ylabel("same-topic / different-topic attention")
        figure.legend(
            legend.values(),
            legend.keys(),
            loc="outside lower center",
            ncols=3 if width > 5 else 2,
            fontsize=8 if width > 5 else 6.5,
            frameon=False,
        )
    return figure


def _draw_ratios(axes: Axes, rows: pd.DataFrame, paper: pd.DataFrame) -> None:
    measures = [m for m in _MEASURES if m[0] in rows and bool(rows[m[0]].notna().any())]
    control = f"control_{ratio_column(rows)}"
    axes.axhline(1.0, color="#555555", lw=0.8, ls="--", label="no difference")
    for place, (_, row) in enumerate(rows.iterrows()):
        low, high, mean = (float(row.get(f"{control}{end}", math.nan)) for end in ("_low", "_high", ""))
        if math.isfinite(low):
            axes.fill_between([place - 0.42, place + 0.42], low, high, color="#999999", alpha=0.45, lw=0)
        if math.isfinite(mean):
            axes.hlines(mean, place - 0.42, place + 0.42, color="#222222", lw=1.6, label="random weights, 95 % band")
        # iloc: at most one paper row for a threshold.
        for value in at_threshold(paper, row["threshold"])["attention_ratio"].iloc[:1]:
            axes.plot(place + 0.36, value, "*", color="#000000", ms=9, ls="none", label="BERT in the paper")
    for number, (name, label, color, marker) in enumerate(measures):
        places = np.arange(len(rows)) + (number - (len(measures) - 1) / 2) * 0.18
        values, lows, highs = (rows[f"{name}{end}"].to_numpy(dtype=float) for end in ("", "_low", "_high"))
        half = np.nan_to_num(np.stack([values - lows, highs - values]))
        axes.errorbar(places, values, yerr=half, fmt=marker, color=color, ms=5, capsize=3, lw=1.3, label=label)
    labels = [threshold_label(float(t)) for t in rows["threshold"]]
    axes.set_xticks(range(len(rows)), labels)
    axes.set_xlim(-0.55, len(rows) - 0.45)
    if bool(rows["threshold"].notna().any()):
        axes.set_xlabel(
            "threshold θ (share of the vocabulary kept per topic)", fontsize=min(8.0, mpl.rcParams["font.size"])
        )
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
