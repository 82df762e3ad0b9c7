"""Sums of attention over a block of queries and keys, by class of pair, and over a batch of such blocks.

Axes: b unit of the block, c configuration, k pair class, h head that is read, q query, j key, w weighting of the rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from topicscope.probing.attention.positions import NUM_BANDS, TokenPositions, pair_codes
from topicscope.probing.hf import PartSpec
from topicscope.topics import PairClass

# Pairs whose class masks are alive at a time.
PAIRS_AT_A_TIME = 1 << 19
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
    """Sums over the pairs of a block whose attention comes layer by layer; a row's pieces of one word are averaged.

    rows [b]: which units of the batch these are. counts int64 [b, c, k]: pairs of each of the `classes`.
    """

    def __init__(
        self,
        rows: np.ndarray,
        query: TokenPositions,
        key: TokenPositions,
        *,
        causal: bool,
        classes: Sequence[PairClass],
        device: str,
    ) -> None:
        codes = pair_codes(query, key, causal=causal)
        # One of the pairs of positions for each pair of words.
        counted = query.first[:, :, None] & key.first[:, None, :]
        kept = codes.masked_fill(~counted[:, None], -1)
        self.rows = rows
        self.counts = np.stack([(kept == k).sum((-1, -2)).numpy() for k in classes], axis=-1)
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
        """Pairs of different words with topics."""
        chosen = torch.stack([(self._codes == k).any(1) for k in TOPICAL]).any(0)
        unit, row, column = pairs = np.nonzero(chosen.cpu().numpy())
        words = self._query.words.numpy()[unit, row], self._key.words.numpy()[unit, column]
        return TopicalPairs(
            unit=self.rows[unit],
            entries=np.stack([*words, distance_bin(self._distance.numpy()[pairs])], 1),
            attention=self._pooled.double().cpu().numpy()[pairs] / readings,
            counts=self._counted.numpy()[pairs],
        )


def row_weights(query: TokenPositions, *, causal: bool) -> torch.Tensor:
    """[b, q, w]: the weight of a row, 1/pieces, and in a causal part the factor (i+1)/100 upon it."""
    weights = [1 / query.pieces, query.rank.float() / 100] if causal else [1 / query.pieces]
    return torch.stack(weights, -1)


class BatchSums:
    """Sums of one part over one batch, layer by layer; see `DenseSums` and `FactoredSums`.

    pairs: the blocks that hold single pairs, each unit in one of them at most. layers: sums [b, h, w, c, k] of each
    layer that was read, in float64 on the CPU. counts [b, c, k]: pairs of each class.
    """

    pairs: list[PairBlock]
    layers: dict[int, torch.Tensor]
    counts: np.ndarray


class DenseSums(BatchSums):
    """Sums from attention weights."""

    def __init__(self, part: PartSpec, query: TokenPositions, key: TokenPositions, device: str) -> None:
        self.pairs, self.layers = [], {}
        units, length = query.words.shape
        positions = torch.arange(length).expand(units, length)
        everywhere = torch.ones_like(positions, dtype=torch.bool)
        for rows in torch.split(torch.arange(units), max(1, PAIRS_AT_A_TIME // length**2)):
            sides = [side.take(rows, positions[rows], everywhere[rows]) for side in (query, key)]
            block = PairBlock(rows.numpy(), *sides, causal=part.causal, classes=tuple(PairClass), device=device)
            self.pairs.append(block)
        self.counts = np.concatenate([block.counts for block in self.pairs])

    def add(self, layer: int, attention: torch.Tensor) -> None:
        """Add one layer's attention [b, h, q, j]."""
        sums = []
        for block in self.pairs:
            units = slice(int(block.rows[0]), int(block.rows[-1]) + 1)
            sums.append(block.add(attention[units].clone()).double().cpu())
        self.layers[layer] = torch.cat(sums)
