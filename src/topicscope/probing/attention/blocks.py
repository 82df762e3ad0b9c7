"""Blocks of attention built from its factors: chosen queries by chosen keys of some units of a batch.

Axes: b unit of the batch, L position, g unit of a block, m query, n key, p pair, h head that is read, d its width.

Sums of attention over a block of queries and keys, by class of pair.

Axes: b unit of the block, c configuration, k pair class, h head, q query, j key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from topicscope.probing.attention.positions import TokenPositions, both_first, count_codes, pair_codes
from topicscope.probing.attention.topic_lookup import NUM_BANDS
from topicscope.probing.hf import Factors, PartSpec
from topicscope.topics import PairClass

# Probabilities alive at a time: on a CPU what its cache holds, elsewhere what keeps the device busy.
CPU_BLOCK, DEVICE_BLOCK = 1 << 20, 1 << 26
PAIRS_AT_A_TIME = 2048


class LayerFactors:
    """The factors of one layer, token by token: unit u's token at position i is number u·L + i."""

    def __init__(self, factors: Factors, part: PartSpec) -> None:
        self.scale = factors.scale
        self.query, self.key = (t.transpose(1, 2).flatten(2).flatten(0, 1) for t in (factors.query, factors.key))
        self.normaliser = factors.normaliser.transpose(1, 2).flatten(0, 1)
        self._width = factors.query.shape[-1]
        groups = factors.query.shape[1] // factors.key.shape[1]
        self._heads = None if part.only_heads is None else list(part.heads)
        self._key_heads = None if groups == 1 and self._heads is None else [h // groups for h in part.heads]

    def queries(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """q [token, h, d] and ℓ [token, h] in float32."""
        rows = self.query.index_select(0, tokens)
        rows = rows.reshape(len(rows), rows.shape[1] // self._width, self._width)
        normaliser = self.normaliser.index_select(0, tokens)
        if self._heads is not None:
            rows, normaliser = rows[:, self._heads], normaliser[:, self._heads]
        return rows.float(), normaliser

    def keys(self, tokens: torch.Tensor) -> torch.Tensor:
        """k [token, h, d] in float32, one for each query head."""
        rows = self.key.index_select(0, tokens)
        rows = rows.reshape(len(rows), rows.shape[1] // self._width, self._width)
        return (rows if self._key_heads is None else rows[:, self._key_heads]).float()

    def pairs(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """A [p, h] of single pairs of tokens."""
        pieces = []
        for some in torch.split(torch.stack([query, key]), PAIRS_AT_A_TIME, 1):
            rows, normaliser = self.queries(some[0])
            pieces.append(((rows * self.keys(some[1])).sum(-1) * self.scale - normaliser).exp_())
        return torch.cat(pieces)


@dataclass(frozen=True)
class Block:
    """Some sets of queries and keys, each within one unit, padded to one number of either.

    rows [g]: the units, of which one may have several sets. query [g, m], key [g, n]: positions, and which of them are
    chosen: query_valid, key_valid. tokens: their numbers in `LayerFactors`, flat.
    later [g, m, n]: where the key comes after the query, in a causal part. All on the CPU but `later` and `tokens`.
    """

    rows: torch.Tensor
    query: torch.Tensor
    query_valid: torch.Tensor
    key: torch.Tensor
    key_valid: torch.Tensor
    later: torch.Tensor | None
    tokens: tuple[torch.Tensor, torch.Tensor]

    def attention(self, layer: LayerFactors) -> torch.Tensor:
        """A [g, h, m, n] of one layer, 0 where the key is later; anything where a place is not valid."""
        (g, m), n = self.query.shape, self.key.shape[1]
        query, normaliser = layer.queries(self.tokens[0])
        key = layer.keys(self.tokens[1])
        h = query.shape[1]
        query = query.reshape(g, m, h, -1).transpose(1, 2).reshape(g * h, m, -1)
        key = key.reshape(g, n, h, -1).permute(0, 2, 3, 1).reshape(g * h, -1, n)
        start = normaliser.reshape(g, m, h).transpose(1, 2).reshape(g * h, m, 1)
        # One product gives s q·k - ℓ.
        scores = torch.baddbmm(start, query, key, beta=-1, alpha=layer.scale)
        attention = scores.exp_().reshape(g, h, m, n)
        return attention if self.later is None else attention.masked_fill_(self.later[:, None], 0)


def make_blocks(
    units: torch.Tensor, query: torch.Tensor, key: torch.Tensor, part: PartSpec, device: str
) -> Iterator[Block]:
    """Blocks of the positions where `query` [s, L] and `key` [s, L] hold in `units` [s], sets of like size together."""
    limit = (CPU_BLOCK if torch.device(device).type == "cpu" else DEVICE_BLOCK) // len(part.heads)
    sizes = torch.stack([query.sum(1), key.sum(1)], 1)
    order = sizes.prod(1).argsort(stable=True).tolist()
    rows: list[int] = []
    area = [0, 0]
    for row in [r for r in order if int(sizes[r].prod())]:
        grown = [max(a, int(size)) for a, size in zip(area, sizes[row], strict=True)]
        if rows and (len(rows) + 1) * grown[0] * grown[1] > limit:
            yield _block(rows, units, query, key, part, device)
            rows, grown = [], sizes[row].tolist()
        rows.append(row)
        area = grown
    if rows:
        yield _block(rows, units, query, key, part, device)


def _block(
    rows: list[int], units: torch.Tensor, query: torch.Tensor, key: torch.Tensor, part: PartSpec, device: str
) -> Block:
    units, length = units[rows], query.shape[1]
    sides = []
    for chosen in (query[rows], key[rows]):
        count = chosen.sum(1)
        places = (~chosen).to(torch.int8).argsort(dim=1, stable=True)[:, : int(count.max())]
        sides.append((places, torch.arange(places.shape[1]) < count[:, None]))
    (queries, query_valid), (keys, key_valid) = sides
    later = (keys[:, None, :] > queries[:, :, None]).to(device) if part.causal else None
    tokens = ((units[:, None] * length + queries).flatten(), (units[:, None] * length + keys).flatten())
    return Block(units, queries, query_valid, keys, key_valid, later, (tokens[0].to(device), tokens[1].to(device)))


# The classes whose pairs are also counted by distance and by frequency, for the matched ratios.
BINNED = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)
# |i-j| exactly up to 32 tokens, then bins that widen by a fifth, up to far beyond any window.
DISTANCE_EDGES = np.unique(np.concatenate([np.arange(1, 33), np.round(32 * 1.2 ** np.arange(1, 32))])).astype(np.int64)
NUM_BINS = len(DISTANCE_EDGES)
NUM_BAND_PAIRS = NUM_BANDS**2
TOPICAL = (PairClass.same_topic, PairClass.different_topic)


def distance_bin(distance: np.ndarray) -> np.ndarray:
    """Bin of each distance |i-j| >= 1; distance 0 (only between two sequences) shares the first bin."""
    return np.asarray(np.searchsorted(DISTANCE_EDGES, np.maximum(distance, 1), side="right") - 1)


class TopicalPairs(NamedTuple):
    """Pairs of two different words with topics under some configuration, one by one.

    unit [pair]: row of the batch. entries [pair, 3]: query word, key word, bin of distance. attention [pair]: mean over
    layers and heads. counts [pair]: 1, or 0 at further pieces of a word.
    """

    unit: np.ndarray
    entries: np.ndarray
    attention: np.ndarray
    counts: np.ndarray


class PairBlock:
    """Sums over the pairs of a block whose attention comes layer by layer; a row's pieces of one word are averaged."""

    def __init__(
        self, query: TokenPositions, key: TokenPositions, *, causal: bool, classes: Sequence[PairClass], device: str
    ) -> None:
        codes = pair_codes(query, key, causal=causal)
        counted = both_first(query, key)
        self.counts = count_codes(codes, counted, classes)  # [b, c, k]
        self._codes = codes.to(device)  # [b, c, q, j]
        self._classes = torch.tensor([int(k) for k in classes], dtype=torch.int8, device=device)
        self._counted = counted
        self._distance = (query.place[:, :, None] - key.place[:, None, :]).abs()
        self._query, self._key = query, key
        # Each weighting is a factor upon the one before, so that one buffer serves all.
        weights = row_weights(query, causal=causal).unbind(-1)
        self._weights = [None if bool((w == 1).all()) else w[:, None, :, None].to(device) for w in weights]
        self._pooled = torch.zeros(codes.shape[0], *codes.shape[2:], device=device)

    def add(self, attention: torch.Tensor) -> torch.Tensor:
        """Sums [b, h, w, c, k] of one layer's attention [b, h, q, j], which is overwritten; w: see `row_weights`."""
        b, h, q, j = attention.shape
        masks = (self._codes[:, :, None] == self._classes[:, None, None]).to(attention.dtype)
        c, k = masks.shape[1:3]
        masks = masks.reshape(b, c * k, q * j).transpose(1, 2)
        sums = []
        for number, weight in enumerate(self._weights):
            if weight is not None:
                attention *= weight
            if number == 0:
                self._pooled += attention.sum(1)
            sums.append(torch.bmm(attention.reshape(b, h, q * j), masks).reshape(b, h, c, k))
        return torch.stack(sums, 2)

    def binned(self, readings: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts [b, c, binned class, bin] of the attention averaged over `readings` layers and heads.

        The bins: those of distance, then the bands of the query's and the key's frequency.
        """
        b, c = self._codes.shape[:2]
        attention = self._pooled.double().cpu().numpy() / readings
        bins, codes = distance_bin(self._distance.numpy()), self._codes.cpu().numpy()
        query_band, key_band = self._query.band.numpy(), self._key.band.numpy()
        counted = self._counted.numpy()
        sums, counts = np.zeros((2, b, c, len(BINNED), NUM_BINS + NUM_BAND_PAIRS))
        for k, pair_class in enumerate(BINNED):
            unit, configuration, row, column = np.nonzero(codes == pair_class)
            pairs = unit, row, column
            bands = query_band[unit, row] * NUM_BANDS + key_band[unit, column]
            start = 0
            for size, places in ((NUM_BINS, bins[pairs]), (NUM_BAND_PAIRS, bands)):
                flat = (unit * c + configuration) * size + places
                for found, weights in ((sums, attention[pairs]), (counts, counted[pairs])):
                    total = np.bincount(flat, weights, b * c * size)
                    found[:, :, k, start : start + size] = total.reshape(b, c, size)
                start += size
        return sums, counts

    def topical_pairs(self, readings: int) -> TopicalPairs:
        """Pairs of different words with topics; `unit` is the row of the block."""
        chosen = torch.stack([(self._codes == k).any(1) for k in TOPICAL]).any(0)
        unit, row, column = pairs = np.nonzero(chosen.cpu().numpy())
        words = self._query.words.numpy()[unit, row], self._key.words.numpy()[unit, column]
        return TopicalPairs(
            unit=unit,
            entries=np.stack([*words, distance_bin(self._distance.numpy()[pairs])], 1),
            attention=self._pooled.double().cpu().numpy()[pairs] / readings,
            counts=self._counted.numpy()[pairs],
        )


def row_weights(query: TokenPositions, *, causal: bool) -> torch.Tensor:
    """[b, q, w]: the weight of a row, 1/pieces, and in a causal part the factor (i+1)/100 upon it."""
    weights = [1 / query.pieces, query.rank.float() / 100] if causal else [1 / query.pieces]
    return torch.stack(weights, -1)
