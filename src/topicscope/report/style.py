"""Figures ready for a paper: widths of one and of two columns, letters that fit them, fonts embedded in every file.

What several figures draw is here too: axes, legends, and maps of cells, among them matrices over words by topic. A map
of at most `MOST_SHAPES` cells is drawn as shapes, a larger one as one image; a page asks both by the pointer.
"""

import io
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from topicscope.errors import InputError
from topicscope.records import write_bytes
from topicscope.report import labels

Columns = Literal["single", "double"]

WIDTHS: Mapping[str, float] = {"single": 3.25, "double": 6.75}  # inches
_LETTERS: Mapping[str, float] = {"single": 7.0, "double": 8.0}  # points
STYLE: dict[Any, Any] = {
    "pdf.fonttype": 42,  # letters embedded as TrueType, so that they can be searched and edited
    "svg.fonttype": "path",
    "svg.hashsalt": "topicscope",
    "text.usetex": False,
    "font.family": "DejaVu Sans",
}
# Each color with its own line and marker, so that no meaning hangs on color alone.
LINES = (
    (labels.BLUE, "-", "o"),
    (labels.ORANGE, "--", "s"),
    (labels.GREEN, ":", "^"),
    (labels.PINK, "-.", "D"),
    (labels.YELLOW, (0, (5, 1)), "v"),
    (labels.SKY, (0, (1, 1)), "P"),
)
DIVERGING = "PuOr_r"  # purple below, orange above: told apart with every common color blindness
REFERENCE: dict[str, Any] = {"color": "#555555", "lw": 0.8, "ls": "--"}
"""The line at the value that means no difference."""

CELLS, STATE = "cells", "state"
"""Ids in the SVG of a map: its cells, and the words that name what they show."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What the cells of a map say when asked, in one or more states that color the same cells.

    states: values [row, column] by the name of the state, NaN for none; shown: the state that is drawn.
    rows, columns: names of the cells' sides. text: of a cell, with {row}, {column}, {value} and {more} filled in.
    norm, colors: as they are drawn. prefix: what stands before a state's name; slider: whether states are moments.
    said: what stands for {value}, by state and cell, in place of the number alone; letters: what is written into each
    cell; more: of each cell, whatever the state. caption: what the artist with the id `STATE` says, with {state} in it.
    """

    states: Mapping[str, np.ndarray]
    shown: str
    rows: Sequence[str]
    columns: Sequence[str]
    text: str
    norm: Normalize
    colors: Colormap
    prefix: str = ""
    slider: bool = False
    said: Mapping[str, Sequence[str]] = field(default_factory=dict)
    letters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    more: Sequence[str] = ()
    caption: str = ""


class PaperFigure(Figure):
    """A figure whose files have their fonts embedded, and no date, whichever way they are written.

    points: places on its axes that show a text when they are asked; marks: artists, such as bars, that do; cells: what
    those of its one map show. Files of the figure hold none of these; a page does (see `page.inline_svg`).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.points: list[tuple[Axes, float, float, str]] = []
        self.marks: list[tuple[Artist, str]] = []
        self.cells: Cells | None = None

    def savefig(self, fname: str | os.PathLike[str] | Any, **options: Any) -> None:
        """As matplotlib's, with this package's style."""
        with mpl.rc_context(STYLE):
            super().savefig(fname, **options)


Drawn = tuple[pd.DataFrame | dict[str, np.ndarray], PaperFigure]
"""What every figure of this package is: the numbers it shows, and the drawing."""


@contextmanager
def paper_figure(columns: str | None, height: float, width: float | None = None) -> Iterator[PaperFigure]:
    """An empty figure as wide as one or two columns (two unless given), inside whose block the style holds.

    height, width: in inches; a width holds where no columns are given.

    Raises:
        InputError: another name of a width.
    """
    size = columns or "double"
    if size not in WIDTHS:
        raise InputError("unknown width of a figure", received=columns, expected='"single" or "double"')
    letters = _LETTERS[size]
    small = dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), letters - 0.5)
    same = dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "figure.titlesize"), letters)
    quiet = {"axes.linewidth": 0.6, "axes.titlelocation": "left", "legend.frameon": False}
    wide = WIDTHS[size] if width is None or columns is not None else width
    with mpl.rc_context(STYLE | same | small | quiet):
        yield PaperFigure(figsize=(wide, height), layout="constrained")


def show_values(axes: Axes, x: Any, y: Any, texts: Sequence[str]) -> None:
    """Let places on the axes of a `PaperFigure`, given in data, show a text each."""
    figure = axes.get_figure(root=True)
    assert isinstance(figure, PaperFigure)
    figure.points += [(axes, float(a), float(b), text) for a, b, text in zip(x, y, texts, strict=True)]


def tidy(axes: Axes, *, grid: Literal["both", "x", "y"] = "both") -> None:
    """A quiet grid behind the data, and no frame where there is no axis."""
    axes.grid(axis=grid, color="#e3e3e3", lw=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def name_rows(axes: Axes, names: Sequence[str], size: float | None = None) -> None:
    """A row for each name, the first on top and its middle at 0; size: of the names, in points."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.tick_params(axis="y", length=0)
    tidy(axes, grid="x")


def shared_legend(figure: Figure, columns: int, **options: Any) -> None:
    """What the axes of a figure name, each name once, below them all; points with errors come first."""
    named = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    named.sort(key=lambda pair: not isinstance(pair[0], Container))
    found: dict[str, Any] = {}
    for handle, label in named:
        found.setdefault(label, handle)
    if found:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, **options)


def plain(text: object) -> str:
    """Text for a figure: a dollar sign would begin mathematics."""
    return str(text).replace("$", r"\$")


def save(figure: Figure, path: Path | str, *, dpi: int = 300) -> Path:
    """Write a figure as PNG, PDF or SVG, by the ending of `path`; equal figures give equal files.

    Raises:
        InputError: another ending.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _DATES:
        raise InputError("unknown kind of file", received=path.name, expected="a name that ends in .png, .pdf or .svg")
    write_bytes(path, rendered(figure, kind, dpi=dpi if kind == "png" else _EMBEDDED_DPI))
    return path


def to_png(figure: Figure, dpi: int = 160) -> bytes:
    """The figure as PNG."""
    return rendered(figure, "png", dpi=dpi)


# Of images inside PDF and SVG.
_EMBEDDED_DPI = 300
# Without a date inside, equal figures give equal files.
_DATES = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def rendered(figure: Figure, kind: str, more: Mapping[str, Any] | None = None, dpi: int = _EMBEDDED_DPI) -> bytes:
    """The figure as "png", "svg" or "pdf", with letters that are embedded or drawn as shapes; more: settings."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE | dict(more or {})), warnings.catch_warnings():
        # A model's name may hold letters that the font lacks; a box stands for them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        Figure.savefig(figure, buffer, format=kind, dpi=dpi, metadata=_DATES[kind])
    return buffer.getvalue()


# ---- maps of cells

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


def color_bar(
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


def saturation(ratios: np.ndarray) -> float:
    """The ratio at which colors saturate: 98 % of the heads stay within it and its inverse; from 1.1 to 16."""
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    strongest = float(np.quantile(np.abs(np.log(known)), 0.98)) if known.size else 0.0
    return math.exp(min(max(strongest, math.log(1.1)), math.log(16.0)))


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
        beside = axes.inset_axes((1.04, 0.0, 0.05, 1.0))
        color_bar(axes, drawn, matrix, ticks, cax=beside).ax.tick_params(length=2)


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
