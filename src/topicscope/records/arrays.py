"""Plain arrays from npz and npy files, checked by their headers before anything is unpacked.

An npz is a zip of npy files, and a few megabytes of it can unpack to more than any machine holds. The directory of the
zip and the first bytes of each member say what it holds, so a file that cannot be what the caller needs is refused at
once, and only the arrays that the caller asks for are read. Nothing pickled is ever read.
"""

import io
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.records.files import require_regular_file

# A header is a short line of text; one of version 2 may claim to be 4 GB long.
_HEADER_BYTES = 12_000
_MEMBERS = 10_000
# Reading costs the array itself, a copy in float64, and what checks it: so much of the memory is left for these.
_SHARE = 4
# Deflate packs at most 1032 bytes into one. A large array near that limit holds one value throughout.
_MOST_PACKED, _ONE_VALUE, _LARGE = 1032, 1000, 2**28

NPZ_ADVICE = "write it with numpy.savez or with topicscope; pickled arrays are never read"


@dataclass(frozen=True)
class Header:
    """What a file says of one array before it is read. start: bytes before its data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return self.size * self.dtype.itemsize

    @property
    def cost(self) -> int:
        """Bytes of memory that it takes; numbers become float64."""
        return self.size * max(self.dtype.itemsize, 8 if self.dtype.kind in "iuf" else 0)

    def __str__(self) -> str:
        return f"dtype {self.dtype}, shape {self.shape}, {_bytes(self.nbytes)}"


Headers = Mapping[str, Header]
Choose = Callable[[Headers], Iterable[str]]


def npz_headers(path: Path) -> dict[str, Header]:
    """Shape and dtype of every array of an npz file; no array is unpacked.

    Raises:
        InputError: as `read_npz`, except that arrays of any size may be there.
    """
    headers: dict[str, Header] = {}

    def look(found: Headers) -> tuple[str, ...]:
        headers.update(found)
        return ()

    read_npz(path, look)
    return headers


def read_npz(path: Path, choose: Choose | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file that `choose` names, or all of them.

    choose: is given the header of every array before any is unpacked; it may refuse them by an error of its own.

    Raises:
        InputError: no such file, not an npz file of plain arrays (pickled ones are none), a directory that does not
            fit what the members hold, or arrays that would take more than a quarter of the available memory.
    """
    require_regular_file(path, "an npz file")
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = _members(archive, path.stat().st_size)
            headers = {name: _member_header(archive, name, info) for name, info in members.items()}
            chosen = list(headers if choose is None else choose(headers))
            require_room({name: headers[name] for name in chosen})
            for name in chosen:
                _require_plausible(name, members[name], headers[name])
            arrays = {}
            for name in chosen:
                with archive.open(members[name]) as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            return arrays
    except FileNotFoundError as error:
        raise InputError("file not found", received=str(path), expected="an npz file") from error
    except InputError:
        raise
    except Exception as error:  # a damaged archive fails in a dozen ways: zlib, struct, tokenize, MemoryError, …
        raise InputError(
            "not an npz file of plain arrays",
            received=str(error),
            expected="a zip of numpy arrays of numbers or text",
            where=str(path),
            advice=NPZ_ADVICE,
        ) from error


def read_npy(path: Path, check: Callable[[Header], None] | None = None) -> np.ndarray:
    """Read the one plain array of an npy file; check: is given its header first, and may refuse it.

    Raises:
        InputError: no such file, not an npy file of a plain array (a pickled one is none), a header that does not fit
            the size of the file, or an array that would take more than a quarter of the available memory.
    """
    require_regular_file(path, "an npy file")
    try:
        with path.open("rb") as stream:
            header = _header(stream)
            _require_size("the array", header, path.stat().st_size)
            if check is not None:
                check(header)
            require_room({path.name: header})
            stream.seek(0)
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        return array
    except InputError:
        raise
    except Exception as error:  # a damaged header fails in a dozen ways
        raise InputError(
            "not an npy file of a plain array",
            received=str(error),
            expected="an array of numbers as numpy.save writes it",
            where=str(path),
            advice="write it again with numpy.save; pickled arrays are never read",
        ) from error


def require_room(headers: Headers) -> None:
    """Refuse arrays that would take more than a quarter of the memory there is."""
    needed, room = sum(header.cost for header in headers.values()), memory_available() // _SHARE
    if needed > room:
        largest = max(headers, key=lambda name: headers[name].cost)
        raise ValueError(
            f"it unpacks to {_bytes(needed)}, more than a quarter of the available memory, {_bytes(room)}; "
            f"the largest array is {largest}: {headers[largest]}"
        )


def memory_available() -> int:
    """Bytes that a process may still take, by the system and by its control group; 2^63 where nobody says."""
    room = 2**63
    try:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with open("/proc/meminfo", encoding="ascii") as lines:
            room = min(room, *(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    except (AttributeError, ValueError, TypeError, OSError):  # not Linux
        pass
    with suppress(ValueError, OSError):  # no limit, or no such file
        room = min(room, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return room


def _members(archive: zipfile.ZipFile, file_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """The members by the names of their arrays, if the directory of the zip can be true."""
    members = archive.infolist()
    if len(members) > _MEMBERS:
        raise ValueError(f"{len(members)} members")
    if sum(info.compress_size for info in members) > file_bytes:
        raise ValueError("its members overlap")
    named: dict[str, zipfile.ZipInfo] = {}
    for info in members:
        name = info.filename.removesuffix(".npy")
        if name in named:
            raise ValueError(f"two arrays called {name}")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Other kinds, which numpy does not write, unpack a block to any size at once.
            raise ValueError(f"{name} is packed in another way than numpy packs arrays")
        most = info.compress_size * (1 if info.compress_type == zipfile.ZIP_STORED else _MOST_PACKED)
        if info.file_size > most + _HEADER_BYTES:
            raise ValueError(
                f"{name} claims {_bytes(info.file_size)}, more than {info.compress_size} packed bytes hold"
            )
        named[name] = info
    return named


def _member_header(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Header:
    with archive.open(info) as member:
        try:
            header = _header(member)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    _require_size(name, header, info.file_size)
    return header


def _header(stream: Any) -> Header:
    """The header at the start of an npy file, of which no more than the first bytes are read."""
    head = io.BytesIO(stream.read(_HEADER_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in ((1, 0), (2, 0)):  # version 3 has named fields in UTF-8
            raise ValueError(f"version {version}")
        of_version = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = of_version(head)
    except ValueError as error:
        raise ValueError(f"no header of a numpy array ({_first_line(error)})") from error
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} is pickled, and pickled arrays can run code when they are read")
    if any(n < 0 for n in shape):
        raise ValueError(f"an impossible shape {shape}")
    return Header(tuple(int(n) for n in shape), dtype, head.tell())


def _require_size(name: str, header: Header, file_bytes: int) -> None:
    if header.start + header.nbytes != file_bytes:
        held = max(0, file_bytes - header.start)
        raise ValueError(f"the header of {name} ({header}) does not fit the {held} bytes that follow it")


def _require_plausible(name: str, info: zipfile.ZipInfo, header: Header) -> None:
    if header.dtype.kind != "b" and header.nbytes > max(_LARGE, _ONE_VALUE * info.compress_size):
        raise ValueError(
            f"{name} ({header}) unpacks from {_bytes(info.compress_size)}: it holds one value almost throughout"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:80]


def _bytes(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
