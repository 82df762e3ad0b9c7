"""Arrays on disk that grow: what a `TokenCache` is written with, in plain .npy files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from topicscope.probing.tokens.alignment import AlignedUnit
from topicscope.text import Unit

NO_WORD = -1


def open_array(path: Path) -> np.ndarray:
    """The array of an .npy file, mapped from disk where there is anything to map."""
    # An empty file cannot be mapped.
    array: np.ndarray = np.load(path, mmap_mode="r" if path.stat().st_size > 4096 else None, allow_pickle=False)
    return array


class Columns:
    """The arrays of a cache while they grow."""

    def __init__(self, folder: Path) -> None:
        kinds = {"input_ids": "uint32", "words": "int32", "ends": "int64", "unit": "int64", "window": "int32"}
        kinds |= {"run": "int64", "ids": "uint8", "id_ends": "int64", "digests": "S16"}
        self._files = {name: _GrowingArray(folder / f"{name}.npy", np.dtype(kind)) for name, kind in kinds.items()}
        self._tokens, self._id_bytes, self._runs = 0, 0, 0
        self._document_id: str | None = None

    def __enter__(self) -> "Columns":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def run_of(self, unit: Unit) -> int:
        """The number of the unit's run of rows; a new one where the id differs from that of the unit before."""
        if unit.document_id != self._document_id:
            self._document_id, self._runs = unit.document_id, self._runs + 1
            name = unit.document_id.encode("utf-8")
            self._id_bytes += len(name)
            self._files["ids"].append(np.frombuffer(name, np.uint8))
            self._files["id_ends"].append([self._id_bytes])
            self._files["digests"].append([hashlib.blake2b(name, digest_size=16).digest()])
        return self._runs - 1

    def append(
        self, aligned: Sequence[AlignedUnit], first_unit: int, runs: Sequence[int], vocabulary: dict[str, int]
    ) -> None:
        """Add the windows of one block of units."""
        codes = [
            NO_WORD if word is None else vocabulary.setdefault(word, len(vocabulary))
            for window in aligned
            for word in window.words
        ]
        lengths = [len(window.input_ids) for window in aligned]
        self._files["input_ids"].append([token for window in aligned for token in window.input_ids])
        self._files["words"].append(codes)
        self._files["ends"].append(self._tokens + np.cumsum(lengths, dtype=np.int64))
        self._files["unit"].append([first_unit + window.unit for window in aligned])
        self._files["window"].append([window.window for window in aligned])
        self._files["run"].append([runs[window.unit] for window in aligned])
        self._tokens += sum(lengths)


class _GrowingArray:
    """A one-dimensional .npy file that is appended to; numpy leaves room in the header for the length to grow."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype, self._length = dtype, 0
        self._stream = open(path, "wb", buffering=1 << 16)  # noqa: SIM115 - closed by `Columns`
        self._write_header()
        self._header = self._stream.tell()

    def append(self, values: Sequence[Any] | np.ndarray) -> None:
        array = np.asarray(values, dtype=self._dtype)
        self._stream.write(array.tobytes())
        self._length += len(array)

    def close(self) -> None:
        self._stream.seek(0)
        self._write_header()
        assert self._stream.tell() == self._header
        self._stream.close()

    def _write_header(self) -> None:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(self._stream, header)
