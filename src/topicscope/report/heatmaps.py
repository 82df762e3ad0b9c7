"""Figures of a probe, as matplotlib `Figure` objects without pyplot, so that drawing changes no global state.

Heat maps of matrices over words in the order of topics, with a bracket along two sides for every topic.

What every layer × head map does alike: its size, the names of its cells, the letters on them, and its title.

The layer × head map of a circuit's z, as a matplotlib `Figure` without pyplot.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from topicscope.errors import InputError
from topicscope.report.style import DIVERGING, STYLE, WIDTHS, Columns, PaperFigure, check_columns, style

# Beyond this many labels along a side they would run into each other.
_MOST_LABELS = 12


@dataclass(frozen=True)
class Bracket:
    """One topic along a side: its number, and where it begins and ends, in cells from the first cell's outer edge."""

    topic: int
    begin: float
    end: float


def brackets(topic: np.ndarray, edge: np.ndarray) -> list[Bracket]:
    """Where each run of one topic lies along a binned side.

    topic [token]: topic of every token in the order of the matrix, -1 for none; edge [bin + 1]: bounds of the bins, in
    tokens. A topic that begins inside a bin begins at the same share of that cell.
    """
    changes = np.flatnonzero(np.diff(topic)) + 1
    places = np.concatenate([[0], changes, [len(topic)]])
    cells = np.interp(places, edge, np.arange(len(edge)))
    found = zip(topic[places[:-1]].tolist(), cells[:-1].tolist(), cells[1:].tolist(), strict=True)
    return [Bracket(*one) for one in found if one[0] >= 0]


def spread(matrix: np.ndarray, quantile: float = 0.98) -> float:
    """Where colours saturate: a high quantile of |entry| off the diagonal, which a strong diagonal does not move."""
    off = matrix[~np.eye(len(matrix), dtype=bool)] if matrix.shape[0] == matrix.shape[1] else matrix.ravel()
    known = np.abs(off[np.isfinite(off)])
    return max(float(np.quantile(known, quantile)), 1e-12) if known.size else 1.0


def block_map(
    axes: Axes, matrix: np.ndarray, topics: Sequence[Bracket], *, limit: float | None = None, bar: bool = True
) -> AxesImage:
    """A square matrix in colours symmetric about 0, with its topics in brackets above and to the left.

    limit: |entry| at which colours saturate, `spread` unless given; the colour bar has arrows where entries lie beyond.
    bar: draw the colour bar.
    """
    limit = spread(matrix) if limit is None else limit
    shown = np.ma.masked_invalid(matrix)
    axes.patch.set_facecolor("#e8e8e8")
    image = axes.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest", rasterized=True)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_linewidth(0.4)
    step = -(-len(topics) // _MOST_LABELS)
    for number, one in enumerate(topics):
        _draw(axes, one, label=number % step == 0)
    if bar:
        _bar(axes, image, shown, limit)
    return image


def _bar(axes: Axes, image: AxesImage, shown: np.ndarray, limit: float) -> None:
    above, below = bool((shown > limit).any()), bool((shown < -limit).any())
    extend: Literal["both", "max", "min", "neither"] = (
        "both" if above and below else "max" if above else "min" if below else "neither"
    )
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)), extend=extend)
    bar.set_ticks([-limit, 0.0, limit], labels=[f"{-limit:.2g}", "0", f"{limit:.2g}"])
    bar.ax.tick_params(length=2)


def _draw(axes: Axes, one: Bracket, *, label: bool) -> None:
    gap = min(0.15, (one.end - one.begin) / 8)
    begin, end = one.begin - 0.5 + gap, one.end - 0.5 - gap  # imshow's first cell begins at -0.5
    along, outside = [begin, begin, end, end], [1.01, 1.03, 1.03, 1.01]
    style: dict[str, Any] = {"color": "#333333", "lw": 0.7, "clip_on": False, "solid_joinstyle": "miter"}
    above = blended_transform_factory(axes.transData, axes.transAxes)
    left = blended_transform_factory(axes.transAxes, axes.transData)
    axes.plot(along, outside, transform=above, **style)
    axes.plot([1 - place for place in outside], along, transform=left, **style)
    if label:
        middle = (begin + end) / 2
        axes.text(middle, 1.045, str(one.topic), transform=above, ha="center", va="bottom", fontsize="x-small")
        axes.text(-0.045, middle, str(one.topic), transform=left, ha="right", va="center", fontsize="x-small")


# Layers and heads above which the numbers in the cells could no longer be read.
MAX_ANNOTATED = (32, 20)


def map_size(shape: tuple[int, int], columns: Columns | None) -> tuple[bool, float, tuple[float, float]]:
    """Whether the cells of a layer × head map hold numbers, the size of letters in points, and that of the figure.

    Raises:
        InputError: another name of a width.
    """
    annotated = shape[0] <= MAX_ANNOTATED[0] and shape[1] <= MAX_ANNOTATED[1]
    if check_columns(columns) is None:
        cell = (0.56, 0.32) if annotated else (0.13, 0.13)
        return annotated, 8.0, (max(shape[1] * cell[0] + 1.9, 4.6), max(shape[0] * cell[1] + 1.5, 2.4))
    width = WIDTHS[columns or "double"]
    cell_width = (width - 1.35) / shape[1]
    size = (width, max(shape[0] * min(0.26, 1.2 * cell_width) + 1.0, 1.6))
    return annotated and cell_width >= 0.36, 6.0, size


def name_cells(axes: Axes, layers: Sequence[object], heads: Sequence[object], annotated: bool) -> None:
    """Names of the layers and heads of a map, some 16 of each where its cells are too small for numbers."""
    for axis, names in ((axes.xaxis, heads), (axes.yaxis, layers)):
        step = 1 if annotated else max(1, math.ceil(len(names) / 16))
        shown = range(0, len(names), step)
        axis.set_ticks([i + 0.5 for i in shown], [f"{names[i]}" for i in shown])
        axis.set_tick_params(length=0)


def is_dark(colour: Sequence[float]) -> bool:
    """Whether letters on this colour (red, green, blue, …) must be white."""
    return bool(0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 0.5)


def title_map(axes: Axes, text: str, width: float, columns: Columns | None) -> None:
    """The title of a layer × head map, broken to the figure's width in inches, and letters of a size with it."""
    lines = textwrap.wrap(text, int(width * (9.5 if columns is None else 13)))
    # parse_math off: a model's name may hold dollar signs.
    axes.set_title("\n".join(lines), fontsize=10 if columns is None else 7.5, loc="left", parse_math=False)
    if columns is not None:
        axes.tick_params(labelsize=6.5)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_fontsize(7)


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
