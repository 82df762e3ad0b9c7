"""Atomic writers for JSON, JSON lines and npz, and readers of JSON; `arrays` reads npz. Never pickle.

A file is written beside its target and renamed over it, so that a reader (or a killed run) sees the old file or
the new one, never half of one.

Where topicscope keeps what it can make again.
"""

import hashlib
import io
import json
import math
import os
import stat
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

# The end of the name of a file or folder that is not yet whole: .NAME.XXXXXXXX.unfinished
HALF_WRITTEN = ".unfinished"


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically and durably (fsync before the rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=HALF_WRITTEN)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)  # which cannot be read otherwise
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document; NaN and infinities become null, since JSON has no word for them."""
    write_bytes(path, f"{dump_json(document, indent=2)}\n".encode())


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
    require_regular_file(path, "a JSON file")
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


def dump_json(document: Any, indent: int | None = None) -> str:
    """JSON text with NaN and infinities as null and numpy scalars and arrays as numbers and lists."""
    return json.dumps(plain(document), indent=indent, ensure_ascii=False, allow_nan=False)


def sha256_of_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def plain(value: Any) -> Any:
    """A document of numbers, text, lists and dicts only, with None for NaN and infinities, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def special_kind(path: object) -> str | None:
    """What lies at a path of this machine, in words, if it is neither a file nor a folder; None for all else."""
    if not isinstance(path, (str, Path)):
        return None
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    for is_kind, kind in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if is_kind(mode):
            return kind
    return None


def require_regular_file(place: object, expected: str = "a file") -> None:
    """Refuse what is no regular file and would be waited for, or read, without end: a pipe, a socket, a device.

    Nothing is opened. What is missing, or a folder, is left to whoever opens it.

    Raises:
        InputError: a named pipe, a socket or a device lies there, also behind a link.
    """
    kind = special_kind(place)
    if kind is not None:
        raise InputError(
            "not a regular file",
            received=f"{place}, {kind}",
            expected=f"{expected}, which can be read more than once",
            advice="write its content to a file and give that",
        )


def cache_folder() -> Path:
    """$TOPICSCOPE_CACHE, or topicscope in $XDG_CACHE_HOME or in ~/.cache."""
    own = os.environ.get("TOPICSCOPE_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "topicscope"
