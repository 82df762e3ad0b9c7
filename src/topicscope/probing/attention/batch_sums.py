"""Sums of attention over a batch, by class of pair, of one part: from its weights, or from their factors.

From factors only some blocks of attention are ever built. Of a unit with words U (T of them with a topic) and other
attended tokens X, these are T × T (all classes between words with topics), R × R for the places R of each repeated word
without a topic, and U × X, and

    no topic = Σ_{i∈U} (1 - Σ_{j∈X} A_ij - Σ_{j: i's own occurrence} A_ij) - all other classes,

since rows sum to 1. This holds for every part: in a causal one A_ij = 0 where j is later, and in cross attention the
queries and the keys have sets of their own. Padding stands on the right.

Axes: b unit of the batch (of a `PairBlock`: of the block), g set of a `Block`, L position, c configuration, k pair
class, h head that is read; q query and j key, in a `Block` m and n; w weighting of the rows: plain, and in a causal
part (i+1)/100 as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from topicscope.probing.attention.positions import NUM_BANDS, TokenPositions, later_keys, pair_codes
from topicscope.probing.hf import ROW_SUM_TOLERANCE, Factors, NotFactored, PartSpec
from topicscope.topics import NOT_A_WORD, PairClass

# Pairs whose class masks are alive at a time.
PAIRS_AT_A_TIME = 1 << 19
# The classes whose pairs are also counted by distance and by frequency, for the matched ratios.
BINNED = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)
# |i-j| exactly up to 32 tokens, then bins that widen by a fifth, up to far beyond any window.
DISTANCE_EDGES = np.unique(np.concatenate([np.arange(1, 33), np.round(32 * 1.2 ** np.arange(1, 32))])).astype(np.int64)
NUM_BINS = len(DISTANCE_EDGES)
NUM_BAND_PAIRS = NUM_BANDS**2
TOPICAL = (PairClass.same_topic, PairClass.different_topic)
# The last class, no_topic, is what is left.
BUILT = tuple(k for k in PairClass if k != PairClass.no_topic)
# Probabilities alive at a time: on a CPU what its cache holds, elsewhere what keeps the device busy.
CPU_BLOCK, DEVICE_BLOCK = 1 << 20, 1 << 26
SINGLE_PAIRS_AT_A_TIME = 2048


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
        for some in torch.split(torch.stack([query, key]), SINGLE_PAIRS_AT_A_TIME, 1):
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
