"""Heat maps as matplotlib `Figure` objects without pyplot: of layers × heads, and of matrices over words by topic.

A map of at most `MOST_SHAPES` cells is drawn as shapes, a larger one as one image; a page asks both by the pointer.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, SymLogNorm
from matplotlib.ticker import NullLocator
from matplotlib.transforms import blended_transform_factory

from topicscope.errors import InputError
from topicscope.records import select
from topicscope.report.labels import RATIOS
from topicscope.report.style import CELLS, DIVERGING, STATE, STYLE, WIDTHS, Cells, Columns, PaperFigure, check_columns
from topicscope.report.tables import count, number, ratio_column, threshold_label

MOST_SHAPES = 2_000
# Along a side of a matrix that a page asks by the pointer.
MOST_BINS = 200
# Beyond this many labels along a side they would run into each other.
_MOST_LABELS = 12
# Letters on a cell: a trifle off grey, which a page would change with the reader's theme.
LIGHT_LETTERS, DARK_LETTERS = "#fffffe", "#1a1a1b"


def draw_cells(axes: Axes, values: np.ndarray, norm: Normalize, colors: str, edge: float = 0.3) -> ScalarMappable:
    """The cells of a map [row, column], the first row on top, cell centers at whole numbers; NaN is left open.

    edge: width in points of the white line between cells that are shapes.
    """
    shown = np.ma.masked_invalid(values)
    rows, columns = values.shape
    drawn: ScalarMappable
    if values.size <= MOST_SHAPES:
        # `pcolormesh` draws edges where `imshow` blurs them.
        sides = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
        drawn = axes.pcolormesh(*sides, shown, norm=norm, cmap=colors, edgecolors="white", lw=edge)
    else:
        drawn = axes.imshow(shown, norm=norm, cmap=colors, interpolation="none", aspect="auto")
    drawn.set_gid(CELLS)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    return drawn


def write_cells(axes: Axes, drawn: ScalarMappable, values: np.ndarray, texts: Sequence[str], size: float) -> None:
    """A text in the middle of every cell, row by row, light on dark cells."""
    for (place, value), text in zip(np.ndenumerate(values), texts, strict=True):
        if text:
            row, column = place
            color = "black"
            if math.isfinite(value):
                color = LIGHT_LETTERS if is_dark(drawn.to_rgba(value)) else DARK_LETTERS
            letters = axes.text(column, row, text, ha="center", va="center", fontsize=size, color=color)
            letters.set_gid(f"letters-{row * values.shape[1] + column}")


def is_dark(color: Sequence[float] | np.ndarray) -> bool:
    """Whether letters on this color (red, green, blue, …) must be white."""
    return bool(0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] < 0.5)


def _arrows(values: np.ndarray, low: float, high: float) -> Literal["both", "max", "min", "neither"]:
    """Where a color bar has arrows: at the ends beyond which values lie."""
    above, below = bool((values > high).any()), bool((values < low).any())
    return "both" if above and below else "max" if above else "min" if below else "neither"


# ---- matrices over words, with a bracket along two sides for every topic


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
    """Where colors saturate: a high quantile of |entry| off the diagonal, which a strong diagonal does not move."""
    off = matrix[~np.eye(len(matrix), dtype=bool)] if matrix.shape[0] == matrix.shape[1] else matrix.ravel()
    known = np.abs(off[np.isfinite(off)])
    return max(float(np.quantile(known, quantile)), 1e-12) if known.size else 1.0


def block_map(
    axes: Axes, matrix: np.ndarray, topics: Sequence[Bracket], *, limit: float | None = None, bar: bool = True
) -> ScalarMappable:
    """A square matrix in colors symmetric about 0, with its topics in brackets above and to the left.

    limit: |entry| at which colors saturate, `spread` unless given; the color bar has arrows where entries lie beyond.
    bar: draw the color bar.
    """
    limit = spread(matrix) if limit is None else limit
    axes.patch.set_facecolor("#e8e8e8")
    drawn = draw_cells(axes, matrix, Normalize(-limit, limit), DIVERGING, edge=0.0)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_linewidth(0.4)
    step = -(-len(topics) // _MOST_LABELS)
    for place, one in enumerate(topics):
        _draw_bracket(axes, one, label=place % step == 0)
    if bar:
        known = matrix[np.isfinite(matrix)]
        inset = axes.inset_axes((1.04, 0.0, 0.05, 1.0))
        color_bar = axes.figure.colorbar(drawn, cax=inset, extend=_arrows(known, -limit, limit))
        color_bar.set_ticks([-limit, 0.0, limit], labels=[f"{-limit:.2g}", "0", f"{limit:.2g}"])
        color_bar.ax.tick_params(length=2)
    return drawn


def binned(matrix: np.ndarray, most: int = MOST_BINS) -> np.ndarray:
    """float64 [bin, bin]: means of the blocks of a matrix; NaN where a block holds NaN; the same where it is small."""
    rows, columns = (bin_edges(size, most) for size in matrix.shape)
    sums = np.add.reduceat(np.add.reduceat(matrix.astype(np.float64), rows[:-1], axis=0), columns[:-1], axis=1)
    return np.asarray(sums / (np.diff(rows)[:, None] * np.diff(columns)[None, :]))


def bin_edges(size: int, most: int = MOST_BINS) -> np.ndarray:
    """int64 [bin + 1]: bounds of at most `most` bins over `size` cells, as equal as whole numbers allow."""
    return np.linspace(0, size, min(size, most) + 1).round().astype(np.int64)


def matrix_cells(
    states: Mapping[str, np.ndarray],
    limit: float,
    *,
    text: str,
    names: Sequence[str] | None = None,
    prefix: str = "",
) -> Cells:
    """What a page says of the entries of a `block_map`, the last state drawn; at most `MOST_BINS` along a side.

    names: of rows and columns, unless given their numbers. prefix: of the states, which are moments along a slider.
    """
    values = {name: binned(matrix) for name, matrix in states.items()}
    last = list(values)[-1]
    names = [str(begin) for begin in bin_edges(len(states[last]))[:-1]] if names is None else names
    norm = Normalize(-limit, limit)
    colors, caption = mpl.colormaps[DIVERGING], f"{prefix}{{state}}"
    return Cells(values, last, names, names, text, norm, colors, prefix, slider=bool(prefix), caption=caption)


def _draw_bracket(axes: Axes, one: Bracket, *, label: bool) -> None:
    gap = min(0.15, (one.end - one.begin) / 8)
    begin, end = one.begin - 0.5 + gap, one.end - 0.5 - gap  # the first cell begins at -0.5
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


# ---- maps of layers × heads

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


def _head_figure(
    values: np.ndarray,
    norm: Normalize,
    texts: Sequence[str],
    *,
    title: str,
    ticks: Mapping[float, str],
    bar: str,
    layers: Sequence[object],
    heads: Sequence[object],
    columns: Columns | None,
) -> PaperFigure:
    """The drawing that every map of layers × heads is. values [layer, head]; ticks: of the color bar, whose title is
    `bar`; texts: of the cells, written where they can be read."""
    annotated, letters, size = map_size((len(layers), len(heads)), columns)
    with mpl.rc_context(STYLE):
        figure = PaperFigure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.patch.set(facecolor="#f2f2f2", edgecolor="#8a8a8a", hatch="////")
        low, high = float(norm.vmin or 0.0), float(norm.vmax or 0.0)
        shown = np.clip(values, low, high)
        drawn = draw_cells(axes, shown, norm, DIVERGING)
        axes.set(xlabel="head", ylabel="layer")
        for axis, names in ((axes.xaxis, heads), (axes.yaxis, layers)):
            # Some 16 names where cells are too small for numbers.
            step = 1 if annotated else max(1, math.ceil(len(names) / 16))
            axis.set_ticks(range(0, len(names), step), [f"{name}" for name in names[::step]])
            axis.set_tick_params(length=0)
        room = 1e-9 * abs(high)
        extend = _arrows(values[np.isfinite(values)], low - room * abs(low), high + room)
        color_bar = figure.colorbar(drawn, ax=axes, extend=extend, aspect=15, pad=0.02)
        color_bar.set_ticks(list(ticks), labels=list(ticks.values()))
        color_bar.ax.yaxis.set_minor_locator(NullLocator())
        color_bar.ax.tick_params(labelsize=letters)
        color_bar.set_label(bar, fontsize=letters)
        color_bar.ax.yaxis.label.set_gid(STATE)
        if annotated:
            write_cells(axes, drawn, shown, texts, letters)
        lines = textwrap.wrap(title, int(size[0] * (9.5 if columns is None else 13)))
        # parse_math off: a model's name may hold dollar signs.
        axes.set_title("\n".join(lines), fontsize=10 if columns is None else 7.5, loc="left", parse_math=False)
        if columns is not None:
            axes.tick_params(labelsize=6.5)
            for label in (axes.xaxis.label, axes.yaxis.label):
                label.set_fontsize(7)
    return figure


def saturation(ratios: np.ndarray) -> float:
    """The ratio at which colors saturate: 98 % of the heads stay within it and its inverse; from 1.1 to 16."""
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    strongest = float(np.quantile(np.abs(np.log(known)), 0.98)) if known.size else 0.0
    return math.exp(min(max(strongest, math.log(1.1)), math.log(16.0)))


def head_map(
    heads: pd.DataFrame,
    *,
    part: str,
    threshold: float | None,
    title: str | None = None,
    columns: Columns | None = None,
    limit: float | None = None,
) -> PaperFigure:
    """Layer × head map of the same-topic / different-topic attention ratio of one part and threshold.

    heads: `ProbeResult.heads()`: one row per part, threshold, layer, head (both from 0).
    Color: log ratio, symmetric about 1, saturating at `limit`, `saturation` unless given; the color bar has arrows
    where values lie beyond. Brackets: 1 lies within 1.96 standard errors. Hatched: no ratio. Causal parts show the
    position-corrected ratio. columns: as wide as one or two columns of a paper, instead of as wide as the numbers in
    the cells need; cells too small for numbers have none. On a page the other ratios can be chosen.

    Raises:
        InputError: no such part or threshold in `heads`, or another width.
    """
    chosen = select(heads[heads["part"] == part], threshold)
    if chosen.empty:
        known = heads[["part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no heads to draw", received=(part, threshold), expected=f"one of {known}")
    column = ratio_column(chosen)
    names = [name for name in RATIOS if f"{name}_se" in chosen and bool(chosen[name].notna().any())]
    names = list(dict.fromkeys([column, *names]))
    values, errors = ({name: _grid(chosen, f"{name}{end}") for name in names} for end in ("", "_se"))
    letters = {name: _ratio_letters(values[name], errors[name]) for name in names}
    limit = saturation(values[column]) if limit is None else limit
    norm = LogNorm(1 / limit, limit, clip=False)
    # Marks close to 1 would run into each other on a bar that reaches far.
    far, near = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16), (1 / 2, 2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
    ticks = {float(t): f"{t:.3g}" for t in (far if limit > 2.5 else near) if 1 / limit <= t <= limit}
    caption = "{state}; 1 = no difference (log scale)"
    text = title if title is not None else "Same-topic / different-topic attention"
    shape = values[column].shape
    figure = _head_figure(
        values[column],
        norm,
        letters[column],
        title=f"{text} ({part}, θ = {threshold_label(threshold)})",
        ticks=ticks,
        bar=caption.replace("{state}", RATIOS[column].label),
        layers=range(shape[0]),
        heads=range(shape[1]),
        columns=columns,
    )
    pairs = _pair_words(chosen, shape)
    label = {name: RATIOS[name].label for name in names}
    figure.cells = Cells(
        states={label[name]: values[name] for name in names},
        shown=label[column],
        rows=[str(layer) for layer in range(shape[0])],
        columns=[str(head) for head in range(shape[1])],
        text="layer {row}, head {column}{value}\n{more}",
        norm=norm,
        colors=mpl.colormaps[DIVERGING],
        prefix="ratio: ",
        said={label[name]: _ratio_words(values[name], errors[name], pairs) for name in names},
        letters={label[name]: letters[name] for name in names},
        more=pairs,
        caption=caption,
    )
    return figure


def _grid(chosen: pd.DataFrame, column: str) -> np.ndarray:
    """A column of a head table as float64 [layer, head], NaN where there is no row."""
    values = np.full((int(chosen["layer"].max()) + 1, int(chosen["head"].max()) + 1), math.nan)
    values[chosen["layer"].to_numpy(dtype=int), chosen["head"].to_numpy(dtype=int)] = chosen[column].to_numpy(float)
    return values


def _ratio_letters(values: np.ndarray, errors: np.ndarray) -> list[str]:
    """What stands in each cell: the ratio, in brackets where 1 lies within its error, nothing where there is none."""
    texts = []
    for value, error in zip(values.ravel().tolist(), errors.ravel().tolist(), strict=True):
        shown = f"{value:.2f}" if value < 99.5 else f"{value:.0f}"
        unsure = not abs(value - 1) > 1.96 * error
        texts.append("" if not math.isfinite(value) else f"({shown})" if unsure else shown)
    return texts


def _ratio_words(values: np.ndarray, errors: np.ndarray, pairs: Sequence[str]) -> list[str]:
    """The ratio of each head and its error; nothing for a head that was not read."""
    found = zip(values.ravel().tolist(), errors.ravel().tolist(), pairs, strict=True)
    return ["" if said == _NOT_READ else f"\nratio {number(value)} ± {number(error)}" for value, error, said in found]


_NOT_READ = "not read"


def _pair_words(chosen: pd.DataFrame, shape: tuple[int, ...]) -> list[str]:
    """The means and the pairs of each head; that a head was not read where the table has none."""
    texts = [_NOT_READ] * (shape[0] * shape[1])
    for row in chosen.to_dict(orient="records"):
        texts[int(row["layer"]) * shape[1] + int(row["head"])] = (
            f"mean of same-topic pairs {number(row['mean_same'], 4)}, n = {count(row['pairs_same'])}"
            f"\nmean of different-topic pairs {number(row['mean_different'], 4)}, n = {count(row['pairs_different'])}"
        )
    return texts


_UNSURE = 4.0


def circuit_map(
    heads: pd.DataFrame,
    *,
    circuit: str,
    place: str,
    part: str,
    threshold: float | None,
    name: str,
    columns: Columns | None = None,
) -> PaperFigure:
    """z of every head, within frequency bands where they are known. Purple below 0, orange above, grey within ±4.

    heads: `CircuitResult.heads()`. columns: as wide as one or two columns of a paper; small cells have no numbers.

    Raises:
        InputError: no such rows in `heads`, or another width.
    """
    where = (heads["circuit"] == circuit) & (heads["place"] == place) & (heads["part"] == part)
    chosen = select(heads[where], threshold)
    if chosen.empty:
        known = heads[["circuit", "place", "part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no circuits to draw", received=(circuit, place, part, threshold), expected=f"one of {known}")
    column = "z_banded" if bool(chosen["z_banded"].notna().any()) else "z"
    z = chosen.pivot_table(index="layer", columns="head", values=column, aggfunc="mean", dropna=False)
    values = z.to_numpy(dtype=float)
    limit = max(float(np.nanmax(np.abs(values), initial=0.0)), 2 * _UNSURE)
    marks = [m for m in (-100, -30, -10, -_UNSURE, 0, _UNSURE, 10, 30, 100) if abs(m) <= limit]
    known_z = [value if math.isfinite(value) else None for value in values.ravel().tolist()]
    banded = ", within frequency bands" if column == "z_banded" else ""
    title = f"{name}: {circuit} circuit, same-topic minus different-topic words, z{banded}"
    return _head_figure(
        values,
        SymLogNorm(linthresh=_UNSURE, linscale=0.5, vmin=-limit, vmax=limit, base=10),
        ["" if v is None else f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}" for v in known_z],
        title=f"{title} ({part}, {place}, θ = {threshold_label(threshold)})",
        ticks={float(m): f"{m:g}" for m in marks},
        bar="z (0 = no difference)",
        layers=list(z.index),
        heads=list(z.columns),
        columns=columns,
    )
