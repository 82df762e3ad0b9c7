"""Class sums of one part from the factors of its attention, of which only some blocks are ever built.

Of a unit with words U (T of them with a topic) and other attended tokens X, the blocks T × T (all classes between words
with topics), R × R for the places R of each repeated word without a topic, and U × X are built, and

    no topic = Σ_{i∈U} (1 - Σ_{j∈X} A_ij - Σ_{j: i's own occurrence} A_ij) - all other classes,

since rows sum to 1. This holds for every part: in a causal one A_ij = 0 where j is later, and in cross attention the
queries and the keys have sets of their own. Padding stands on the right.

Axes: b unit of the batch, g unit of a block, L position, c configuration, k pair class, h head that is read, m query,
n key, w weighting of the rows: plain, and in a causal part (i+1)/100 as well.
"""

from collections.abc import Iterator

import numpy as np
import torch

from topicscope.probing.attention.blocks import (
    BINNED,
    NUM_BAND_PAIRS,
    NUM_BINS,
    Block,
    LayerFactors,
    PairBlock,
    TopicalPairs,
    make_blocks,
    row_weights,
)
from topicscope.probing.attention.positions import TokenPositions, both_first, later_keys
from topicscope.probing.hf import ROW_SUM_TOLERANCE, Factors, NotFactored, PartSpec
from topicscope.topics import PairClass

# The last class, no_topic, is what is left.
BUILT = tuple(k for k in PairClass if k != PairClass.no_topic)


