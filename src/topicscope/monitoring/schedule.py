"""When to measure, and what a share of the planned run's time buys.

    allowed = share · (planned steps) · (median seconds of a step),   spent = all seconds used so far, set-up included

Before each measurement what is left is set against what the remaining ones would cost. While it does not suffice, the
grid is thinned, down to `FEW_POINTS` or half of what remains; then the document set, down to `FEW_DOCUMENTS`, for good;
then the grid again, in the end to nothing. What was thinned is said. The first steps of a run take longer (memory,
compilation), which would make the run look longer than it is: the median is used, and before `SURE` steps a quarter of
the shortest, by which a measurement is made or put off, and nothing thinned.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from topicscope.errors import InputError

Every = str | int  # "log", or a number of steps
Share = str | float | int | None
POINTS_PER_DOUBLING = 2
FEW_POINTS, FEW_DOCUMENTS = 10, 10
_MOST_POINTS = 10_000
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
    for number in range(-1, 2**62):
        if number < 0:
            step = 0
        else:
            step = round(2 ** (number / POINTS_PER_DOUBLING)) if every == "log" else (number + 1) * int(every)
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


class Plan(NamedTuple):
    """What is affordable: steps still to be measured, and how many documents are read. left_out: what is not, or ""."""

    steps: tuple[int, ...]
    documents: int
    left_out: str


class Budget:
    """Keeps account of the time of the run and of the measurements.

    share: see `share_of`. total: planned steps, or None: then the run so far stands for the planned run, so that its
    measurements are spaced by their cost. spent: seconds used before (a resumed run).
    """

    def __init__(self, share: float | None, total: int | None, spent: float = 0.0) -> None:
        self.share, self.total, self.spent = share, total, spent
        self._steps: deque[float] = deque(maxlen=_RECENT)
        # (documents, seconds) of the measurements
        self._costs: list[tuple[int, float]] = []

    def step_took(self, seconds: float) -> None:
        """One update of the training, without what was measured in it."""
        self._steps.append(seconds)

    def measured(self, documents: int, seconds: float) -> None:
        """One measurement."""
        self.spent += seconds
        self._costs.append((documents, seconds))

    @property
    def step_seconds(self) -> float:
        """How long a step takes; NaN before the first."""
        if not self._steps:
            return math.nan
        return min(self._steps) / 4 if len(self._steps) < SURE else statistics.median(self._steps)

    def left(self, done: int) -> float:
        """Seconds that may still be used; infinite without a bound, or before any step was timed."""
        if self.share is None or not self._steps:
            return math.inf
        return self.share * (self.total or done) * self.step_seconds - self.spent

    def cost(self, documents: int) -> float:
        """Expected seconds of a measurement: a fifth of the last one's is taken for fixed, the rest for the documents.

        Once sizes differ, what they took says how much is fixed.
        """
        if not self._costs:
            return 0.0
        known = dict(self._costs)
        count, seconds = self._costs[-1]
        fixed = 0.2 * seconds
        if len(known) > 1:
            (n1, s1), (n2, s2) = sorted(known.items())[0], sorted(known.items())[-1]
            fixed = min(max(s1 - n1 * (s2 - s1) / (n2 - n1), 0.0), seconds)
        return fixed + (seconds - fixed) * documents / count

    def plan(self, done: int, remaining: Iterator[int], documents: int) -> Plan:
        """What of the `remaining` steps, the first of which is `done`, can be afforded with at most so many documents.

        Of two steps or more the first and the last are kept; a single one is the last. Without planned steps only the
        first is looked at.
        """
        steps = tuple(islice(remaining, 1 if self.total is None else _MOST_POINTS))
        left, cost = self.left(done), self.cost(documents)
        if cost * len(steps) <= left:
            return Plan(steps, documents, "")
        if self.total is None:
            return Plan((), documents, "a measurement now")
        affordable = int(max(left, 0) / cost)
        if len(self._steps) < SURE:
            return Plan(steps if affordable >= min(FEW_POINTS, len(steps)) else steps[1:], documents, "")
        fewer = documents
        while affordable < min(FEW_POINTS, (len(steps) + 1) // 2) and fewer > FEW_DOCUMENTS:
            fewer = max(FEW_DOCUMENTS, fewer * 3 // 4)
            affordable = int(max(left, 0) / self.cost(fewer))
        return _thinned(steps, min(affordable, len(steps)), fewer, documents)


def _thinned(steps: tuple[int, ...], points: int, fewer: int, documents: int) -> Plan:
    count = len(steps)
    if not points:
        return Plan((), documents, f"all {count} remaining measurements")
    places = {round(i * (count - 1) / (points - 1)) for i in range(points)} if points > 1 else {count - 1}
    said = [f"{count - points} of {count} remaining measurements"] if points < count else []
    said += [f"{documents - fewer} of {documents} documents"] if fewer < documents else []
    return Plan(tuple(steps[i] for i in sorted(places)), fewer, " and ".join(said))
