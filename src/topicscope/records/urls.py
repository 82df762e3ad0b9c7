"""Where text and topics are read: paths of this machine, and URLs of shared or object storage (s3://, gs://, …).

A path of this machine stays a plain `Path`. A URL is a `Url`, read by the fsspec package of its kind of storage (s3fs,
gcsfs, adlfs, …); who may read there is a matter of that package's own settings. What is said or written down of a URL
holds no password and no query. Results are written to, and read from, paths of this machine only.
"""

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import fsspec
from fsspec.registry import known_implementations

from topicscope.errors import InputError, TopicscopeError
from topicscope.records.files import require_regular_file, special_kind
from topicscope.records.run_folder import TemporaryFolder, recover

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"([A-Za-z0-9+.-]+::|[A-Za-z0-9+.-]+://.*::).*://")
_LOST = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")
# Also where pathlib took a slash, and in passwords with an @.
_SECRETS = re.compile(r"(?<=[a-z0-9][a-z0-9]:/)(/?)[^/\s]*@|\?[^\s'\"]*", re.IGNORECASE)
_BUFFER = 1 << 20


@dataclass(frozen=True, repr=False)
class Url:
    """A URL of a storage. text: as it was given, maybe with a password; path: what its fsspec package makes of it."""

    text: str
    path: str

    @property
    def protocol(self) -> str:
        """The kind of storage, such as s3."""
        return self.text.partition("://")[0]

    @cached_property
    def fs(self) -> Any:
        """The fsspec file system, which may connect to its server at once."""
        return fsspec.core.url_to_fs(self.text)[0]

    def __str__(self) -> str:
        return without_secrets(self.text)

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"


Place = Path | Url


def url_of(location: str | Path) -> Url | None:
    """The URL that a location is; None for a path of this machine.

    Raises:
        InputError: a kind of storage that nobody knows, one whose package is not installed, a URL of nothing,
            a chain of URLs, or a URL made a `Path`.
    """
    if isinstance(location, Path):
        protocol = _lost_protocol(location)
        if protocol is not None:
            raise InputError(
                "a URL that lost a slash on its way through pathlib.Path",
                received=without_secrets(str(location)),
                expected=f"{protocol}://…, as a string",
            )
        return None
    if _CHAIN.match(location):
        raise InputError(
            "a chain of URLs cannot be used",
            received=without_secrets(location),
            expected="one URL: KIND://…/NAME",
            advice="unpack an archive first; compressed files are read as they are",
        )
    found = _URL.match(location)
    if found is None:
        return None
    protocol = found[1].lower()
    if not location[found.end() :].strip("/"):
        raise InputError("the URL has no name", received=location, expected=f"{protocol}://…/NAME")
    try:
        kind: Any = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = known_implementations.get(protocol, {}).get("class", "").partition(".")[0]
        needed = {"http": "aiohttp requests", "https": "aiohttp requests", "sftp": "paramiko"}.get(protocol, package)
        raise InputError(
            f"{protocol}:// needs a package that is not installed",
            received=without_secrets(location),
            where=str(error),
            advice=f"pip install {needed}" if needed != "fsspec" else "install what it asks for",
        ) from error
    except ValueError as error:
        raise InputError(
            "unknown kind of storage",
            received=without_secrets(location),
            expected="a path, or a URL of a kind that fsspec knows, such as s3://, gs:// or az://",
            where=str(error),
        ) from error
    text = protocol + location[len(protocol) :].rstrip("/")
    try:
        kind._get_kwargs_from_urls(text)
        return Url(text, kind._strip_protocol(text))
    except Exception as error:  # what it says may hold a part of a password
        raise InputError(
            "this URL cannot be used",
            received=f"{protocol}://…",
            expected=f"{protocol}://HOST/PATH or {protocol}://BUCKET/PATH, as its package knows it",
            where=type(error).__name__,
        ) from error


def place_of(location: str | Path) -> Place:
    """The path or URL that a location is; file:// is a path.

    Raises:
        InputError: as `url_of`.
    """
    url = url_of(location)
    if url is None:
        return Path(str(location)).expanduser()
    return Path(url.path) if is_local(url) else url


def output_path(location: str | Path, kind: Literal["folder", "file"] = "folder") -> Path:
    """The path of this machine to write a result to.

    Raises:
        InputError: a URL.
    """
    return _local(
        location,
        "results are written to this machine only",
        f"a {kind} of this machine",
        f"write to a local {kind}, then copy it, for example with `aws s3 {'sync' if kind == 'folder' else 'cp'}`",
    )


def result_path(location: str | Path) -> Path:
    """The folder of this machine that holds a result; one that was moved aside by a process that died is put back.

    Raises:
        InputError: a URL.
    """
    path = _local(
        location,
        "results are read from this machine only",
        "a folder of this machine",
        "copy the folder to this machine first, for example with `aws s3 sync`",
    )
    if not path.exists():
        recover(Path(os.path.realpath(path)))
    return path


def _local(location: str | Path, summary: str, expected: str, advice: str) -> Path:
    text = str(location)
    lost = isinstance(location, Path) and _lost_protocol(location) is not None
    if lost or _URL.match(text) or _CHAIN.match(text):
        raise InputError(summary, received=without_secrets(text), expected=expected, advice=advice)
    return Path(text)


def _lost_protocol(path: Path) -> str | None:
    """The kind of storage of a URL that pathlib took for a path."""
    lost = _LOST.match(str(path))
    return lost[1] if lost is not None and lost[1] in known_implementations and not path.exists() else None


