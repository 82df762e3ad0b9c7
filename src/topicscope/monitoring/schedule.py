"""When to measure: a grid of steps, and a cap on the share of the run's time.

A step of the grid is measured if what was spent so far (set-up included), with one more measurement that takes as long
as the last one, stays within the part of the allowance that falls to the grid up to this step:

    spent + cost ≤ (allowance - cost) · points of the grid reached / all its points,
    allowance = share · planned steps · median seconds of a step.

So measurements that are too dear for every point are spread over the whole grid, and the last point, for which one cost
is set aside, has its own. The first steps of a run take longer (memory, compilation), which would make the run look
longer than it is: before `SURE` steps a quarter of the shortest is taken for the median. Where the number of steps is
not planned, spent + cost ≤ share · seconds of all steps so far.
"""

import math
import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import count

from topicscope.errors import InputError

Every = str | int  # "log", or a number of steps
Share = str | float | int | None
POINTS_PER_DOUBLING = 2
_RECENT = 101
SURE = 5


def grid(every: Every, total: int | None) -> Iterator[int]:
    """Steps to measure, ascending: 0, then √2-fold ("log") or every N-th, and the last step where it is known.

    Raises:
        InputError: neither "log" nor a number of at least 1.
    """
    if every != "log" and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InputError("bad every", received=every, expected='"log", or a number of steps of at least 1')
    return _grid(every, total)


def _grid(every: Every, total: int | None) -> Iterator[int]:
    last = -1
    for number in count():
        step = (
            number * int(every) if every != "log" else round(2 ** ((number - 1) / POINTS_PER_DOUBLING)) * (number > 0)
        )
        if total is not None and step >= total:
            yield total
            return
        if step > last:
            yield step
            last = step


def share_of(budget: Share) -> float | None:
    """ "2%" or 0.02 as 0.02; None: no bound.

    Raises:
        InputError: not a share in (0, 1].
    """
    if budget is None:
        return None
    text = str(budget).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError("bad budget", received=budget, expected='a share of the run\'s time such as "2%", or None')
    return share


class Budget:
    """Keeps account of the time of the run and of its measurements.

    share: see `share_of`. total: planned steps, or None. spent: seconds used before (a resumed run).
    """

    def __init__(self, share: float | None, total: int | None, every: Every = "log", spent: float = 0.0) -> None:
        self.share, self.total, self.spent = share, total, spent
        self._grid = () if total is None else tuple(grid(every, total))
        self._cost = 0.0
        self._steps: deque[float] = deque(maxlen=_RECENT)

    def step_took(self, seconds: float) -> None:
        """One update of the training, without what was measured in it."""
        self._steps.append(seconds)

    def measured(self, seconds: float) -> None:
        """One measurement."""
        self.spent += seconds
        self._cost = seconds

    @property
    def step_seconds(self) -> float:
        """How long a step takes; NaN before the first."""
        if not self._steps:
            return math.nan
        return min(self._steps) / 4 if len(self._steps) < SURE else statistics.median(self._steps)

    def affords(self, step: int, *, last: bool = False) -> bool:
        """Whether a measurement after `step` updates is within the share; always before any step was timed.

        last: nothing will be measured after it, as after all planned steps.
        """
        if self.share is None or not self._steps:
            return True
        allowance = self.share * self.step_seconds * (self.total or step)
        if self.total is not None and step < self.total and not last:
            allowance = (allowance - self._cost) * bisect_right(self._grid, step) / len(self._grid)
        return self.spent + self._cost <= allowance
