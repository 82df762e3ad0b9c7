"""Counts of words in bounded memory: the rarest are forgotten when too many distinct words are held.

Lossy counting after Manku and Motwani (2002). Where more than `limit` words are held, all of them that were counted at
most t times are pruned, with the smallest t that leaves at most half of `limit`; Δ, the sum of all such t, grows by it.
So for every word of the text, with n its occurrences and c the count that is held of it (0 if none is):

    c <= n <= c + Δ

A word that is not held was seen at most Δ times. Nothing is pruned, and Δ = 0, while at most `limit` words are held.
"""

from array import array
from collections.abc import Iterable
from itertools import compress

import numpy as np

LIMIT = 2_000_000


class BoundedCounts:
    """Counts of at most `limit` words after each passage, each word under a number of its own, below 2³².

    A word gets the next number when it is taken up; one that was pruned and comes again gets a new one, as what was
    counted of it before is lost.

    undercount: Δ, the largest count that a pruned word can have had. prunings: how often it was pruned; pruned_words
    (a word each time that it is pruned) and pruned_tokens: what was lost.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        assert limit >= 1
        self.limit = limit
        self.undercount = self.prunings = self.pruned_words = self.pruned_tokens = 0
        # A dictionary and two arrays: half the memory of two dictionaries.
        self._place: dict[str, int] = {}
        self._counts, self._numbers, self._next = array("Q"), array("I"), 0

    def add(self, words: Iterable[str]) -> list[int]:
        """Count the words of a passage; the number of each, in 32 bits."""
        place, counts, numbers = self._place, self._counts, self._numbers
        found = []
        for word in words:
            i = place.get(word)
            if i is None:
                i = place[word] = len(counts)
                counts.append(0)
                numbers.append(self._next)
                self._next += 1
            counts[i] += 1
            found.append(numbers[i])
        if len(place) > self.limit:
            self._prune()
        return found

    def __len__(self) -> int:
        """How many words are held."""
        return len(self._place)

    @property
    def tokens(self) -> int:
        """Σ c, the words counted but for the pruned."""
        return int(np.array(self._counts).sum())

    @property
    def counts(self) -> dict[str, int]:
        """c of every word that is held, in the order in which they were taken up."""
        return dict(zip(self._place, self._counts, strict=True))

    def most_frequent(self, least: int) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
        """Words with c >= `least`, the most frequent first, then in alphabetical order; their numbers, their counts."""
        counts, numbers = np.array(self._counts), np.array(self._numbers)
        kept = counts >= least
        words = list(compress(self._place, kept))
        counts, numbers = counts[kept], numbers[kept]
        order = sorted(range(len(words)), key=lambda i: (-int(counts[i]), words[i]))
        return tuple(words[i] for i in order), numbers[order], counts[order]

    def _prune(self) -> None:
        """Words of one count go or stay together, so that no order of the text decides between them."""
        counts = np.array(self._counts)
        place = len(counts) - 1 - self.limit // 2
        last = int(np.partition(counts, place)[place])
        kept = counts > last
        self.undercount += last
        self.prunings += 1
        self.pruned_words += int((~kept).sum())
        self.pruned_tokens += int(counts[~kept].sum())
        self._place = {word: i for i, word in enumerate(compress(self._place, kept))}
        self._counts = array("Q", counts[kept].tobytes())
        self._numbers = array("I", np.array(self._numbers)[kept].tobytes())
