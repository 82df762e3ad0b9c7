"""Which topics a word has under each configuration of the probe (a threshold with one topic model)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topicscope.topics.assignment import TopicAssignment
from topicscope.topics.pairs import NO_TOPIC, NOT_A_WORD


class Configuration(NamedTuple):
    """One way of giving topics to words: a threshold (None for a labelled word list) of one topic model."""

    threshold: float | None
    topic_seed: int
    assignment: TopicAssignment


class TopicLookup:
    """Numbers the words of the probed text and knows their topics under every configuration.

    Words without a topic are numbered as well: the same word at two positions is a class of its own.
    """

    def __init__(self, configurations: Sequence[Configuration], words: Sequence[str]) -> None:
        self.configurations = tuple(configurations)
        self.words = tuple(dict.fromkeys(words))
        self._index = {word: i for i, word in enumerate(self.words)}
        self._memberships = [c.assignment.membership(self.words) for c in self.configurations]
        self._topics = [_topic_codes(membership) for membership in self._memberships]

    def encode(self, words: Sequence[str | None]) -> np.ndarray:
        """Word index of every token [position] (int64), -1 where the token is no word."""
        return np.array([NOT_A_WORD if w is None else self._index[w] for w in words], dtype=np.int64)

    def membership(self, configuration: int) -> np.ndarray:
        """Bool [word, topic] over `self.words`."""
        return self._memberships[configuration]

    def topics(self, configuration: int, words: np.ndarray) -> np.ndarray:
        """Topics of encoded words, in the form `classify_pairs` takes.

        int64 [..., position] where every word has at most one topic, else float32 [..., position, topic].
        """
        table = self._topics[configuration]
        fill = NO_TOPIC if table.ndim == 1 else 0
        padded = np.concatenate([table, np.full((1, *table.shape[1:]), fill, dtype=table.dtype)])
        return np.asarray(padded[words])


def _topic_codes(membership: np.ndarray) -> np.ndarray:
    if membership.shape[1] == 0 or membership.sum(axis=1).max(initial=0) > 1:
        return membership.astype(np.float32)
    return np.where(membership.any(axis=1), membership.argmax(axis=1), NO_TOPIC).astype(np.int64)
