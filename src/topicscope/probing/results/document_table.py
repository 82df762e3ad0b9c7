"""What a pass leaves on disk while it runs: the table of documents in pieces, and states to go on from.

    documents-00000.parquet, …   rows of the document table, each once
    state.safetensors            moments of all documents finished, sums of the one under way, and how far the pass is
    shard-00000.safetensors, …   a whole shard that another process read: its sums and its rows

A state is written after the pieces that belong to it, and atomically, so a killed pass goes on from the last state
with the sums that it had there; pieces written after it are written again. It is not an npz file, since the states of
thousands of shards are read ten times faster without; the checksum that a zip archive has is kept in it.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load, save

from topicscope.errors import InputError
from topicscope.records import TemporaryFolder, write_bytes

STATE = "state.safetensors"
_CHECKSUM = "crc32"
_PIECE = "documents-{:05}.parquet"
ROWS_PER_GROUP = 8_192
_BUFFERED_ROWS = 4_096


@dataclass(eq=False)
class DocumentTable:
    """One row per document, part, threshold and topic seed, kept in Parquet files and read on demand.

    owner: a temporary folder that goes with this object.
    """

    files: list[Path]
    owner: object = None

    def read(self) -> pd.DataFrame:
        """The whole table."""
        return pd.concat([pd.read_parquet(path) for path in self.files], ignore_index=True)

    def write(self, path: Path) -> None:
        """All rows into one Parquet file, with a group of rows in memory at a time."""
        schema = pq.read_schema(self.files[0])
        waiting: list[pa.Table] = []
        rows = 0
        with pq.ParquetWriter(path, schema, use_dictionary=["part", "threshold", "topic_seed"]) as writer:
            for file in self.files:
                # Not mapped and not all at once, so that memory does not grow with the table.
                for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(ROWS_PER_GROUP, use_threads=False):
                    waiting.append(pa.Table.from_batches([batch]).cast(schema))
                    rows += batch.num_rows
                    if rows >= ROWS_PER_GROUP:
                        whole = pa.concat_tables(waiting)
                        writer.write_table(whole.slice(0, ROWS_PER_GROUP))
                        waiting, rows = [whole.slice(ROWS_PER_GROUP)], rows - ROWS_PER_GROUP
            if waiting:
                writer.write_table(pa.concat_tables(waiting))


@dataclass(eq=False)
class DocumentShards:
    """Writes the document table piece by piece into `folder`.

    owner: see `DocumentTable`. rows: how many each piece on disk has.
    """

    folder: Path
    owner: object = None
    rows: list[int] = field(default_factory=list)
    _frames: list[pd.DataFrame] = field(default_factory=list)

    def append(self, frame: pd.DataFrame) -> None:
        """Add rows; they are on disk after `flush` at the latest."""
        self._frames.append(frame)
        if sum(map(len, self._frames)) >= _BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        if self._frames:
            frame = pd.concat(self._frames, ignore_index=True)
            write_bytes(self.folder / _PIECE.format(len(self.rows)), frame.to_parquet(index=False))
            self.rows.append(len(frame))
            self._frames = []

    def restore(self, rows: list[int]) -> None:
        """Go on after pieces of so many rows.

        Raises:
            InputError: a piece is missing or damaged; names it.
        """
        for number, expected in enumerate(rows):
            path = self.folder / _PIECE.format(number)
            try:
                found = pq.read_metadata(path).num_rows
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from error
            if found != expected:
                raise _unreadable(path, f"{found} rows, expected {expected}")
        self.rows = list(rows)

    def adopt(self, piece: np.ndarray) -> None:
        """Append the rows that `packed_rows` packed."""
        self.flush()
        path = self.folder / _PIECE.format(len(self.rows))
        write_bytes(path, piece.tobytes())
        self.rows.append(pq.read_metadata(path).num_rows)

    def table(self) -> DocumentTable:
        """The table of all that was appended."""
        self.flush()
        return DocumentTable([self.folder / _PIECE.format(number) for number in range(len(self.rows))], self.owner)


def packed_rows(frames: Sequence[pd.DataFrame]) -> np.ndarray:
    """Rows of the table as the bytes of one piece, uint8 [byte]."""
    return np.frombuffer(pd.concat(frames, ignore_index=True).to_parquet(index=False), dtype=np.uint8)


def pack_state(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The state of a pass, or of one shard, as the content of a file."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(plain | {_CHECKSUM: _checksum(plain)})


def load_state(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that `pack_state` made.

    Raises:
        InputError: it is damaged; names it.
    """
    try:
        arrays = load(path.read_bytes())
    except (OSError, SafetensorError, KeyError) as error:
        raise _unreadable(path, error) from error
    kept = arrays.pop(_CHECKSUM, np.zeros(0))
    if not np.array_equal(kept, _checksum(arrays)):
        raise _unreadable(path, "its checksum is another")
    return arrays


def _checksum(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Of names, shapes, types and contents, in the order of the names."""
    found = 0
    for name in sorted(arrays):
        array = arrays[name]
        found = zlib.crc32(f"{name} {array.shape} {array.dtype.str}".encode(), found)
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return np.array([found], dtype=np.uint32)


def temporary_shards() -> DocumentShards:
    """Shards in a folder that is removed with the last table made of them."""
    owner = TemporaryFolder()
    return DocumentShards(owner.path, owner)


def _unreadable(path: Path, why: object) -> InputError:
    return InputError(
        "a shard of the unfinished run cannot be read",
        received=str(why),
        where=str(path),
        advice=f"remove the folder {path.parent} to read that pass again (the others are kept), or start anew with "
        "--overwrite",
    )
