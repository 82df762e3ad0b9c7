"""Sums of attention over pairs of words, per document, layer, head and pair class (Knowl 8).

For a unit (sentence or passage) whose L tokens are attended, every ordered pair of words at two positions i ≠ j adds
A_ij · L/100 to the sum of its class and 1 to its count; a causal model only has pairs with j <= i. The factor L/100
is the paper's correction for length: a row of attention sums to 1 over L keys. A row i of a causal model sums to 1
over its i+1 keys, so there A_ij · (i+1)/100 is summed as well (the position-corrected form). Where a word is several
tokens and pieces are merged, A_ij is the attention to j summed over its tokens, from i averaged over its tokens.

Axes: b unit of the batch, c configuration, k pair class, h head, w weighting of rows, d document.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from topicscope.probing.attention.batch_sums import BINNED, NUM_BAND_PAIRS, NUM_BINS, BatchSums, DenseSums, FactoredSums
from topicscope.probing.attention.positions import TokenPositions, TopicLookup, text_positions
from topicscope.probing.attention.sinks import sink_keys, without_keys
from topicscope.probing.hf import ModelView, NotFactored, PartSpec
from topicscope.probing.tokens import AlignedUnit, Batch, TokenWindows
from topicscope.records import ArrayFields
from topicscope.topics import NOT_A_WORD, PairClass

NUM_CLASSES = len(PairClass)
# query word, key word and bin in one number
_WORD_BITS, _BIN_BITS = 28, 7
# About 160 MB, and as much again while they are sorted.
MOST_ENTRIES = 8_000_000
_WAITING = 500_000


@dataclass(eq=False)
class WordPairs(ArrayFields):
    """Sums of attention for each pair of different words at each distance, over the whole text: shuffles start from it.

    An entry is a query word, a key word and a bin of their distance |i-j|; it holds the sum of A_ij · L/100, averaged
    over layers and heads, and how many pairs of positions it sums. Documents are not told apart, so entries of chunks
    and shards add up wherever a document is cut. There are at most `MOST_ENTRIES` entries.

    key int64 [entry]: query word, key word and bin of distance in one number, ascending.
    total float64 [entry, 2]: sum of attention and number of pairs.
    left_out: pairs that found no place. seconds: what collecting took.
    """

    key: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    total: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    left_out: int = 0
    seconds: float = 0.0
    _waiting: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list, init=False)

    def add(self, entries: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> None:
        """Pairs one by one: entries [pair, 3] of query word, key word and bin of distance."""
        query, key, place = (column.astype(np.int64) for column in entries.T)
        self._wait(((query << _WORD_BITS | key) << _BIN_BITS) | place, np.stack([sums, counts], 1))

    def merge(self, other: "WordPairs") -> None:
        """All that another has."""
        started = time.perf_counter()
        other._compact()
        self.left_out += other.left_out
        self._wait(other.key, other.total)
        self.seconds += other.seconds + time.perf_counter() - started

    def __len__(self) -> int:
        """The number of entries."""
        self._compact()
        return len(self.key)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries [entry, 3] as in `add`, in ascending order, with their sums [entry] and counts [entry]."""
        self._compact()
        words = self.key >> _BIN_BITS
        mask = (1 << _WORD_BITS) - 1
        entries = np.stack([words >> _WORD_BITS, words & mask, self.key & ((1 << _BIN_BITS) - 1)], 1)
        return entries, self.total[:, 0], self.total[:, 1]

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """The fields by name, with everything added."""
        self._compact()
        return super().arrays(prefix)

    def _wait(self, key: np.ndarray, total: np.ndarray) -> None:
        self._waiting.append((key, total))
        # Each entry is sorted a few times at most, since what waits is as much as what is there.
        if sum(len(k) for k, _ in self._waiting) > max(_WAITING, len(self.key)):
            self._compact()

    def _compact(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self.key, *(k for k, _ in self._waiting)])
        totals = np.concatenate([self.total, *(t for _, t in self._waiting)])
        unique, place = np.unique(keys, return_inverse=True)
        total = np.stack([np.bincount(place, column, len(unique)) for column in totals.T], 1)
        if len(unique) > MOST_ENTRIES:
            # The entries that were there first keep their place.
            new = ~np.isin(unique, self.key, assume_unique=True)
            kept = ~new
            kept[np.flatnonzero(new)[: max(0, MOST_ENTRIES - len(self.key))]] = True
            self.left_out += int(total[~kept, 1].sum())
            unique, total = unique[kept], total[kept]
        self.key, self.total, self._waiting = unique, total, []


