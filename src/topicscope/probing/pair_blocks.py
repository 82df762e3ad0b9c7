"""Sums of attention over a block of queries and keys, by class of pair.

Axes: b unit of the block, c configuration, k pair class, h head, q query, j key.
"""

from collections.abc import Sequence

import numpy as np
import torch

from topicscope.probing.sides import Side, both_first, count_codes, pair_codes
from topicscope.topics.pairs import PairClass

# The classes whose pairs are also counted by distance, for the distance-matched ratios.
BINNED = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)
# |i-j| exactly up to 32 tokens, then bins that widen by a fifth, up to far beyond any window.
DISTANCE_EDGES = np.unique(np.concatenate([np.arange(1, 33), np.round(32 * 1.2 ** np.arange(1, 32))])).astype(np.int64)
NUM_BINS = len(DISTANCE_EDGES)


def distance_bin(distance: np.ndarray) -> np.ndarray:
    """Bin of each distance |i-j| >= 1; distance 0 (only between two sequences) shares the first bin."""
    return np.asarray(np.searchsorted(DISTANCE_EDGES, np.maximum(distance, 1), side="right") - 1)


class PairBlock:
    """Sums over the pairs of a block whose attention comes layer by layer; a row's pieces of one word are averaged."""

    def __init__(self, query: Side, key: Side, *, causal: bool, classes: Sequence[PairClass], device: str) -> None:
        codes = pair_codes(query, key, causal=causal)
        counted = both_first(query, key)
        self.counts = count_codes(codes, counted, classes)  # [b, c, k]
        self._codes = codes.to(device)  # [b, c, q, j]
        self._classes = torch.tensor([int(k) for k in classes], dtype=torch.int8, device=device)
        self._counted = counted
        self._distance = (query.place[:, :, None] - key.place[:, None, :]).abs()
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

    def by_distance(self, readings: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts [b, c, binned class, bin] of the attention averaged over `readings` layers and heads."""
        b, c = self._codes.shape[:2]
        attention = self._pooled.double().cpu().numpy() / readings
        bins, codes = distance_bin(self._distance.numpy()), self._codes.cpu().numpy()
        counted = self._counted.numpy()
        sums, counts = np.zeros((2, b, c, len(BINNED), NUM_BINS))
        for k, pair_class in enumerate(BINNED):
            unit, configuration, row, column = np.nonzero(codes == pair_class)
            pairs = unit, row, column
            flat = (unit * c + configuration) * NUM_BINS + bins[pairs]
            for found, weights in ((sums, attention[pairs]), (counts, counted[pairs])):
                found[:, :, k] = np.bincount(flat, weights, b * c * NUM_BINS).reshape(b, c, NUM_BINS)
        return sums, counts


def row_weights(query: Side, *, causal: bool) -> torch.Tensor:
    """[b, q, w]: the weight of a row, 1/pieces, and in a causal part the factor (i+1)/100 upon it."""
    weights = [1 / query.pieces, query.rank.float() / 100] if causal else [1 / query.pieces]
    return torch.stack(weights, -1)
