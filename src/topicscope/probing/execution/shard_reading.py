"""One shard of a pass, a run of whole documents, read chunk by chunk in an order that its units alone decide."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from topicscope.probing.attention import PartSums, TopicLookup, sum_attention
from topicscope.probing.config import ProbeOptions
from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.results import DocumentShards, document_rows
from topicscope.probing.statistics import DocumentSums
from topicscope.probing.tokens import AlignedUnit, Batch, make_batches, tokens_at_once
from topicscope.progress import Progress


@dataclass(frozen=True)
class PassSpec:
    """What a pass reads of every shard, the model apart.

    task: what the reports of progress call it. word_pairs: collect these for shuffles. exclude_sinks: see
    `sum_attention`. document_rows: whether rows per document are wanted.
    """

    task: str
    lookup: TopicLookup
    options: ProbeOptions
    word_pairs: bool = False
    exclude_sinks: bool = False
    document_rows: bool = False


@dataclass
class OpenDocument:
    """A document of which a chunk held only the beginning: its sums so far, one row for each part."""

    document_id: str
    units: int
    tokens: int
    sums: list[PartSums]


@dataclass
class ShardReading:
    """The sums of one shard, of which `units` units were read so far; `open` waits for the rest of its document."""

    units: int = 0
    sums: DocumentSums = field(default_factory=DocumentSums)
    open: OpenDocument | None = None

    def read(
        self,
        chunk: Sequence[AlignedUnit],
        more_of: str | None,
        view: ModelView,
        spec: PassSpec,
        rows: DocumentShards | None,
        progress: Progress,
        done: int,
    ) -> None:
        """One chunk; nothing changes before the whole of it is read.

        A chunk may end inside a document: its sums wait in `open` for the rest, so that each document enters the
        moments as one cluster. more_of: document of the unit after the chunk, None at the end of the shard. done: units
        of the pass that were read before, for `progress`.
        """
        ids = list(dict.fromkeys(unit.document_id for unit in chunk))
        index = {document_id: i for i, document_id in enumerate(ids)}
        document_of = np.array([index[unit.document_id] for unit in chunk])
        options = spec.options
        most = options.batch_tokens or tokens_at_once(view.device)
        batches = make_batches(chunk, batch_size=options.batch_size, max_tokens=most, pad_side=options.padding)
        sums = sum_attention(
            view,
            _reporting(batches, progress, spec.task, done),
            chunk,
            document_of,
            spec.lookup,
            word_pairs=spec.word_pairs,
            exclude_sinks=spec.exclude_sinks,
        )
        units = np.bincount(document_of)
        tokens = np.bincount(document_of, weights=[len(u.input_ids) for u in chunk]).astype(np.int64)
        waiting = self.open
        if waiting is not None:
            assert waiting.document_id == ids[0], "the units of a document stand together"
            for part, begun in zip(sums, waiting.sums, strict=True):
                for name, array in _arrays(part).items():
                    array[:1] += _arrays(begun)[name]
            units[0] += waiting.units
            tokens[0] += waiting.tokens
        whole = len(ids) - (more_of == ids[-1])
        self.open = None
        if whole < len(ids):
            begun_sums = [_rows(part, slice(whole, None)) for part in sums]
            self.open = OpenDocument(ids[whole], int(units[whole]), int(tokens[whole]), begun_sums)
        finished = [_rows(part, slice(0, whole)) for part in sums]
        self.sums.add(finished, whole)
        if rows is not None and whole:
            counts = units[:whole].tolist(), tokens[:whole].tolist()
            rows.append(document_rows(finished, ids[:whole], *counts, spec.lookup.configurations))
        if spec.word_pairs:
            self.sums.add_word_pairs(sums)  # not by document, so it does not matter where the chunk ends
        self.units += len(chunk)

    def close(self, rows: DocumentShards | None, lookup: TopicLookup) -> None:
        """Count the document under way with what was read of it."""
        waiting, self.open = self.open, None
        if waiting is None:
            return
        self.sums.add(waiting.sums, 1)
        if rows is not None:
            ids, units, tokens = [waiting.document_id], [waiting.units], [waiting.tokens]
            rows.append(document_rows(waiting.sums, ids, units, tokens, lookup.configurations))

    def arrays(self) -> dict[str, np.ndarray]:
        """For storage in an npz file."""
        arrays = {"shard/units": np.array(self.units), **self.sums.arrays("shard")}
        if self.open is not None:
            arrays["open"] = np.array([self.open.units, self.open.tokens])
            arrays["open_id"] = np.frombuffer(self.open.document_id.encode("utf-8"), dtype=np.uint8)
            for part in self.open.sums:
                arrays |= {f"open/{part.part.name}/{name}": array for name, array in _arrays(part).items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], parts: Sequence[PartSpec]) -> "ShardReading":
        """The inverse of `arrays`, for a model with these parts."""
        names = [part.name for part in parts]
        found = cls(int(arrays["shard/units"]), DocumentSums.from_arrays(arrays, "shard", names))
        if "open" in arrays:
            units, tokens = arrays["open"].tolist()
            sums = [_part_sums(arrays, part) for part in parts]
            found.open = OpenDocument(arrays["open_id"].tobytes().decode("utf-8"), units, tokens, sums)
        return found


def _arrays(sums: PartSums) -> dict[str, np.ndarray]:
    """The arrays of sums, whose first axis is the document in all of them."""
    values = {f.name: getattr(sums, f.name) for f in fields(sums)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _rows(sums: PartSums, rows: slice) -> PartSums:
    changes: dict[str, Any] = {name: array[rows] for name, array in _arrays(sums).items()}
    return replace(sums, **changes)


def _part_sums(arrays: Mapping[str, np.ndarray], part: PartSpec) -> PartSums:
    prefix = f"open/{part.name}/"
    names = {f.name for f in fields(PartSums)} - {"word_pairs"}
    found: dict[str, Any] = {name: arrays.get(prefix + name) for name in names}
    return PartSums(**found | {"part": part})


def _reporting(batches: Iterable[Batch], progress: Progress, task: str, done: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        done += len(batch.unit_index)
        progress.update(task, done)
