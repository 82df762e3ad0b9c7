"""Class sums of one part from its attention weights.

Axes: b unit of the batch, c configuration, k pair class, h head that is read, q query, j key, w weighting of the rows.
"""

from collections.abc import Iterator

import numpy as np
import torch

from topicscope.probing.attention.pair_blocks import PairBlock, TopicalPairs
from topicscope.probing.attention.positions import Side
from topicscope.probing.hf import PartSpec
from topicscope.topics import PairClass

# Pairs whose class masks are alive at a time.
PAIRS_AT_A_TIME = 1 << 19


class DenseSums:
    """Sums of one part over one batch, layer by layer. counts [b, c, k]: pairs of each class."""

    def __init__(self, part: PartSpec, query: Side, key: Side, device: str) -> None:
        units, length = query.words.shape
        positions = torch.arange(length).expand(units, length)
        everywhere = torch.ones_like(positions, dtype=torch.bool)
        self._readings = len(part.layers) * len(part.heads)
        self._blocks = []
        for rows in torch.split(torch.arange(units), max(1, PAIRS_AT_A_TIME // length**2)):
            sides = [side.take(rows, positions[rows], everywhere[rows]) for side in (query, key)]
            block = PairBlock(*sides, causal=part.causal, classes=tuple(PairClass), device=device)
            self._blocks.append((slice(int(rows[0]), int(rows[-1]) + 1), block))
        self.counts = np.concatenate([block.counts for _, block in self._blocks])

    def layer(self, attention: torch.Tensor) -> torch.Tensor:
        """Sums [b, h, w, c, k] of one layer's attention [b, h, q, j], in float64 on the CPU."""
        return torch.cat([block.add(attention[rows].clone()).double().cpu() for rows, block in self._blocks])

    def topical_pairs(self) -> Iterator[TopicalPairs]:
        """Pairs of different words with topics, each once."""
        for rows, block in self._blocks:
            pairs = block.topical_pairs(self._readings)
            yield pairs._replace(unit=pairs.unit + rows.start)

    def binned(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts [b, c, binned class, bin] of the attention averaged over layers and heads."""
        found = [block.binned(self._readings) for _, block in self._blocks]
        sums, counts = zip(*found, strict=True)
        return np.concatenate(sums), np.concatenate(counts)
