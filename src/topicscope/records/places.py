"""Where text and results lie: paths of this machine, and URLs of shared or object storage (s3://, gs://, memory://, …).

A path of this machine stays a plain `Path`. A URL is a `UPath`, which asks the fsspec package of its kind of storage
(s3fs, gcsfs, adlfs, …); who may read and write there is a matter of that package's own settings. What is said or
written down of a URL holds no password and no query.
"""

import errno
import io
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import fsspec
from fsspec.registry import known_implementations
from upath import UPath

from topicscope.errors import InputError, TopicscopeError

Place = Path | UPath
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"([A-Za-z0-9+.-]+::|[A-Za-z0-9+.-]+://.*::).*://")
_LOST = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")
# Also where pathlib took a slash, and in passwords with an @.
_SECRETS = re.compile(r"(?<=[a-z0-9][a-z0-9]:/)(/?)[^/\s]*@|\?[^\s'\"]*", re.IGNORECASE)
_BUFFER = 1 << 20


def url_of(location: str | Place) -> UPath | None:
    """The URL that a location is; None for a path of this machine.

    Raises:
        InputError: a kind of storage that nobody knows, one whose package is not installed, a URL of nothing,
            a chain of URLs, or a URL made a `Path`.
    """
    if isinstance(location, Path):
        lost = _LOST.match(str(location))
        if lost is not None and lost[1] in known_implementations and not location.exists():
            raise InputError(
                "a URL that lost a slash on its way through pathlib.Path",
                received=without_secrets(str(location)),
                expected=f"{lost[1]}://…, as a string or a UPath",
            )
        return None
    if isinstance(location, UPath):
        return location if _URL.match(str(location)) else None
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
        fsspec.get_filesystem_class(protocol)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a kind of storage that UPath has no class of its own for
        try:
            return UPath(location.rstrip("/"))
        except Exception as error:  # what it says may hold a part of a password
            raise InputError(
                "this URL cannot be used",
                received=f"{protocol}://…",
                expected=f"{protocol}://HOST/PATH or {protocol}://BUCKET/PATH, as its package knows it",
                where=type(error).__name__,
            ) from error


def place_of(location: str | Place) -> Place:
    """The path or URL that a location is; file:// is a path.

    Raises:
        InputError: as `url_of`.
    """
    url = url_of(location)
    if url is None:
        return Path(str(location)).expanduser()
    return Path(url.path) if is_local(url) else url


def is_local(url: UPath) -> bool:
    """Whether a URL is another way to write a path of this machine."""
    return url.protocol in ("file", "local")


def without_secrets(text: str) -> str:
    """A text in which no URL has a user, a password or a query."""
    return _SECRETS.sub(r"\1", text) if ":/" in text else text


def shown(place: str | Place) -> str:
    """How a place is called in messages and records."""
    return str(place) if isinstance(place, Path) else without_secrets(address(place))


def address(place: str | Place) -> str:
    """A URL as text from which the same URL can be made, with its host and user, which `str` leaves out of some."""
    text = str(place)
    start, end = text.partition(":///")[::2]
    of = place.storage_options if isinstance(place, UPath) else {}
    if not end or "host" not in of:
        return text
    user = of.get("user") or of.get("username")
    password = f":{of['password']}" if of.get("password") else ""  # as given: fsspec changes nothing in it
    named = f"{user}{password}@" if user else ""
    return f"{start}://{named}{of['host']}{f':{port}' if (port := of.get('port')) else ''}/{end}"


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


def require_regular_file(place: str | Place, expected: str = "a file") -> None:
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


def special_kind(place: str | Place) -> str | None:
    """What lies at a path of this machine, in words, if it is neither a file nor a folder; None for all else."""
    if not isinstance(place, (str, Path)):
        return None
    try:
        mode = os.stat(place).st_mode
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
            names = [name[len(place.path.rstrip("/")) :].lstrip("/") for name in place.fs.find(place.path)]
        found = [(name, place / name) for name in names if name and not name.endswith("/")]
    return sorted(found, key=lambda file: PurePosixPath(file[0]))


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
        raw = _Watched(place.open("rb", cache_type="none") if seeks else place.open("rb"))
    except Exception as error:
        raise _as_os_error(error) from error
    return raw if seeks else io.BufferedReader(raw, _BUFFER)


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
