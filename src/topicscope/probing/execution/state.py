"""How far a pass is, in its folder on disk: the shards added up so far, the one under way, and those read elsewhere.

    state.safetensors    sums of the shards that were added up, in their order, and of the one under way
    documents-N.parquet  rows of the document table of all these (see `document_table`)
    shard-N.safetensors  a whole shard that another process read and that waits for its turn

Shards are added one after another in the order of their numbers, whoever read them and whenever they came, so that
equal shards give equal sums to the last bit.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from topicscope.probing.attention import PartSums, TopicLookup, sum_attention
from topicscope.probing.config import ProbeConfig
from topicscope.probing.hf import ModelView
from topicscope.probing.results import (
    STATE,
    DocumentShards,
    document_rows,
    load_state,
    pack_state,
    temporary_shards,
)
from topicscope.probing.statistics import DocumentSums
from topicscope.probing.tokens import Batch, TokenWindows, make_batches, tokens_at_once
from topicscope.progress import Progress
from topicscope.records import ArrayFields, write_bytes


@dataclass(frozen=True)
class PassSpec:
    """What a pass reads of every shard, the model apart.

    task: what the reports of progress call it. word_pairs: collect these for shuffles. exclude_sinks: see
    `sum_attention`. document_rows: whether rows per document are wanted.
    """

    task: str
    lookup: TopicLookup
    options: ProbeConfig
    word_pairs: bool = False
    exclude_sinks: bool = False
    document_rows: bool = False


@dataclass(eq=False)
class OpenDocument(ArrayFields):
    """A document of which a chunk held only the beginning: its sums so far, one row for each part."""

    document_id: str
    units: int
    tokens: int
    sums: list[PartSums]


@dataclass(eq=False)
class ShardReading(ArrayFields):
    """The sums of one shard, of which `units` units were read so far; `open` waits for the rest of its document."""

    units: int = 0
    sums: DocumentSums = field(default_factory=DocumentSums)
    open: OpenDocument | None = None

    def read(
        self,
        chunk: TokenWindows,
        more_of: str | None,
        view: ModelView,
        spec: PassSpec,
        rows: DocumentShards | list[pd.DataFrame] | None,
        progress: Progress,
        done: int,
    ) -> None:
        """One chunk; nothing changes before the whole of it is read.

        A chunk may end inside a document: its sums wait in `open` for the rest, so that each document enters the
        moments as one cluster. more_of: document of the unit after the chunk, None at the end of the shard. done: units
        of the pass that were read before, for `progress`.
        """
        ids = list(dict.fromkeys(chunk.document_ids))
        index = {document_id: i for i, document_id in enumerate(ids)}
        document_of = np.array([index[document_id] for document_id in chunk.document_ids])
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
        tokens = np.bincount(document_of, weights=chunk.lengths).astype(np.int64)
        waiting = self.open
        if waiting is not None:
            assert waiting.document_id == ids[0], "the units of a document stand together"
            for part, begun in zip(sums, waiting.sums, strict=True):
                part.add_to_first(begun)
            units[0] += waiting.units
            tokens[0] += waiting.tokens
        whole = len(ids) - (more_of == ids[-1])
        self.open = None
        if whole < len(ids):
            begun_sums = [part.of_documents(slice(whole, None)) for part in sums]
            self.open = OpenDocument(ids[whole], int(units[whole]), int(tokens[whole]), begun_sums)
        finished = [part.of_documents(slice(0, whole)) for part in sums]
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


def _reporting(batches: Iterable[Batch], progress: Progress, task: str, done: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        done += len(batch.unit_index)
        progress.update(task, done)


_SHARD = re.compile(r"shard-(\d+)\.safetensors")


class Shard(NamedTuple):
    """Units `start` to `stop` of a text, whole documents."""

    number: int
    start: int
    stop: int


def plan_shards(document_ends: np.ndarray, least: int) -> list[Shard]:
    """Shards of at least `least` units (the last one apart), each up to the end of a document.

    document_ends [document]: where the units of each document end, ascending; the last one is the number of units.
    """
    ends: list[int] = [0]
    while ends[-1] < document_ends[-1]:
        place = int(np.searchsorted(document_ends, ends[-1] + least))
        ends.append(int(document_ends[min(place, len(document_ends) - 1)]))
    return [Shard(number, *span) for number, span in enumerate(pairwise(ends))]


class PassState:
    """Sums of a pass: `total` of the first `shards` shards, `reading` of the next; in memory only without a folder.

    It goes on from what is found in the folder. ready: the shards that were read elsewhere, by number.

    Raises:
        InputError: the state found is damaged.
    """

    def __init__(self, view: ModelView, folder: Path | None, *, document_rows: bool) -> None:
        self.total, self.shards, self.reading = DocumentSums(), 0, ShardReading()
        self.rows: DocumentShards | None = None
        if document_rows:
            self.rows = temporary_shards() if folder is None else DocumentShards(folder)
        self._view, self._folder = view, folder
        self._pieces = 0  # of the rows, that belong to `total`
        self.ready: dict[int, Path] = {}
        if folder is None:
            return
        folder.mkdir(exist_ok=True)
        if (folder / STATE).is_file():
            arrays = load_state(folder / STATE)
            self.shards, self._pieces = int(arrays["shards"]), int(arrays["pieces"])
            self.total = DocumentSums.from_arrays(arrays, "total")
            self.reading = ShardReading.from_arrays(arrays, "reading")
            view.paths.update((way, int(arrays[f"paths/{way}"])) for way in view.paths)
            if self.rows is not None:
                self.rows.restore(arrays["rows"].tolist())
        self.ready = self._waiting()

    def save(self) -> None:
        """Write the state, after the rows that belong to it; shards that are in it are removed."""
        if self._folder is None:
            return
        if self.rows is not None:
            self.rows.flush()
        arrays = {
            "shards": np.array(self.shards),
            "rows": np.array([] if self.rows is None else self.rows.rows, dtype=np.int64),
            "pieces": np.array(self._pieces),
            **{f"paths/{way}": np.array(batches) for way, batches in self._view.paths.items()},
            **self.total.arrays("total"),
            **self.reading.arrays("reading"),
        }
        write_bytes(self._folder / STATE, pack_state(arrays))
        self._waiting()

    def fold(self) -> None:
        """The shard under way is whole: count it in."""
        assert self.reading.open is None, "a shard holds whole documents"
        self.total.merge(self.reading.sums)
        if self.rows is not None:
            self.rows.flush()
            self._pieces = len(self.rows.rows)
        self.shards += 1
        self.reading = ShardReading()

    def drop(self) -> None:
        """Forget what was read of the shard under way."""
        self.reading = ShardReading()
        if self.rows is not None:
            self.rows.restore(self.rows.rows[: self._pieces])

    def keep(self, number: int, data: bytes) -> Path:
        """Write shard `number`, which was read elsewhere (`read_shard`), until it is its turn."""
        assert self._folder is not None, "what is read elsewhere is kept in a folder"
        path = self._folder / f"shard-{number:05}.safetensors"
        write_bytes(path, data)
        return path

    def fold_kept(self, path: Path, *, number: int) -> None:
        """Count in shard `number`, which was kept; a gap before it can no longer be filled in this state.

        Raises:
            InputError: the file is damaged.
        """
        assert self.reading.units == 0
        assert number >= self.shards
        arrays = load_state(path)
        if self.rows is not None:
            self.rows.adopt(arrays["documents"])
        for way in self._view.paths:
            self._view.paths[way] += int(arrays[f"paths/{way}"])
        self.reading, self.shards = ShardReading.from_arrays(arrays, "reading"), number
        self.fold()

    def _waiting(self) -> dict[int, Path]:
        """Shards that were read elsewhere and wait for their turn; those that were counted in are removed."""
        assert self._folder is not None
        named = ((path, _SHARD.fullmatch(path.name)) for path in sorted(self._folder.glob("shard-*")))
        found = {int(match[1]): path for path, match in named if match}
        for number in [number for number in found if number < self.shards]:
            found.pop(number).unlink()
        return found
