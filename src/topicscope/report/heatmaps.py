"""Heat maps as matplotlib `Figure` objects without pyplot: of layers × heads, and of matrices over words by topic.

A map of at most `MOST_SHAPES` cells is drawn as shapes, a larger one as one image; a page asks both by the pointer.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm, Normalize, SymLogNorm
from matplotlib.ticker import NullLocator

from topicscope.errors import InputError
from topicscope.records import select
from topicscope.report.labels import RATIOS
from topicscope.report.style import CELLS, DIVERGING, STATE, WIDTHS, Cells, Columns, PaperFigure, paper_figure
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
    lightness = drawn.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for cell, text in enumerate(texts):
        place = row, column = divmod(cell, values.shape[1])
        color = LIGHT_LETTERS if lightness[place] < 0.5 else DARK_LETTERS
        color = "black" if np.isnan(values[place]) else color
        if text:
            letters = axes.text(column, row, text, ha="center", va="center", fontsize=size, color=color)
            letters.set_gid(f"letters-{cell}")


def _color_bar(
    axes: Axes, drawn: ScalarMappable, values: np.ndarray, ticks: Mapping[float, str], **place: Any
) -> Colorbar:
    """The color bar of a map, with arrows at the ends beyond which values lie; place: where it stands."""
    low, high = drawn.get_clim()
    assert low is not None
    assert high is not None
    room = 1e-9 * high  # for rounding
    ends = {(True, True): "both", (False, True): "max", (True, False): "min", (False, False): "neither"}
    extend = ends[bool((values < low - room).any()), bool((values > high + room).any())]
    bar = axes.figure.colorbar(drawn, extend=extend, **place)
    bar.set_ticks(list(ticks), labels=list(ticks.values()))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    return bar


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


def spread(matrix: np.ndarray) -> float:
    """Where colors of a square matrix saturate: 98 % of |entry| off the diagonal, which may be larger, are below."""
    off = np.abs(matrix[~np.eye(len(matrix), dtype=bool)])
    known = off[np.isfinite(off)]
    return max(float(np.quantile(known, 0.98)), 1e-12) if known.size else 1.0


def block_map(
    axes: Axes, matrix: np.ndarray, topics: Sequence[Bracket], *, limit: float | None = None, bar: bool = True
) -> None:
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
    above, left = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    line: dict[str, Any] = {"color": "#333333", "lw": 0.7, "clip_on": False, "solid_joinstyle": "miter"}
    for place, one in enumerate(topics):
        gap = min(0.15, (one.end - one.begin) / 8)
        begin, end = one.begin - 0.5 + gap, one.end - 0.5 - gap  # the first cell begins at -0.5
        along, outside = [begin, begin, end, end], np.array([1.01, 1.03, 1.03, 1.01])
        axes.plot(along, outside, transform=above, **line)
        axes.plot(1 - outside, along, transform=left, **line)
        if place % -(-len(topics) // _MOST_LABELS) == 0:
            middle = (begin + end) / 2
            axes.text(middle, 1.045, str(one.topic), transform=above, ha="center", va="bottom", fontsize="x-small")
            axes.text(-0.045, middle, str(one.topic), transform=left, ha="right", va="center", fontsize="x-small")
    if bar:
        ticks = {-limit: f"{-limit:.2g}", 0.0: "0", limit: f"{limit:.2g}"}
        color_bar = _color_bar(axes, drawn, matrix, ticks, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)))
        color_bar.ax.tick_params(length=2)


def matrix_cells(
    states: Mapping[str, np.ndarray],
    limit: float,
    *,
    text: str,
    names: Sequence[str] | None = None,
    prefix: str = "",
) -> Cells:
    """What a page says of the entries of a `block_map`, the last state drawn.

    Larger matrices are shown as means over bins, at most `MOST_BINS` along a side, as equal as whole numbers allow.
    names: of rows and columns, unless given their numbers. prefix: of the states, which are moments along a slider.
    """
    last, size = list(states)[-1], len(next(iter(states.values())))
    edges = np.linspace(0, size, min(size, MOST_BINS) + 1).round().astype(np.int64)
    begins, widths = edges[:-1], np.diff(edges)
    values = {
        name: np.add.reduceat(np.add.reduceat(matrix.astype(np.float64), begins, axis=0), begins, axis=1)
        / np.outer(widths, widths)
        for name, matrix in states.items()
    }
    names = [str(begin) for begin in begins] if names is None else names
    norm, colors = Normalize(-limit, limit), mpl.colormaps[DIVERGING]
    return Cells(values, last, names, names, text, norm, colors, prefix, bool(prefix), caption=f"{prefix}{{state}}")


# ---- maps of layers × heads

# Layers and heads above which the numbers in the cells could no longer be read.
_MAX_ANNOTATED = (32, 20)


def _head_figure(cells: Cells, *, title: str, ticks: Mapping[float, str], columns: Columns | None) -> PaperFigure:
    """The drawing that every map of layers × heads is; ticks: of the color bar, whose title is the cells' caption."""
    layers, heads = len(cells.rows), len(cells.columns)
    annotated, letters = layers <= _MAX_ANNOTATED[0] and heads <= _MAX_ANNOTATED[1], 6.0
    if columns is None:  # as large as the numbers in the cells need
        cell, letters = (0.56, 0.32) if annotated else (0.13, 0.13), 8.0
        width, height = max(heads * cell[0] + 1.9, 4.6), max(layers * cell[1] + 1.5, 2.4)
    else:
        width = WIDTHS.get(columns, 0.0)
        across = (width - 1.35) / heads
        annotated = annotated and across >= 0.36
        height = max(layers * min(0.26, 1.2 * across) + 1.0, 1.6)
    with paper_figure(columns, height, width) as figure:
        axes = figure.add_subplot()
        axes.patch.set(facecolor="#f2f2f2", edgecolor="#8a8a8a", hatch="////")
        values = cells.states[cells.shown]
        shown = np.clip(values, cells.norm.vmin, cells.norm.vmax)
        drawn = draw_cells(axes, shown, cells.norm, DIVERGING)
        axes.set(xlabel="head", ylabel="layer")
        for axis, names in ((axes.xaxis, cells.columns), (axes.yaxis, cells.rows)):
            # Some 16 names where cells are too small for numbers.
            step = 1 if annotated else max(1, math.ceil(len(names) / 16))
            axis.set_ticks(range(0, len(names), step), names[::step])
            axis.set_tick_params(length=0)
        bar = _color_bar(axes, drawn, values, ticks, ax=axes, aspect=15, pad=0.02)
        bar.ax.tick_params(labelsize=letters)
        bar.set_label(cells.caption.replace("{state}", cells.shown), fontsize=letters)
        bar.ax.yaxis.label.set_gid(STATE)
        if annotated:
            write_cells(axes, drawn, shown, cells.letters[cells.shown], letters)
        # parse_math off: a model's name may hold dollar signs.
        axes.set_title("\n".join(textwrap.wrap(title, int(12 * width))), parse_math=False)
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
    title: str = "Same-topic / different-topic attention",
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
    shape = int(chosen["layer"].max()) + 1, int(chosen["head"].max()) + 1
    # A row for every cell, empty where the head was not read.
    every = chosen.set_index(["layer", "head"]).reindex(pd.MultiIndex.from_product([range(shape[0]), range(shape[1])]))
    read = every["part"].notna()
    rows = every.to_dict(orient="records")
    states, said, letters = {}, {}, {}
    for name in dict.fromkeys([column, *names]):
        label, ratios = RATIOS[name].label, [(row[name], row[f"{name}_se"]) for row in rows]
        states[label] = every[name].to_numpy(float).reshape(shape)
        letters[label] = [_letters(ratio, error) for ratio, error in ratios]
        texts = [f"\nratio {number(ratio)} ± {number(error)}" for ratio, error in ratios]
        said[label] = np.where(read, texts, "").tolist()
    pairs = [
        f"mean of same-topic pairs {number(row['mean_same'], 4)}, n = {count(row['pairs_same'])}"
        f"\nmean of different-topic pairs {number(row['mean_different'], 4)}, n = {count(row['pairs_different'])}"
        for row in rows
    ]
    shown = RATIOS[column].label
    limit = saturation(states[shown]) if limit is None else limit
    cells = Cells(
        states=states,
        shown=shown,
        rows=[str(layer) for layer in range(shape[0])],
        columns=[str(head) for head in range(shape[1])],
        text="layer {row}, head {column}{value}\n{more}",
        norm=LogNorm(1 / limit, limit, clip=False),
        colors=mpl.colormaps[DIVERGING],
        prefix="ratio: ",
        said=said,
        letters=letters,
        more=np.where(read, pairs, "not read").tolist(),
        caption="{state}; 1 = no difference (log scale)",
    )
    # Marks close to 1 would run into each other on a bar that reaches far.
    far, near = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16), (1 / 2, 2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
    ticks = {float(t): f"{t:.3g}" for t in (far if limit > 2.5 else near) if 1 / limit <= t <= limit}
    title = f"{title} ({part}, θ\u00a0=\u00a0{threshold_label(threshold)})"
    figure = _head_figure(cells, title=title, ticks=ticks, columns=columns)
    figure.cells = cells
    return figure


def _letters(ratio: float, error: float) -> str:
    """What stands in a cell: the ratio, in brackets where 1 lies within its error, nothing where there is none."""
    shown = "" if not math.isfinite(ratio) else f"{ratio:.2f}" if ratio < 99.5 else f"{ratio:.0f}"
    return f"({shown})" if shown and not abs(ratio - 1) > 1.96 * error else shown


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
    cells = Cells(
        states={"z": values},
        shown="z",
        rows=[str(layer) for layer in z.index],
        columns=[str(head) for head in z.columns],
        text="",
        norm=SymLogNorm(linthresh=_UNSURE, linscale=0.5, vmin=-limit, vmax=limit, base=10),
        colors=mpl.colormaps[DIVERGING],
        letters={"z": ["" if np.isnan(v) else f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}" for v in values.ravel()]},
        caption="{state} (0 = no difference)",
    )
    marks = [m for m in (-100, -30, -10, -_UNSURE, 0, _UNSURE, 10, 30, 100) if abs(m) <= limit]
    banded = ", within frequency bands" if column == "z_banded" else ""
    title = f"{name}: {circuit} circuit, same-topic minus different-topic words, z{banded}"
    title = f"{title} ({part}, {place}, θ\u00a0=\u00a0{threshold_label(threshold)})"
    return _head_figure(cells, title=title, ticks={float(m): f"{m:g}" for m in marks}, columns=columns)
