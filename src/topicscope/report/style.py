"""Figures ready for a paper: widths of one and of two columns, letters that fit them, fonts embedded in every file."""

import io
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
from matplotlib.colors import Colormap, Normalize
from matplotlib.container import Container
from matplotlib.figure import Figure

from topicscope.errors import InputError
from topicscope.records import write_bytes
from topicscope.report import labels

Columns = Literal["single", "double"]

WIDTHS: Mapping[Columns, float] = {"single": 3.25, "double": 6.75}  # inches
_LETTERS: Mapping[Columns, float] = {"single": 7.0, "double": 8.0}  # points
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
def paper_figure(columns: Columns | None, height: float, width: float | None = None) -> Iterator[PaperFigure]:
    """An empty figure as wide as one or two columns (two unless given), inside whose block the style holds.

    height, width: in inches; a width holds where no columns are given.

    Raises:
        InputError: another name of a width.
    """
    size: Columns = columns or "double"
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
