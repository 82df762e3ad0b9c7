"""What stands at each position of a batch, as the queries or the keys of a part of the model see it.

Axes: b unit of the batch, m position, c configuration.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from topicscope.probing.attention.topic_lookup import TopicLookup
from topicscope.probing.tokens import LATER, AlignedUnit, TokenWindows
from topicscope.topics import NOT_A_WORD, PairClass, Positions, classify_pairs


class TokenPositions(NamedTuple):
    """Positions of a batch, on the CPU.

    words [b, m]: word index, -1 where no word stands. topics [c]: as `Positions.topics`. band [b, m]: of
    the word's frequency. place [b, m]: where in the
    text the word begins. pieces [b, m]: of how many tokens the word is. first [b, m]: whether this is its first one.
    rank [b, m]: 1, 2, … over the attended tokens of the sequence.
    """

    words: torch.Tensor
    topics: tuple[torch.Tensor, ...]
    band: torch.Tensor
    place: torch.Tensor
    pieces: torch.Tensor
    first: torch.Tensor
    rank: torch.Tensor

    @property
    def is_word(self) -> torch.Tensor:
        """[b, m]: where a word stands."""
        return self.words != NOT_A_WORD

    @property
    def has_topic(self) -> torch.Tensor:
        """[b, m]: where the word has a topic under some configuration."""
        flags = [t >= 0 if t.ndim == self.words.ndim else t.any(-1) for t in self.topics]
        return torch.stack(flags).any(0) & self.is_word

    def take(self, rows: torch.Tensor, columns: torch.Tensor, valid: torch.Tensor) -> "TokenPositions":
        """Positions `columns` [g, n] of the units `rows` [g]; no word stands where they are not `valid` [g, n]."""
        pick = rows[:, None], columns
        return TokenPositions(
            words=self.words[pick].masked_fill(~valid, NOT_A_WORD),
            topics=tuple(topics[pick] for topics in self.topics),
            band=self.band[pick],
            place=self.place[pick],
            pieces=self.pieces[pick],
            first=self.first[pick],
            rank=self.rank[pick],
        )

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
        topics=tuple(torch.from_numpy(lookup.topics(c, words)) for c in range(len(lookup.configurations))),
        band=torch.from_numpy(lookup.bands(words)),
        place=torch.from_numpy(place),
        pieces=torch.from_numpy(np.take_along_axis(pieces, place, 1)),
        first=torch.from_numpy(~later),
        rank=torch.from_numpy(np.cumsum(where, axis=1) * where),
    )


def pair_codes(query: TokenPositions, key: TokenPositions, *, causal: bool) -> torch.Tensor:
    """int8 [b, c, query, key]: the `PairClass` of each pair of positions, -1 where there is no pair."""
    codes = []
    for query_topics, key_topics in zip(query.topics, key.topics, strict=True):
        code = classify_pairs(
            Positions(query.words, query_topics, query.place), Positions(key.words, key_topics, key.place)
        )
        codes.append(code.to(torch.int8))
    stacked = torch.stack(codes, 1)
    return stacked.masked_fill(later_keys(query, key)[:, None], -1) if causal else stacked


def later_keys(query: TokenPositions, key: TokenPositions) -> torch.Tensor:
    """bool [b, query, key]: the key comes after the query."""
    return key.rank[:, None, :] > query.rank[:, :, None]


def both_first(query: TokenPositions, key: TokenPositions) -> torch.Tensor:
    """bool [b, query, key]: one of these pairs of positions for each pair of words."""
    return query.first[:, :, None] & key.first[:, None, :]


def count_codes(codes: torch.Tensor, counted: torch.Tensor, classes: Sequence[PairClass]) -> np.ndarray:
    """int64 [b, c, class]: pairs of each class where `counted` [b, query, key]."""
    kept = codes.masked_fill(~counted[:, None], -1)
    return np.stack([(kept == k).sum((-1, -2)).numpy() for k in classes], axis=-1)
