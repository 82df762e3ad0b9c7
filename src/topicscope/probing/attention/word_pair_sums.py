"""Sums of attention for each pair of different words at each distance, over the whole text: what shuffles start from.

An entry is a query word, a key word and a bin of their distance |i-j|; it holds the sum of A_ij · L/100, averaged over
layers and heads, and how many pairs of positions it sums. Documents are not told apart, so entries of chunks and shards
add up wherever a document is cut.
"""

import time
from dataclasses import InitVar, dataclass, field

import numpy as np

from topicscope.records import ArrayFields

# query word, key word and bin in one number
_WORD_BITS, _BIN_BITS = 28, 7
# About 160 MB, and as much again while they are sorted.
MOST_ENTRIES = 8_000_000
_WAITING = 500_000


@dataclass(eq=False)
class WordPairs(ArrayFields):
    """Entries of the pairs added so far, at most `most` of them.

    key int64 [entry]: query word, key word and bin of distance in one number, ascending.
    total float64 [entry, 2]: sum of attention and number of pairs.
    left_out: pairs that found no place. seconds: what collecting took.
    """

    key: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    total: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    left_out: int = 0
    seconds: float = 0.0
    most: InitVar[int] = MOST_ENTRIES

    def __post_init__(self, most: int) -> None:
        self._most = most
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, entries: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> None:
        """Pairs one by one: entries [pair, 3] of query word, key word and bin of distance."""
        query, key, place = (column.astype(np.int64) for column in entries.T)
        self._wait(((query << _WORD_BITS | key) << _BIN_BITS) | place, np.stack([sums, counts], 1))

    def merge(self, other: "WordPairs") -> None:
        """All that another has."""
        started = time.perf_counter()
        other._compact()
        self.left_out += other.left_out
        self._wait(other.key, other.total)
        self.seconds += other.seconds + time.perf_counter() - started

    def __len__(self) -> int:
        """The number of entries."""
        self._compact()
        return len(self.key)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries [entry, 3] as in `add`, in ascending order, with their sums [entry] and counts [entry]."""
        self._compact()
        words = self.key >> _BIN_BITS
        mask = (1 << _WORD_BITS) - 1
        entries = np.stack([words >> _WORD_BITS, words & mask, self.key & ((1 << _BIN_BITS) - 1)], 1)
        return entries, self.total[:, 0], self.total[:, 1]

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """The fields by name, with everything added."""
        self._compact()
        return super().arrays(prefix)

    def _wait(self, key: np.ndarray, total: np.ndarray) -> None:
        self._waiting.append((key, total))
        # Each entry is sorted a few times at most, since what waits is as much as what is there.
        if sum(len(k) for k, _ in self._waiting) > max(_WAITING, len(self.key)):
            self._compact()

    def _compact(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self.key, *(k for k, _ in self._waiting)])
        totals = np.concatenate([self.total, *(t for _, t in self._waiting)])
        unique, place = np.unique(keys, return_inverse=True)
        total = np.stack([np.bincount(place, column, len(unique)) for column in totals.T], 1)
        if len(unique) > self._most:
            # The entries that were there first keep their place.
            new = ~np.isin(unique, self.key, assume_unique=True)
            kept = ~new
            kept[np.flatnonzero(new)[: max(0, self._most - len(self.key))]] = True
            self.left_out += int(total[~kept, 1].sum())
            unique, total = unique[kept], total[kept]
        self.key, self.total, self._waiting = unique, total, []