def is_local(url: Url) -> bool:
    """Whether a URL is another way to write a path of this machine."""
    return url.protocol in ("file", "local")


def without_secrets(text: str) -> str:
    """A text in which no URL has a user, a password or a query."""
    return _SECRETS.sub(r"\1", text) if ":/" in text else text


def shown(place: str | Place) -> str:
    """How a place is called in messages and records."""
    return without_secrets(place) if isinstance(place, str) else str(place)


def name_of(place: Place) -> str:
    """The last part of a place, without query."""
    return place.name if isinstance(place, Path) else PurePosixPath(shown(place)).name


def suffix_of(place: Place) -> str:
    """The end of the name, such as .gz."""
    return PurePosixPath(name_of(place)).suffix


def reason_of(error: BaseException) -> str:
    """What an error of a storage says, in one line."""
    said = getattr(error, "strerror", None) or (str(error).strip().splitlines() or [""])[0]
    named = said if isinstance(error, OSError) and said else f"{type(error).__name__}: {said}"
    return without_secrets(named)


def unreachable(place: str | Place, error: BaseException) -> InputError:
    """The error for a storage that refuses, does not answer or breaks off."""
    return InputError(
        "the storage cannot be used",
        received=reason_of(error),
        expected="a place that can be reached with the credentials of this machine",
        where=shown(place),
        advice="check the name, the network, and the credentials in the environment (for S3 AWS_ACCESS_KEY_ID, "
        "AWS_PROFILE, AWS_ENDPOINT_URL, …)",
    )


@contextmanager
def reaching(place: Place) -> Iterator[None]:
    """Whatever the package of a storage raises, which may be anything, becomes an InputError."""
    try:
        yield
    except TopicscopeError:
        raise
    except Exception as error:
        raise unreachable(place, error) from error


def kind_of(place: Place) -> Literal["file", "folder"] | None:
    """What lies at a place; None where nothing does.

    Raises:
        InputError: a storage that cannot be asked.
    """
    if isinstance(place, Path):
        return "folder" if place.is_dir() else "file" if place.exists() else None
    with reaching(place):
        try:
            return "folder" if place.fs.info(place.path)["type"] == "directory" else "file"
        except FileNotFoundError as error:
            refused = error.__cause__ if place.protocol in ("http", "https") else None
            if refused is not None and getattr(refused, "status", None) not in (404, 410):
                raise unreachable(place, refused) from error  # fsspec takes all that fails for missing
            return None


def files_below(place: Place, *, special: bool = False) -> list[tuple[str, Place]]:
    """All files of a folder and its subfolders: (path inside the folder, file), in the order of these paths.

    special: also pipes, sockets and devices, see `special_kind`, for a caller that counts what it leaves out.

    Raises:
        InputError: a storage that cannot be asked.
    """
    if isinstance(place, Path):
        paths = [p for p in place.rglob("*") if p.is_file() or (special and special_kind(p))]
        found: list[tuple[str, Place]] = [(p.relative_to(place).as_posix(), p) for p in paths]
    else:
        with reaching(place):
            names = [path for path in place.fs.find(place.path) if not path.endswith("/")]
        found = [file for path in names if (file := inside(place, path))[0]]
    return sorted(found, key=lambda file: PurePosixPath(file[0]))


def inside(folder: Url, path: str) -> tuple[str, Url]:
    """A path that the storage gave for something below a folder: what it is inside the folder, and its URL."""
    name = path[len(folder.path.rstrip("/")) :].lstrip("/")
    return name, Url(f"{folder.text}/{name}", path)


def open_place(place: Place, *, seeks: bool = False) -> io.BufferedIOBase | io.RawIOBase:
    """The bytes of a file as they lie there.

    seeks: read here and there, so that nothing beyond what is asked for should be fetched.

    Raises:
        InputError: a pipe, a socket or a device.
        OSError: it cannot be read, now or later; of a storage whatever its package raises, and that it ended too early.
    """
    if isinstance(place, Path):
        require_regular_file(place)
        return open(place, "rb")
    try:
        more = {"cache_type": "none"} if seeks else {}
        raw = _Watched(place.fs.open(place.path, "rb", **more))
    except Exception as error:
        raise _as_os_error(error) from error
    return raw if seeks else io.BufferedReader(raw, _BUFFER)


@contextmanager
def local_file(location: str | Path) -> Iterator[Path]:
    """A file on this machine; for a URL a copy, for the length of the block.

    Raises:
        InputError: no such file at the URL, or the storage fails.
    """
    url = url_of(location)
    if url is None:
        yield Path(str(location))
        return
    if kind_of(url) != "file":
        raise InputError("file not found", received=shown(url), expected="a file")
    owner = TemporaryFolder()
    path = owner.path / name_of(url)
    with reaching(url):
        url.fs.get_file(url.path, str(path))
    yield path
    del owner


class _Watched(io.RawIOBase):
    """A file of a storage that says so when it breaks off: some end without a word."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._size: int | None = getattr(inner, "size", None)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._inner.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(len(buffer))
            place = self._inner.tell()
        except Exception as error:
            raise _as_os_error(error) from error
        if not data and len(buffer) and self._size is not None and place < self._size:
            raise OSError(errno.EIO, f"it breaks off after {place} of {self._size} bytes")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(errno.EIO, reason_of(error))