class FactoredSums:
    """Sums of one part over one batch, layer by layer. counts [b, c, k]: pairs of each class."""

    def __init__(self, part: PartSpec, query: TokenPositions, key: TokenPositions, device: str) -> None:
        self._part, self._device = part, device
        self._readings = len(part.layers) * len(part.heads)
        self._shape = (len(query.words), len(query.topics))
        self._ends = query.rank.max(1).values - 1
        self._length = query.words.shape[1]
        weights = torch.cumprod(row_weights(query, causal=part.causal), -1)  # [b, L, w]
        words = query.is_word[:, :, None] & key.is_word[:, None, :]
        if part.causal:
            words &= ~later_keys(query, key)
        own = words & _equal(query.place, key.place)
        repeated = words & ~own & _equal(query.words, key.words) & ~query.has_topic[:, :, None]
        units = torch.arange(self._shape[0])
        self._topical = [
            (block, self._pairs(block, query, key)) for block in self._blocks(units, query.has_topic, key.has_topic)
        ]
        self._repeated = [
            (block, self._masks(block, repeated, weights)) for block in self._blocks(*_by_word(repeated, query, key))
        ]
        others = (key.rank > 0) & ~key.is_word
        self._outside = [
            (block, self._masks(block, query.is_word[:, :, None] & others[:, None, :], weights))
            for block in self._blocks(units, query.is_word, others)
        ]
        unit, row, column = own.nonzero(as_tuple=True)
        self._own = unit.to(device), *((unit * self._length + p).to(device) for p in (row, column))
        self._own_weights = weights[unit, row].to(device)
        self._total = (weights * query.is_word[:, :, None]).sum(1).double()  # [b, w]
        self.counts = self._count(words & ~own & both_first(query, key), repeated & both_first(query, key))

    def layer(self, factors: Factors) -> torch.Tensor:
        """Sums [b, h, w, c, k] of one layer, in float64 on the CPU.

        Raises:
            NotFactored: a row of the first unit does not sum to 1, or a sum is not a number.
        """
        layer = LayerFactors(factors, self._part)
        self._check_a_row(layer)
        b, c = self._shape
        heads, w = len(self._part.heads), self._total.shape[1]
        sums = torch.zeros(b, heads, w, c, len(PairClass), dtype=torch.float64)
        for block, pairs in self._topical:
            sums[block.rows, ..., : len(BUILT)] += pairs.add(block.attention(layer)).double().cpu()
        repeated = torch.zeros(b, heads, w, dtype=torch.float64)
        for block, masks in self._repeated:
            repeated.index_add_(0, block.rows, _masked(block.attention(layer), masks))
        sums[..., PairClass.same_word_no_topic] += repeated[..., None]
        left = self._total[:, None].repeat(1, heads, 1)  # [b, h, w]
        for block, masks in self._outside:
            left[block.rows] -= _masked(block.attention(layer), masks)
        own = torch.zeros(b, heads, w, device=self._device)
        unit, query, key = self._own
        own.index_add_(0, unit, layer.pairs(query, key)[:, :, None] * self._own_weights[:, None, :])
        sums[..., PairClass.no_topic] = (left - own.double().cpu())[..., None] - sums.sum(-1)
        if not bool(sums.isfinite().all()):
            raise NotFactored("its factors are not finite")
        return sums

    def binned(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts [b, c, binned class, bin] of the attention averaged over layers and heads."""
        sums, counts = np.zeros((2, *self._shape, len(BINNED), NUM_BINS + NUM_BAND_PAIRS))
        for block, pairs in self._topical:
            rows = block.rows.numpy()
            sums[rows], counts[rows] = pairs.binned(self._readings)
        return sums, counts

    def topical_pairs(self) -> Iterator[TopicalPairs]:
        """Pairs of different words with topics, each once."""
        for block, pairs in self._topical:
            found = pairs.topical_pairs(self._readings)
            yield found._replace(unit=block.rows.numpy()[found.unit])

    def _blocks(self, units: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> Iterator[Block]:
        return make_blocks(units, query, key, self._part, self._device)

    def _pairs(self, block: Block, query: TokenPositions, key: TokenPositions) -> PairBlock:
        queries = query.take(block.rows, block.query, block.query_valid)
        keys = key.take(block.rows, block.key, block.key_valid)
        return PairBlock(queries, keys, causal=self._part.causal, classes=BUILT, device=self._device)

    def _masks(self, block: Block, pairs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[g, m·n, w]: the weight of each pair of a block in its unit's sum."""
        chosen = pairs[block.rows[:, None, None], block.query[:, :, None], block.key[:, None, :]]
        chosen = chosen & block.query_valid[:, :, None] & block.key_valid[:, None, :]
        rows = weights[block.rows[:, None], block.query]  # [g, m, w]
        return (chosen[..., None] * rows[:, :, None]).flatten(1, 2).to(self._device)

    def _count(self, pairs: torch.Tensor, repeated: torch.Tensor) -> np.ndarray:
        b, c = self._shape
        counts = np.zeros((b, c, len(PairClass)), dtype=np.int64)
        for block, found in self._topical:
            counts[block.rows.numpy(), :, : len(BUILT)] += found.counts
        counts[..., PairClass.same_word_no_topic] += repeated.sum((1, 2)).numpy()[:, None]
        counts[..., PairClass.no_topic] = pairs.sum((1, 2)).numpy()[:, None] - counts.sum(-1)
        return counts

    def _check_a_row(self, layer: LayerFactors) -> None:
        last = int(self._ends[0])
        keys = torch.arange(last + 1, device=self._device)
        error = float((layer.pairs(torch.full_like(keys, last), keys).sum(0) - 1).abs().max())
        if not error <= ROW_SUM_TOLERANCE[layer.query.dtype]:  # NaN fails as well
            raise NotFactored("its rows do not sum to 1")


def _equal(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """bool [b, query, key]; half the width is twice as fast to compare."""
    return query.int()[:, :, None] == key.int()[:, None, :]


def _by_word(
    repeated: torch.Tensor, query: TokenPositions, key: TokenPositions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One set for each repeated word of a unit: the unit [s] and where the word stands, bool [s, query], [s, key]."""
    unit, place = repeated.any(2).nonzero(as_tuple=True)
    units, words = torch.unique(torch.stack([unit, query.words[unit, place]]), dim=1).unbind()
    return units, query.words[units] == words[:, None], key.words[units] == words[:, None]


def _masked(attention: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Σ_mn A·mask [g, h, w] in float64 on the CPU."""
    return torch.bmm(attention.flatten(2), masks).double().cpu()
