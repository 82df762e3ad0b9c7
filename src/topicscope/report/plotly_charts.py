"""Plain dicts of plotly charts: traces and layouts that the page's script gives the colours of the reader's theme.

No plotly object is made, so drawing costs nothing; `plotly.graph_objects.Figure(spec)` reads every spec in the tests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topicscope.report.page import significant

# What a page can hold and a screen can show.
MOST_CELLS = 200
MOST_FRAMES = 20
# Purple below the middle, orange above (ColorBrewer's PuOr), as the matplotlib figures have them.
DIVERGING = [
    [0.0, "#2d004b"],
    [0.2, "#8073ac"],
    [0.4, "#d8daeb"],
    [0.5, "#f7f7f7"],
    [0.6, "#fee0b6"],
    [0.8, "#e08214"],
    [1.0, "#7f3b08"],
]
SEQUENTIAL = "Viridis"
# Okabe-Ito, each with a dash and a marker of its own, so that no meaning hangs on colour alone; readable on dark too.
LINES = (
    ("#0072B2", "solid", "circle"),
    ("#D55E00", "dash", "square"),
    ("#009E73", "dot", "triangle-up"),
    ("#CC79A7", "dashdot", "diamond"),
    ("#E69F00", "longdash", "cross"),
    ("#56B4E9", "longdashdot", "x"),
)


def edges(size: int, most: int = MOST_CELLS) -> np.ndarray:
    """int64 [bin + 1]: bounds of at most `most` bins over `size` cells, as equal as whole numbers allow."""
    return np.linspace(0, size, min(size, most) + 1).round().astype(np.int64)


def binned(matrix: np.ndarray, most: int = MOST_CELLS) -> np.ndarray:
    """float64 [bin, bin]: means of the blocks of a matrix; NaN where a block holds NaN; the same where it is small."""
    rows, columns = (edges(size, most) for size in matrix.shape)
    sums = np.add.reduceat(np.add.reduceat(matrix.astype(np.float64), rows[:-1], axis=0), columns[:-1], axis=1)
    return np.asarray(sums / (np.diff(rows)[:, None] * np.diff(columns)[None, :]))


def rounded(values: np.ndarray | Sequence[float]) -> list[Any]:
    """Nested lists with four significant digits, as many as a 16-bit float has; None for NaN."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim > 1:
        return [rounded(row) for row in array]
    return [significant(value) for value in array.tolist()]


def heat_map(
    z: np.ndarray,
    *,
    x: Sequence[Any] | None = None,
    y: Sequence[Any] | None = None,
    text: Sequence[Sequence[str]] | None = None,
    hover: str,
    middle: float | None = None,
    limit: float | None = None,
    bar: str = "",
    **more: Any,
) -> dict[str, Any]:
    """A heat map trace [y, x], binned and rounded; the first row is the uppermost with `axes(upside_down=True)`.

    hover: plotly's hovertemplate (outside text only through `text`, one for each cell). middle: the value of no
    difference, white in the middle of the diverging scale; None: a sequential scale. limit: distance from the middle
    at which colours saturate. bar: title of the colour bar.
    """
    trace: dict[str, Any] = {"type": "heatmap", "z": rounded(binned(z)), "hovertemplate": hover + "<extra></extra>"}
    trace |= {"colorbar": {"title": {"text": bar, "side": "right"}, "thickness": 12, "outlinewidth": 0}}
    trace |= {name: list(values) for name, values in (("x", x), ("y", y), ("text", text)) if values is not None}
    if middle is None:
        return trace | {"colorscale": SEQUENTIAL} | more
    known = np.abs(z[np.isfinite(z)] - middle)
    limit = limit if limit is not None else float(np.quantile(known, 0.99)) if known.size else 1.0
    limit = limit or 1.0
    return trace | {"colorscale": DIVERGING, "zmin": middle - limit, "zmax": middle + limit} | more


def line(x: Sequence[float], y: Sequence[float], name: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """A line with the colour, dash and marker of its number."""
    color, dash, symbol = LINES[number % len(LINES)]
    trace = {"type": "scatter", "mode": "lines+markers", "name": name, "x": rounded(x), "y": rounded(y)}
    return trace | {"line": {"color": color, "dash": dash}, "marker": {"color": color, "symbol": symbol}} | more


def axes(*, x: str, y: str, upside_down: bool = False, **more: Any) -> dict[str, Any]:
    """A layout with titled axes that nobody can zoom by accident; margins follow the labels."""
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": x}, "fixedrange": True, "automargin": True},
        "yaxis": {"title": {"text": y}, "fixedrange": True, "automargin": True},
        "margin": {"l": 40, "r": 10, "t": 10, "b": 40},
        "legend": {"orientation": "h", "y": -0.25},
    }
    if upside_down:
        layout["yaxis"] |= {"autorange": "reversed"}
    for name, changes in more.items():
        layout[name] = layout.get(name, {}) | changes if isinstance(changes, Mapping) else changes
    return layout


def stepped(
    frames: Sequence[tuple[str, list[dict[str, Any]]]], layout: Mapping[str, Any], prefix: str = "step "
) -> dict[str, Any]:
    """A spec that the page's script gives a slider. frames: (label, traces), at most `MOST_FRAMES`; the last is shown.

    prefix: what stands before the label beside the slider.
    """
    assert 0 < len(frames) <= MOST_FRAMES
    return {
        "data": frames[-1][1],
        "layout": dict(layout),
        "frames": [{"name": label, "data": traces} for label, traces in frames],
        "prefix": prefix,
    }
