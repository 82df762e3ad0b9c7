"""How far a pass is, in its folder on disk: the shards added up so far, the one under way, and those read elsewhere.

    state.safetensors    sums of the shards that were added up, in their order, and of the one under way
    documents-N.parquet  rows of the document table of all these (see `shards`)
    shard-N.TRY/         a whole shard that another process read and that waits for its turn: a folder of the same kind

Shards are added one after another in the order of their numbers, whoever read them and whenever they came, so that
equal shards give equal sums to the last bit.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topicscope.probing.execution.shard_reading import ShardReading
from topicscope.probing.hf import ModelView
from topicscope.probing.results import STATE, DocumentShards, load_state, save_state, temporary_shards
from topicscope.probing.statistics import DocumentSums
from topicscope.records import SHARD

_SHARD = re.compile(r"shard-(\d+)\.\w+")


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
    """Sums of a pass: `total` of the first `shards` shards, `reading` of the next; in memory only without a folder."""

    def __init__(self, view: ModelView, folder: Path | None, *, document_rows: bool) -> None:
        self.total, self.shards, self.reading = DocumentSums(), 0, ShardReading()
        self.rows: DocumentShards | None = None
        if document_rows:
            self.rows = temporary_shards() if folder is None else DocumentShards(folder)
        self._view, self._folder = view, folder
        self._pieces = 0  # of the rows, that belong to `total`

    def save(self) -> None:
        """Write the state, after the rows that belong to it; what was read elsewhere and is in it is removed."""
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
            **self.reading.arrays(),
        }
        save_state(self._folder, arrays)
        for path, number in self._shard_folders():
            if number < self.shards:
                SHARD.remove(path)

    def restore(self) -> dict[int, Path]:
        """Go on from the state found; returns the folders of the shards that were read elsewhere, by number.

        Raises:
            InputError: the state is damaged.
        """
        if self._folder is None:
            return {}
        self._folder.mkdir(exist_ok=True)
        arrays = load_state(self._folder)
        if arrays is not None:
            self.shards, self._pieces = int(arrays["shards"]), int(arrays["pieces"])
            names = [part.name for part in self._view.parts]
            self.total = DocumentSums.from_arrays(arrays, "total", names)
            self.reading = ShardReading.from_arrays(arrays, self._view.parts)
            for way in self._view.paths:
                self._view.paths[way] = int(arrays[f"paths/{way}"])
            if self.rows is not None:
                self.rows.restore(arrays["rows"].tolist())
        ready = {}
        for path, number in self._shard_folders():
            if number >= self.shards and number not in ready and (path / STATE).is_file():
                ready[number] = path
            else:  # begun and not finished, or counted in
                SHARD.remove(path)
        return ready

    def fold(self) -> None:
        """The shard under way is whole: count it in."""
        self._add(self.reading)
        self.shards += 1
        self.reading = ShardReading()

    def drop(self) -> None:
        """Forget what was read of the shard under way."""
        self.reading = ShardReading()
        if self.rows is not None:
            self.rows.restore(self.rows.rows[: self._pieces])

    def fold_folder(self, folder: Path, *, number: int) -> None:
        """Count in shard `number`, which was read elsewhere; a gap before it can no longer be filled in this state.

        Raises:
            InputError: what lies in the folder is damaged.
        """
        assert self.reading.units == 0
        assert number >= self.shards
        arrays = load_state(folder)
        assert arrays is not None
        if self.rows is not None:
            self.rows.adopt(folder, arrays["rows"].tolist())
        for way in self._view.paths:
            self._view.paths[way] += int(arrays[f"paths/{way}"])
        self._add(ShardReading.from_arrays(arrays, self._view.parts))
        self.shards = number + 1

    def _add(self, reading: ShardReading) -> None:
        assert reading.open is None, "a shard holds whole documents"
        self.total.merge(reading.sums)
        if self.rows is not None:
            self.rows.flush()
            self._pieces = len(self.rows.rows)

    def _shard_folders(self) -> Sequence[tuple[Path, int]]:
        assert self._folder is not None
        named = ((path, _SHARD.fullmatch(path.name)) for path in sorted(self._folder.glob("shard-*")))
        return [(path, int(match[1])) for path, match in named if match]
