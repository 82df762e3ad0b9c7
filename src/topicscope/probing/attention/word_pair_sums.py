"""Sums of attention for each pair of different words at each distance, over the whole text: what shuffles start from.

An entry is a query word, a key word and a bin of their distance |i-j|; it holds the sum of A_ij · L/100, averaged over
layers and heads, and how many pairs of positions it sums. Documents are not told apart, so entries of chunks and shards
add up wherever a document is cut.
"""

import time
from collections.abc import Mapping

import numpy as np

# query word, key word and bin in one number
_WORD_BITS, _BIN_BITS = 28, 7
# About 160 MB, and as much again while they are sorted.
MOST_ENTRIES = 8_000_000
_WAITING = 500_000


class WordPairs:
    """Entries of the pairs added so far, at most `most` of them.

    left_out: pairs that found no place. seconds: what collecting took.
    """

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.left_out, self.seconds = 0, 0.0
        self._most = most
        self._key: np.ndarray = np.zeros(0, dtype=np.int64)
        self._total: np.ndarray = np.zeros((0, 2))  # [entry, (sum, count)]
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
        self._wait(other._key, other._total)
        self.seconds += other.seconds + time.perf_counter() - started

    def __len__(self) -> int:
        """The number of entries."""
        self._compact()
        return len(self._key)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries [entry, 3] as in `add`, in ascending order, with their sums [entry] and counts [entry]."""
        self._compact()
        words = self._key >> _BIN_BITS
        mask = (1 << _WORD_BITS) - 1
        entries = np.stack([words >> _WORD_BITS, words & mask, self._key & ((1 << _BIN_BITS) - 1)], 1)
        return entries, self._total[:, 0], self._total[:, 1]

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """For storage in an npz file."""
        self._compact()
        return {
            f"{prefix}/key": self._key,
            f"{prefix}/total": self._total,
            f"{prefix}/left_out": np.array(self.left_out),
            f"{prefix}/seconds": np.array(self.seconds),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str) -> "WordPairs":
        """The inverse of `arrays`."""
        found = cls()
        found._key, found._total = arrays[f"{prefix}/key"], arrays[f"{prefix}/total"]
        found.left_out, found.seconds = int(arrays[f"{prefix}/left_out"]), float(arrays[f"{prefix}/seconds"])
        return found

    def _wait(self, key: np.ndarray, total: np.ndarray) -> None:
        self._waiting.append((key, total))
        # Each entry is sorted a few times at most, since what waits is as much as what is there.
        if sum(len(k) for k, _ in self._waiting) > max(_WAITING, len(self._key)):
            self._compact()

    def _compact(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self._key, *(k for k, _ in self._waiting)])
        totals = np.concatenate([self._total, *(t for _, t in self._waiting)])
        unique, place = np.unique(keys, return_inverse=True)
        total = np.stack([np.bincount(place, column, len(unique)) for column in totals.T], 1)
        if len(unique) > self._most:
            # The entries that were there first keep their place.
            new = ~np.isin(unique, self._key, assume_unique=True)
            kept = ~new
            kept[np.flatnonzero(new)[: max(0, self._most - len(self._key))]] = True
            self.left_out += int(total[~kept, 1].sum())
            unique, total = unique[kept], total[kept]
        self._key, self._total, self._waiting = unique, total, []
