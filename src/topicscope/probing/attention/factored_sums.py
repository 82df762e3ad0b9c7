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
from dataclasses import dataclass

import numpy as np
import torch

from topicscope.probing.attention.blocks import BatchSums, PairBlock, row_weights
from topicscope.probing.attention.positions import TokenPositions, later_keys
from topicscope.probing.hf import ROW_SUM_TOLERANCE, Factors, NotFactored, PartSpec
from topicscope.topics import NOT_A_WORD, PairClass

# The last class, no_topic, is what is left.
BUILT = tuple(k for k in PairClass if k != PairClass.no_topic)
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

    def of_tokens(self, asking: torch.Tensor, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q [asking, h, d], ℓ [asking, h] and k [asked, h, d] in float32, with a key for each query head."""
        query = torch.unflatten(self.query.index_select(0, asking), 1, (-1, self._width))
        key = torch.unflatten(self.key.index_select(0, asked), 1, (-1, self._width))
        normaliser = self.normaliser.index_select(0, asking)
        if self._heads is not None:
            query, normaliser = query[:, self._heads], normaliser[:, self._heads]
        if self._key_heads is not None:
            key = key[:, self._key_heads]
        return query.float(), normaliser, key.float()

    def pairs(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """A [p, h] of single pairs of tokens."""
        pieces = []
        for some in torch.split(torch.stack([query, key]), PAIRS_AT_A_TIME, 1):
            q, normaliser, k = self.of_tokens(some[0], some[1])
            pieces.append(((q * k).sum(-1) * self.scale - normaliser).exp_())
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
        query, normaliser, key = layer.of_tokens(*self.tokens)
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
    groups: list[list[int]] = []
    area = [0, 0]
    for row in sizes.prod(1).argsort(stable=True).tolist():
        size = sizes[row].tolist()
        if not size[0] * size[1]:
            continue
        area = [max(pair) for pair in zip(area, size, strict=True)]
        if not groups or (len(groups[-1]) + 1) * area[0] * area[1] > limit:
            groups.append([])
            area = size
        groups[-1].append(row)

    length = query.shape[1]
    for rows in groups:
        sides = []
        for chosen in (query[rows], key[rows]):
            count = chosen.sum(1)
            places = (~chosen).to(torch.int8).argsort(dim=1, stable=True)[:, : int(count.max())]
            sides.append((places, torch.arange(places.shape[1]) < count[:, None]))
        (queries, query_valid), (keys, key_valid) = sides
        later = (keys[:, None, :] > queries[:, :, None]).to(device) if part.causal else None
        first = units[rows][:, None] * length
        tokens = (first + queries).flatten().to(device), (first + keys).flatten().to(device)
        yield Block(units[rows], queries, query_valid, keys, key_valid, later, tokens)


class FactoredSums(BatchSums):
    """Sums from the factors of attention."""

    def __init__(self, part: PartSpec, query: TokenPositions, key: TokenPositions, device: str) -> None:
        self.pairs, self.layers = [], {}
        self._part, self._device = part, device
        units, length = torch.arange(len(query.words)), query.words.shape[1]
        self._last = int(query.rank[0].max()) - 1  # of the first unit
        weights = torch.cumprod(row_weights(query, causal=part.causal), -1)  # [b, L, w]
        asking, asked = query.words != NOT_A_WORD, key.words != NOT_A_WORD  # [b, L]: where a word stands
        self._total = (weights * asking[:, :, None]).sum(1).double()  # [b, w]

        # All pairs of words [b, query, key], those of one occurrence, and those of a repeated word without a topic.
        # Half the width is twice as fast to compare.
        words = asking[:, :, None] & asked[:, None, :]
        if part.causal:
            words &= ~later_keys(query, key)
        own = words & (query.place.int()[:, :, None] == key.place.int()[:, None, :])
        repeated = words & ~own & (query.words.int()[:, :, None] == key.words.int()[:, None, :])
        repeated &= ~query.has_topic[:, :, None]
        others = (key.rank > 0) & ~asked

        # T × T
        self._topical = list(make_blocks(units, query.has_topic, key.has_topic, part, device))
        for block in self._topical:
            queries = query.take(block.rows, block.query, block.query_valid)
            keys = key.take(block.rows, block.key, block.key_valid)
            rows = block.rows.numpy()
            self.pairs.append(PairBlock(rows, queries, keys, causal=part.causal, classes=BUILT, device=device))
        # R × R, one set for each repeated word of a unit
        unit, place = repeated.any(2).nonzero(as_tuple=True)
        of, word = torch.unique(torch.stack([unit, query.words[unit, place]]), dim=1).unbind()
        sets = query.words[of] == word[:, None], key.words[of] == word[:, None]
        self._repeated = [(b, self._masks(b, repeated, weights)) for b in make_blocks(of, *sets, part, device)]
        # U × X
        outside = asking[:, :, None] & others[:, None, :]
        around = make_blocks(units, asking, others, part, device)
        self._outside = [(b, self._masks(b, outside, weights)) for b in around]
        # Single pairs of one occurrence
        unit, row, column = own.nonzero(as_tuple=True)
        self._own = unit.to(device), (unit * length + row).to(device), (unit * length + column).to(device)
        self._own_weights = weights[unit, row].to(device)

        # Pairs of words are counted where both stand at their first token.
        counted = words & ~own & query.first[:, :, None] & key.first[:, None, :]
        self.counts = np.zeros((len(units), len(query.topics), len(PairClass)), dtype=np.int64)
        for pairs in self.pairs:
            self.counts[pairs.rows, :, : len(BUILT)] += pairs.counts
        self.counts[..., PairClass.same_word_no_topic] += (repeated & counted).sum((1, 2)).numpy()[:, None]
        self.counts[..., PairClass.no_topic] = counted.sum((1, 2)).numpy()[:, None] - self.counts.sum(-1)

    def add(self, layer: int, factors: Factors) -> None:
        """Add the factors of one layer.

        Raises:
            NotFactored: a row of the first unit does not sum to 1, or a sum is not a number.
        """
        read = LayerFactors(factors, self._part)
        keys = torch.arange(self._last + 1, device=self._device)
        error = float((read.pairs(torch.full_like(keys, self._last), keys).sum(0) - 1).abs().max())
        if not error <= ROW_SUM_TOLERANCE[read.query.dtype]:  # NaN fails as well
            raise NotFactored("its rows do not sum to 1")
        b, c = self.counts.shape[:2]
        heads, w = len(self._part.heads), self._total.shape[1]
        sums = torch.zeros(b, heads, w, c, len(PairClass), dtype=torch.float64)
        for block, pairs in zip(self._topical, self.pairs, strict=True):
            sums[block.rows, ..., : len(BUILT)] += pairs.add(block.attention(read)).double().cpu()
        repeated = torch.zeros(b, heads, w, dtype=torch.float64)
        for block, masks in self._repeated:
            repeated.index_add_(0, block.rows, torch.bmm(block.attention(read).flatten(2), masks).double().cpu())
        sums[..., PairClass.same_word_no_topic] += repeated[..., None]
        left = self._total[:, None].repeat(1, heads, 1)  # [b, h, w]
        for block, masks in self._outside:
            left[block.rows] -= torch.bmm(block.attention(read).flatten(2), masks).double().cpu()
        own = torch.zeros(b, heads, w, device=self._device)
        unit, query, key = self._own
        own.index_add_(0, unit, read.pairs(query, key)[:, :, None] * self._own_weights[:, None, :])
        sums[..., PairClass.no_topic] = (left - own.double().cpu())[..., None] - sums.sum(-1)
        if not bool(sums.isfinite().all()):
            raise NotFactored("its factors are not finite")
        self.layers[layer] = sums

    def _masks(self, block: Block, pairs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[g, m·n, w]: the weight of each pair of a block in its unit's sum."""
        chosen = pairs[block.rows[:, None, None], block.query[:, :, None], block.key[:, None, :]]
        chosen = chosen & block.query_valid[:, :, None] & block.key_valid[:, None, :]
        rows = weights[block.rows[:, None], block.query]  # [g, m, w]
        return (chosen[..., None] * rows[:, :, None]).flatten(1, 2).to(self._device)
