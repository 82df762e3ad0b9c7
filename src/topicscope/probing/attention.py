"""Sums of attention over pairs of words, per document, layer, head and pair class (Knowl 8).

For a unit (sentence or passage) whose L tokens are attended, every ordered pair of words at two positions i ≠ j adds
A_ij · L/100 to the sum of its class and 1 to its count; a causal model only has pairs with j <= i. The factor L/100
is the paper's correction for length: a row of attention sums to 1 over L keys. A row i of a causal model sums to 1
over its i+1 keys, so there A_ij · (i+1)/100 is summed as well (the position-corrected form).

Axes: b unit of the batch, c configuration, k pair class, h head, q query, j key, d document, l layer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from topicscope.probing.alignment import AlignedUnit
from topicscope.probing.batches import Batch
from topicscope.probing.lookup import TopicLookup
from topicscope.probing.model import ModelView, PartSpec
from topicscope.topics.pairs import NOT_A_WORD, PairClass, Positions, classify_pairs

NUM_CLASSES = len(PairClass)
# The classes whose pairs are also counted by distance, for the distance-matched ratios.
BINNED = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)
# |i-j| exactly up to 32 tokens, then bins that widen by a fifth, up to far beyond any window.
DISTANCE_EDGES = np.unique(np.concatenate([np.arange(1, 33), np.round(32 * 1.2 ** np.arange(1, 32))])).astype(np.int64)
NUM_BINS = len(DISTANCE_EDGES)


def distance_bin(distance: np.ndarray) -> np.ndarray:
    """Bin of each distance |i-j| >= 1; distance 0 (only between two sequences) shares the first bin."""
    return np.asarray(np.searchsorted(DISTANCE_EDGES, np.maximum(distance, 1), side="right") - 1)


@dataclass
class PartSums:
    """Sums of one part of the model over some documents; float64 sums, int64 counts."""

    part: PartSpec
    heads: np.ndarray  # [document, configuration, layer, head, class]
    corrected: np.ndarray | None  # the same with (i+1)/100 for L/100; causal parts only
    counts: np.ndarray  # [document, configuration, class]
    binned: np.ndarray  # [document, configuration, binned class, distance bin], mean over layers and heads
    binned_counts: np.ndarray  # the same shape

    @classmethod
    def zeros(cls, part: PartSpec, documents: int, configurations: int) -> "PartSums":
        """Nothing summed yet."""
        heads = np.zeros((documents, configurations, part.num_layers, part.num_heads, NUM_CLASSES))
        bins = (documents, configurations, len(BINNED), NUM_BINS)
        return cls(
            part=part,
            heads=heads,
            corrected=np.zeros_like(heads) if part.causal else None,
            counts=np.zeros((documents, configurations, NUM_CLASSES), dtype=np.int64),
            binned=np.zeros(bins),
            binned_counts=np.zeros(bins, dtype=np.int64),
        )


class _PartBatch:
    """One batch seen by one part: its classes as masks, so that each layer costs one batched matrix product."""

    def __init__(self, part: PartSpec, positions: Sequence[Positions], attended: torch.Tensor, device: str) -> None:
        classes = []
        for words_topics in positions:
            query, key = _shifted(words_topics, part.query_shift), _shifted(words_topics, part.key_shift)
            code = classify_pairs(query, key)
            if part.causal:
                code = code.masked_fill(torch.ones_like(code[0], dtype=torch.bool).triu(1), -1)
            classes.append(code.to(torch.int8))
        self.part = part
        self.classes = torch.stack(classes, 1)  # [b, c, q, j]
        b, c, q, j = self.classes.shape
        one_hot = self.classes[:, :, None] == torch.arange(NUM_CLASSES)[:, None, None]
        self.counts = one_hot.sum((-1, -2)).numpy()  # [b, c, k]
        self._masks = one_hot.reshape(b, c * NUM_CLASSES, q * j).to(device, torch.float32)
        self._length = (attended.sum(1) / 100).numpy()  # [b]
        self._row = (attended.cumsum(1) / 100)[:, None, :, None].to(device)  # (i+1)/100 over attended tokens
        self.pooled = torch.zeros(b, q, j, dtype=torch.float64)

    def layer(self, attention: torch.Tensor) -> tuple[np.ndarray, np.ndarray | None]:
        """Sums [b, c, head, class] of one layer's attention [b, head, query, key]; corrected ones if causal."""
        plain = self._sum(attention) * self._length[:, None, None, None]
        corrected = self._sum(attention * self._row) if self.part.causal else None
        self.pooled += attention.mean(1).double().cpu()
        return plain, corrected

    def _sum(self, attention: torch.Tensor) -> np.ndarray:
        b, h = attention.shape[:2]
        sums = torch.bmm(self._masks, attention.reshape(b, h, -1).transpose(1, 2).float())
        return sums.reshape(b, -1, NUM_CLASSES, h).transpose(2, 3).double().cpu().numpy()

    def by_distance(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts [b, c, binned class, bin] of the attention averaged over layers and heads."""
        b, c, q, j = self.classes.shape
        place = np.arange(q)[:, None] - self.part.query_shift, np.arange(j)[None, :] - self.part.key_shift
        bins = distance_bin(np.abs(place[0] - place[1]))
        attention = self.pooled.numpy() / self.part.num_layers * self._length[:, None, None]
        classes = self.classes.numpy()
        sums, counts = np.zeros((2, b, c, len(BINNED), NUM_BINS))
        for k, pair_class in enumerate(BINNED):
            unit, config, row, column = np.nonzero(classes == pair_class)
            flat = (unit * c + config) * NUM_BINS + bins[row, column]
            size = b * c * NUM_BINS
            weights = attention[unit, row, column]
            sums[:, :, k] = np.bincount(flat, weights=weights, minlength=size).reshape(b, c, NUM_BINS)
            counts[:, :, k] = np.bincount(flat, minlength=size).reshape(b, c, NUM_BINS)
        return sums, counts


def sum_attention(
    view: ModelView,
    batches: Iterable[Batch],
    units: Sequence[AlignedUnit],
    document_of: np.ndarray,
    lookup: TopicLookup,
) -> list[PartSums]:
    """Pair sums of every part of the model over a chunk of whole documents.

    document_of [unit]: index of each unit's document inside the chunk. The model runs once for all configurations,
    one layer's attention alive at a time. Inside a unit sums are float32, across units float64.
    """
    documents = int(document_of.max()) + 1
    totals = {p.name: PartSums.zeros(p, documents, len(lookup.configurations)) for p in view.parts}
    for batch in batches:
        _sum_batch(view, batch, units, document_of, lookup, totals)
    return list(totals.values())


def _sum_batch(
    view: ModelView,
    batch: Batch,
    units: Sequence[AlignedUnit],
    document_of: np.ndarray,
    lookup: TopicLookup,
    totals: dict[str, PartSums],
) -> None:
    words = np.full(tuple(batch.input_ids.shape), NOT_A_WORD, dtype=np.int64)
    for row, unit in enumerate(batch.unit_index):
        words[row][batch.attention_mask[row].numpy().astype(bool)] = lookup.encode(units[unit].words)
    place = np.broadcast_to(np.arange(words.shape[1]), words.shape)
    positions = [
        Positions(*map(torch.from_numpy, (words, lookup.topics(c, words), place.copy())))
        for c in range(len(lookup.configurations))
    ]
    attended = batch.attention_mask.cpu()
    seen = {part.name: _PartBatch(part, positions, attended, view.device) for part in view.parts}
    document = document_of[np.asarray(batch.unit_index)]

    def on_attention(part: str, layer: int, attention: torch.Tensor) -> None:
        plain, corrected = seen[part].layer(attention)
        np.add.at(totals[part].heads[:, :, layer], document, plain)
        if corrected is not None:
            np.add.at(totals[part].corrected[:, :, layer], document, corrected)  # type: ignore[index]

    view.run(batch, on_attention)
    for name, part_batch in seen.items():
        sums, counts = part_batch.by_distance()
        np.add.at(totals[name].counts, document, part_batch.counts)
        np.add.at(totals[name].binned, document, sums)
        np.add.at(totals[name].binned_counts, document, counts.astype(np.int64))


def _shifted(positions: Positions, shift: int) -> Positions:
    """The sequence a decoder reads: the text moved `shift` to the right, so that position i holds token i - shift."""
    if shift == 0:
        return positions
    words = torch.full_like(positions.words, NOT_A_WORD)
    words[:, shift:] = positions.words[:, :-shift]
    topics = torch.zeros_like(positions.topics)
    topics[:, shift:] = positions.topics[:, :-shift]
    return Positions(words, topics, positions.place - shift)