@dataclass(eq=False)
class PartSums(ArrayFields):
    """Sums of one part of the model over some documents; float64 sums, int64 counts."""

    part: PartSpec
    heads: np.ndarray  # [document, configuration, layer, head, class] of the layers and heads that are read
    corrected: np.ndarray | None  # the same with (i+1)/100 for L/100; causal parts only
    counts: np.ndarray  # [document, configuration, class]
    binned: np.ndarray  # [document, configuration, binned class, distance bin], mean over layers and heads
    binned_counts: np.ndarray  # the same shape
    banded: np.ndarray  # [document, configuration, binned class, band of the query · NUM_BANDS + band of the key]
    banded_counts: np.ndarray  # the same shape
    rows: np.ndarray  # [document, 3]: queries read; those left out for a NaN; 1 - Σ_k A_qk over the others (sinks)
    word_pairs: WordPairs = field(default_factory=WordPairs)  # of all documents together; empty unless asked for

    @classmethod
    def zeros(cls, part: PartSpec, documents: int, configurations: int) -> "PartSums":
        """Nothing summed yet."""
        heads = np.zeros((documents, configurations, len(part.layers), len(part.heads), NUM_CLASSES))
        bins, bands = ((documents, configurations, len(BINNED), n) for n in (NUM_BINS, NUM_BAND_PAIRS))
        return cls(
            part=part,
            heads=heads,
            corrected=np.zeros_like(heads) if part.causal else None,
            counts=np.zeros((documents, configurations, NUM_CLASSES), dtype=np.int64),
            binned=np.zeros(bins),
            binned_counts=np.zeros(bins, dtype=np.int64),
            banded=np.zeros(bands),
            banded_counts=np.zeros(bands, dtype=np.int64),
            rows=np.zeros((documents, 3)),
        )

    def add(
        self, document: np.ndarray, scale: np.ndarray, found: BatchSums, rows: np.ndarray, *, word_pairs: bool
    ) -> None:
        """Add a batch: document [b] of each unit, scale [b] its L/100, rows [b, 3]; word_pairs: keep these as well."""
        for number, layer in enumerate(self.part.layers):
            sums = found.layers[layer].numpy()  # [b, h, w, c, k]
            plain = sums[:, :, 0].transpose(0, 2, 1, 3) * scale[:, None, None, None]
            np.add.at(self.heads[:, :, number], document, plain)
            if self.corrected is not None:
                np.add.at(self.corrected[:, :, number], document, sums[:, :, 1].transpose(0, 2, 1, 3))
        # Averaged over layers and heads.
        readings = len(self.part.layers) * len(self.part.heads)
        sums, counts = np.zeros((2, *found.counts.shape[:2], len(BINNED), NUM_BINS + NUM_BAND_PAIRS))
        for block in found.pairs:
            sums[block.rows], counts[block.rows] = block.binned(readings)
        sums, counts = sums * scale[:, None, None, None], counts.astype(np.int64)
        np.add.at(self.counts, document, found.counts)
        for distance, band, values in (
            (self.binned, self.banded, sums),
            (self.binned_counts, self.banded_counts, counts),
        ):
            np.add.at(distance, document, values[..., :NUM_BINS])
            np.add.at(band, document, values[..., NUM_BINS:])
        np.add.at(self.rows, document, rows)
        started = time.perf_counter()
        for block in found.pairs if word_pairs else ():
            pairs = block.topical_pairs(readings)
            self.word_pairs.add(pairs.entries, pairs.attention * scale[pairs.unit], pairs.counts)
        self.word_pairs.seconds += time.perf_counter() - started

    def of_documents(self, documents: slice) -> "PartSums":
        """The sums of some of the documents, without word pairs, which do not tell documents apart."""
        some: dict[str, Any] = {
            name: value[documents] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **some, word_pairs=WordPairs())

    def add_to_first(self, begun: "PartSums") -> None:
        """Count in what was summed before of the first document."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                value[:1] += getattr(begun, name)


def sum_attention(
    view: ModelView,
    batches: Iterable[Batch],
    units: Sequence[AlignedUnit],
    document_of: np.ndarray,
    lookup: TopicLookup,
    *,
    word_pairs: bool = False,
    exclude_sinks: bool = False,
) -> list[PartSums]:
    """Pair sums of every part of the model over a chunk of whole documents.

    document_of [unit]: index of each unit's document inside the chunk. word_pairs: whether sums of each pair of words
    are kept as well, for shuffles. exclude_sinks: read as if these keys did not exist (see `probing.attention.sinks`),
    by weights. The model runs once for all configurations, one layer's attention alive at a time: in factors where
    `ModelView.can_be_factored`, by its weights otherwise. The two agree up to rounding. Inside a unit sums are float32,
    across units float64.
    """
    documents = int(document_of.max()) + 1
    totals = {p.name: PartSums.zeros(p, documents, len(lookup.configurations)) for p in view.parts}
    windows = TokenWindows.of(units)
    for batch in batches:
        texts = windows.take(batch.unit_index)
        sinks = {p.name: sink_keys(view, batch, p) for p in view.parts} if exclude_sinks else {}
        found: Mapping[str, BatchSums] = {}
        length = batch.attention_mask.sum(1)
        rows_of = {p.name: torch.zeros(len(length), 3, dtype=torch.float64) for p in view.parts}
        if not sinks and view.can_be_factored(batch):
            text = text_positions(texts, batch.attention_mask, lookup, aligned=True)
            with suppress(NotFactored):  # not at this length, or not in this precision: the weights themselves decide
                summed, on_attention = _prepared(view, FactoredSums, text, {}, {})
                view.run_factored(batch, on_attention)
                found = summed
        if not found:
            text = text_positions(texts, batch.attention_mask, lookup)
            found, on_attention = _prepared(view, DenseSums, text, {}, sinks)
            rows = view.run(batch, on_attention)
            if any(bool(left_out.any()) for left_out in rows.not_a_number.values()):
                # Which rows are lost is only known at the last layer: read again without them.
                left_out_rows = {name: left_out.cpu() for name, left_out in rows.not_a_number.items()}
                found, on_attention = _prepared(view, DenseSums, text, left_out_rows, sinks)
                view.run(batch, on_attention)
            for name, read in rows_of.items():
                read[:, 1] = rows.not_a_number[name].sum(1)
                read[:, 2] = rows.missing[name]
        document = document_of[np.asarray(batch.unit_index)]
        for name, part in found.items():
            rows_of[name][:, 0] = length
            kept = length - sinks[name].sum(1) if exclude_sinks else length
            scale = kept.cpu().numpy() / 100
            totals[name].add(document, scale, part, rows_of[name].numpy(), word_pairs=word_pairs)
    return list(totals.values())


def _prepared(
    view: ModelView,
    kind: Callable[[PartSpec, TokenPositions, TokenPositions, str], DenseSums | FactoredSums],
    text: TokenPositions,
    left_out: Mapping[str, torch.Tensor],
    sinks: Mapping[str, torch.Tensor],
) -> tuple[Mapping[str, BatchSums], Callable[[str, int, Any], None]]:
    """Sums without anything yet, and what adds a layer to them. left_out[part] bool [b, q]: no word stands there.

    sinks[part] bool [b, k]: keys that do not exist.
    """
    found: dict[str, DenseSums | FactoredSums] = {}
    for part in view.parts:
        query, key = text.shifted(part.query_shift), text.shifted(part.key_shift)
        if part.name in left_out:
            query = query._replace(words=query.words.masked_fill(left_out[part.name], NOT_A_WORD))
        if part.name in sinks:
            # A word of several tokens goes where its first one does.
            begins = (key.place + part.key_shift).clamp(max=key.place.shape[1] - 1)
            key = key._replace(words=key.words.masked_fill(sinks[part.name].gather(1, begins), NOT_A_WORD))
        found[part.name] = kind(part, query, key, view.device)

    def on_attention(part: str, layer: int, attention: Any) -> None:
        if part in sinks:
            attention = without_keys(attention, sinks[part].to(attention.device))
        found[part].add(layer, attention)

    return found, on_attention
