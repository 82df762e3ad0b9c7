"""What stands at each position of a batch, as the queries or the keys of a part of the model see it: words, topics.

Which topics a word has depends on the configuration of the probe (a threshold with one topic model).

Axes: b unit of the batch, m position, c configuration.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from topicscope.probing.tokens import LATER, AlignedUnit, TokenWindows
from topicscope.topics import NO_TOPIC, NOT_A_WORD, Positions, TopicAssignment, classify_pairs

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
    memberships [configuration]: bool [word, topic].
    topics [configuration]: of every word, in the form `classify_pairs` takes: int64 [word] where each has at most one
        topic, else float32 [word, topic].
    bands: int64 [word], from 0 (rare) to NUM_BANDS - 1; 0 where the word has no topic.
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

        # The last row of each table is for tokens that are no word, which NOT_A_WORD = -1 picks.
        self.memberships = [c.assignment.membership(self.words) for c in self.configurations]
        self.topics: list[np.ndarray] = []
        has_topic = np.zeros(len(self.words), dtype=bool)
        for membership in self.memberships:
            has_topic |= membership.any(1)
            if membership.shape[1] == 0 or membership.sum(axis=1).max(initial=0) > 1:
                table, fill = membership.astype(np.float32), 0
            else:
                table, fill = np.where(membership.any(1), membership.argmax(1), NO_TOPIC).astype(np.int64), NO_TOPIC
            self.topics.append(np.concatenate([table, np.full((1, *table.shape[1:]), fill, dtype=table.dtype)]))

        # Words of one count share a band, so that bands hold like shares of the occurrences at best.
        self.bands = np.zeros(len(self.words) + 1, dtype=np.int64)
        values, place = np.unique(self.counts[has_topic], return_inverse=True)
        if len(values):
            shares = np.cumsum(values * np.bincount(place, minlength=len(values)))
            middle = (np.append(0, shares[:-1]) + shares) / 2
            self.bands[:-1][has_topic] = (middle / shares[-1] * NUM_BANDS).astype(np.int64)[place]

    @classmethod
    def without_topics(cls, words: Sequence[str]) -> "TopicLookup":
        """The numbers of these words alone: no word has a topic."""
        return cls([Configuration(None, 0, TopicAssignment(1, None, "drop", (), (), None, 0, 0, ()))], words)

    def codes(self, vocabulary: tuple[str, ...]) -> np.ndarray:
        """Word index (int64) of every word of a vocabulary, then -1 twice, for the codes of tokens that are no word."""
        if vocabulary is not self._numbered[0]:
            found = [*(self._index[word] for word in vocabulary), NOT_A_WORD, NOT_A_WORD]
            self._numbered = vocabulary, np.array(found, dtype=np.int64)
        return self._numbered[1]


class TokenPositions(NamedTuple):
    """Positions of a batch, on the CPU.

    words [b, m]: word index, -1 where no word stands. topics [c]: as `Positions.topics`. band [b, m]: of the word's
    frequency. place [b, m]: where in the text the word begins. pieces [b, m]: of how many tokens the word is.
    first [b, m]: whether this is its first one. rank [b, m]: 1, 2, … over the attended tokens of the sequence.
    """

    words: torch.Tensor
    topics: tuple[torch.Tensor, ...]
    band: torch.Tensor
    place: torch.Tensor
    pieces: torch.Tensor
    first: torch.Tensor
    rank: torch.Tensor

    @property
    def has_topic(self) -> torch.Tensor:
        """[b, m]: where the word has a topic under some configuration."""
        flags = [t >= 0 if t.ndim == self.words.ndim else t.any(-1) for t in self.topics]
        return torch.stack(flags).any(0) & (self.words != NOT_A_WORD)

    def take(self, rows: torch.Tensor, columns: torch.Tensor, valid: torch.Tensor) -> "TokenPositions":
        """Positions `columns` [g, n] of the units `rows` [g]; no word stands where they are not `valid` [g, n]."""
        pick = rows[:, None], columns
        words, topics, *others = self
        words = words[pick].masked_fill(~valid, NOT_A_WORD)
        return TokenPositions(words, tuple(of[pick] for of in topics), *(other[pick] for other in others))

    def shifted(self, shift: int) -> "TokenPositions":
        """The sequence a decoder reads: the text moved `shift` to the right, so that position i holds token i - shift.

        What is moved beyond the last attended token falls out.
        """
        if shift == 0:
            return self
        attended = self.rank > 0
        words = torch.full_like(self.words, NOT_A_WORD)
        words[:, shift:] = self.words[:, :-shift]
        return TokenPositions(
            words=words.masked_fill(~attended, NOT_A_WORD),
            topics=tuple(topics.roll(shift, 1) for topics in self.topics),
            band=self.band.roll(shift, 1),
            place=self.place.roll(shift, 1),
            pieces=self.pieces.roll(shift, 1),
            first=self.first.roll(shift, 1),
            rank=self.rank,
        )


def text_positions(
    units: Sequence[AlignedUnit], attended: torch.Tensor, lookup: TopicLookup, *, aligned: bool = False
) -> TokenPositions:
    """The text of a batch, one unit a row, where `attended` [b, m] is 1; aligned: at the first positions instead."""
    length = attended.shape[1]
    where = attended.cpu().numpy().astype(bool)
    if aligned:
        where = np.arange(length) < where.sum(1, keepdims=True)
    words = np.full(where.shape, NOT_A_WORD, dtype=np.int64)
    later = np.zeros(where.shape, dtype=bool)
    text = TokenWindows.of(units)
    words[where] = lookup.codes(text.vocabulary)[text.words]
    later[where] = text.words == LATER
    # A later piece of a word carries what its first piece does.
    place = np.maximum.accumulate(np.where(later, 0, np.arange(length)), axis=1)
    words = np.take_along_axis(words, place, 1)
    pieces = np.zeros(where.shape, dtype=np.float32)
    np.add.at(pieces, (np.arange(len(where))[:, None], place), 1)
    return TokenPositions(
        words=torch.from_numpy(words),
        topics=tuple(torch.from_numpy(table[words]) for table in lookup.topics),
        band=torch.from_numpy(lookup.bands[words]),
        place=torch.from_numpy(place),
        pieces=torch.from_numpy(np.take_along_axis(pieces, place, 1)),
        first=torch.from_numpy(~later),
        rank=torch.from_numpy(np.cumsum(where, axis=1) * where),
    )


def pair_codes(query: TokenPositions, key: TokenPositions, *, causal: bool) -> torch.Tensor:
    """int8 [b, c, query, key]: the `PairClass` of each pair of positions, -1 where there is no pair."""
    codes = [
        classify_pairs(Positions(query.words, of_query, query.place), Positions(key.words, of_key, key.place))
        for of_query, of_key in zip(query.topics, key.topics, strict=True)
    ]
    stacked = torch.stack([code.to(torch.int8) for code in codes], 1)
    return stacked.masked_fill(later_keys(query, key)[:, None], -1) if causal else stacked


def later_keys(query: TokenPositions, key: TokenPositions) -> torch.Tensor:
    """bool [b, query, key]: the key comes after the query."""
    return key.rank[:, None, :] > query.rank[:, :, None]
