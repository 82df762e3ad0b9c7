"""Blocks of attention built from its factors: chosen queries by chosen keys of some units of a batch.

Axes: b unit of the batch, L position, g unit of a block, m query, n key, p pair, h head that is read, d its width.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from topicscope.probing.hf import Factors, PartSpec

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
