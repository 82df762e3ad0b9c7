"""Which topics a word has under each configuration of the probe (a threshold with one topic model)."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topicscope.topics import NO_TOPIC, NOT_A_WORD, TopicAssignment

# Bands of frequency, each with a like share of the occurrences of words with topics, for ratios matched by frequency.
NUM_BANDS = 5


class Configuration(NamedTuple):
    """One way of giving topics to words: a threshold (None for a labelled word list) of one topic model."""

    threshold: float | None
    topic_seed: int
    assignment: TopicAssignment


class TopicLookup:
    """Numbers the words of the probed text and knows their topics under every configuration.

    Words without a topic are numbered as well: the same word at two positions is a class of its own.
    counts: how often each of `words` occurs; unless given, as often as it stands in `words`.
    """

    def __init__(
        self, configurations: Sequence[Configuration], words: Sequence[str], counts: np.ndarray | None = None
    ) -> None:
        self.configurations = tuple(configurations)
        occurrences = Counter(words)
        self.words = tuple(occurrences)
        self.counts = np.array(list(occurrences.values()), dtype=np.int64) if counts is None else counts
        assert len(self.counts) == len(self.words)
        self._index = {word: i for i, word in enumerate(self.words)}
        self._numbered: tuple[tuple[str, ...] | None, np.ndarray] = (None, np.zeros(0, dtype=np.int64))
        self._memberships = [c.assignment.membership(self.words) for c in self.configurations]
        self._topics = [_padded(_topic_codes(membership)) for membership in self._memberships]
        has_topic = np.zeros(len(self.words), dtype=bool)
        for membership in self._memberships:
            has_topic |= membership.any(1)
        self._bands = _bands(self.counts, has_topic)

    @classmethod
    def without_topics(cls, words: Sequence[str]) -> "TopicLookup":
        """The numbers of these words alone: no word has a topic."""
        return cls([Configuration(None, 0, TopicAssignment(1, None, "drop", (), (), None, 0, 0, ()))], words)

    def codes(self, vocabulary: tuple[str, ...]) -> np.ndarray:
        """Word index of every word of a vocabulary, then -1 twice, for the codes of tokens that are no word."""
        if vocabulary is not self._numbered[0]:
            self._numbered = vocabulary, np.append(self.encode(vocabulary), [NOT_A_WORD, NOT_A_WORD])
        return self._numbered[1]

    def encode(self, words: Sequence[str | None]) -> np.ndarray:
        """Word index of every token [position] (int64), -1 where the token is no word."""
        return np.array([NOT_A_WORD if w is None else self._index[w] for w in words], dtype=np.int64)

    def membership(self, configuration: int) -> np.ndarray:
        """Bool [word, topic] over `self.words`."""
        return self._memberships[configuration]

    def bands(self, words: np.ndarray) -> np.ndarray:
        """Frequency band 0 (rare) to NUM_BANDS - 1 of encoded words; 0 where there is no word with a topic."""
        return np.asarray(np.append(self._bands, 0)[words])

    def topics(self, configuration: int, words: np.ndarray) -> np.ndarray:
        """Topics of encoded words, in the form `classify_pairs` takes.

        int64 [..., position] where every word has at most one topic, else float32 [..., position, topic].
        """
        return np.asarray(self._topics[configuration][words])


def _bands(counts: np.ndarray, has_topic: np.ndarray) -> np.ndarray:
    """int64 [word]: words of one count share a band, so that bands hold like shares of the occurrences at best."""
    bands = np.zeros(len(counts), dtype=np.int64)
    values, place = np.unique(counts[has_topic], return_inverse=True)
    shares = np.cumsum(values * np.bincount(place, minlength=len(values)))
    if len(values):
        middle = (np.append(0, shares[:-1]) + shares) / 2
        bands[has_topic] = (middle / shares[-1] * NUM_BANDS).astype(np.int64)[place]
    return bands


def _padded(table: np.ndarray) -> np.ndarray:
    """With a last row for tokens that are no word, which NOT_A_WORD = -1 picks."""
    fill = NO_TOPIC if table.ndim == 1 else 0
    return np.concatenate([table, np.full((1, *table.shape[1:]), fill, dtype=table.dtype)])


def _topic_codes(membership: np.ndarray) -> np.ndarray:
    if membership.shape[1] == 0 or membership.sum(axis=1).max(initial=0) > 1:
        return membership.astype(np.float32)
    return np.where(membership.any(axis=1), membership.argmax(axis=1), NO_TOPIC).astype(np.int64)
