"""Heat maps of matrices over words in the order of topics, with a bracket along two sides for every topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.transforms import blended_transform_factory

from topicscope.report.style import DIVERGING

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
