"""Atomic writers and safe readers for JSON, JSON lines and npz. Never pickle.

A file is written beside its target and renamed over it, so that a reader (or a killed run) sees the old file or
the new one, never half of one.
"""

import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError

NUMBERS_VERSION = 1
"""Part of every key under which numbers are kept and found again: tokens, trained models, claims, points of a sweep.

Raised by hand in the commit that changes a number, so that no run takes an older one for its own; moving or renaming
code leaves it alone. `make test-golden` fails when numbers change and this does not.
"""


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically and durably (fsync before the rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path, pattern: str) -> None:
    """Remove what `write_bytes`, killed half-way, left of files whose names match `pattern`."""
    for path in folder.glob(f".{pattern}.????????"):  # mkstemp's eight random characters
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document; NaN and infinities become null, since JSON has no word for them."""
    write_text(path, dump_json(document, indent=2) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON document a line."""
    write_text(path, "".join(dump_json(row) + "\n" for row in rows))


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], *, compressed: bool = True) -> None:
    """Write named arrays; object arrays are refused (they would need pickle).

    compressed: what is soon read again is written 40 times faster without.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise TypeError(f"array {name!r} has dtype object and cannot be stored without pickle")
    buffer = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(buffer, **dict(arrays))  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_json(path: Path) -> Any:
    """Read one JSON document, or say which line is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError("file not found", received=str(path), expected="a JSON file") from error
    except OSError as error:
        raise InputError("the file cannot be read", received=str(path), where=error.strerror) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError("not a JSON file", received=str(error), where=str(path)) from error


def read_jsonl(path: Path) -> list[Any]:
    """Read one JSON document a line; a last line cut short by a killed writer is an error that names the line."""
    rows = []
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise InputError("not a JSON line", received=line[:80], where=f"{path}:{number}") from error
    return rows


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an npz file; pickled content is refused.

    Raises:
        InputError: no such file, not an npz file of plain arrays, or one that unpacks to more than the memory.
    """
    try:
        # Opened here, because numpy leaves the file open when it is a broken archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            if size > memory_bytes():
                raise ValueError(f"it unpacks to {size} bytes, more than the memory of this machine")
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise InputError("file not found", received=str(path), expected="an npz file") from error
    except Exception as error:  # a damaged archive fails in a dozen ways: zlib, struct, tokenize, MemoryError, …
        raise InputError(
            "not an npz file of plain arrays",
            received=str(error),
            where=str(path),
            advice="write it with numpy.savez or with topicscope; pickled arrays are never read",
        ) from error


def dump_json(document: Any, indent: int | None = None) -> str:
    """JSON text with NaN and infinities as null and numpy scalars and arrays as numbers and lists."""
    return json.dumps(_plain(document), indent=indent, ensure_ascii=False, allow_nan=False)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def memory_bytes() -> int:
    """The memory of this machine, or what 64 bits can count where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 2**63


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
