"""What every layer × head map does alike: its size, the names of its cells, the letters on them, and its title."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes

from topicscope.report.style import WIDTHS, Columns, check_columns

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
