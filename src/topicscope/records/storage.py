"""Files and folders at URLs: looked at, copied there so that half a result is never taken for one, and fetched.

URL/…            the files of a result; the record that makes it one (result.json, summary.json, …) comes last
URL/.unfinished  there from the first file copied to the last: nothing is read from URL while it is
"""

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from upath import UPath
from upath.implementations.cloud import CloudPath

from topicscope.errors import InputError, RunError
from topicscope.records.folder import TemporaryFolder
from topicscope.records.lock import LOCK
from topicscope.records.places import (
    Place,
    files_below,
    kind_of,
    name_of,
    reaching,
    reason_of,
    shown,
    unreachable,
    url_of,
)

MARK = ".unfinished"
_TRIAL = ".trial-"


def check_folder(
    url: UPath, record: str, *, resume: bool = False, overwrite: bool = False, advice: str | None = None
) -> None:
    """What `check_output_folder` makes sure of, for a URL: nothing is there, and it can be written; changes nothing.

    record: the file that makes a result; with `resume` there may be a result, or half of one. advice: what to do where
    something else is there.

    Raises:
        InputError: a storage that refuses, a URL without a name, a file, a folder that is not empty and may not be
            replaced, or one that cannot be written.
    """
    if name_of(url) in ("", ".."):
        raise InputError("the output URL has no name", received=shown(url), expected="a folder in it: URL/NAME")
    kind = kind_of(url)
    if kind == "file":
        raise InputError("the output path is a file", received=shown(url), expected="a folder, new or empty")
    found = {name for name in sizes_below(url) if not name.startswith(_TRIAL)}
    if found and not overwrite and not (resume and found & {record, MARK}):
        half = MARK in found
        raise InputError(
            "the output folder holds half of a result" if half else "the output folder is not empty",
            received=shown(url),
            expected="a new or empty folder",
            advice=(
                "add --resume, on the machine where it was made, to copy the rest"
                if half
                else advice or "choose another --out, or add --overwrite to replace what is there"
            ),
        )
    try_writing(url)
    if kind is None and not isinstance(url, CloudPath):
        with suppress(Exception):  # an empty folder may stay
            url.fs.rmdir(url.path)


def try_writing(folder: UPath) -> None:
    """Find out whether a folder can be written; the file written for that is removed.

    Raises:
        InputError: it cannot.
    """
    trial = folder / f"{_TRIAL}{secrets.token_hex(4)}"
    try:
        write(trial, b"topicscope looks whether it can write here")
        trial.fs.rm_file(trial.path)
    except Exception as error:
        raise InputError(
            "the output folder cannot be written",
            received=shown(folder),
            expected="a place where the credentials of this machine may write and remove files",
            where=reason_of(error),
            advice="choose another --out, or ask for access",
        ) from error


def holds_result(url: UPath, record: str) -> bool:
    """Whether there is a whole result at a URL."""
    found = sizes_below(url)
    return record in found and MARK not in found


def sizes_below(folder: UPath) -> dict[str, int]:
    """Bytes of every file by its path inside the folder, as the storage knows them now.

    Raises:
        InputError: a storage that cannot be asked.
    """
    with reaching(folder):
        folder.fs.invalidate_cache()
    if kind_of(folder) is None:
        return {}
    with reaching(folder):
        found = folder.fs.find(folder.path, detail=True)
    start = len(folder.path.rstrip("/"))
    return {name[start:].lstrip("/"): int(of.get("size") or 0) for name, of in found.items() if name[start:].strip("/")}


def write(file: UPath, data: bytes) -> None:
    """Write a small file; what fails is raised as it comes."""
    _make_parents(file)
    file.fs.pipe_file(file.path, data)


def copy_file(path: Path, url: UPath) -> None:
    """Copy a file to a URL.

    Raises:
        OSError: it does not arrive whole; of whatever the package of the storage raises, an error of its own kind.
    """
    _make_parents(url)
    url.fs.put_file(str(path), url.path)
    url.fs.invalidate_cache()
    arrived, size = url.fs.info(url.path)["size"], path.stat().st_size
    if arrived != size:
        raise OSError(errno.EIO, f"{arrived} of {size} bytes of {path.name} arrived")


def publish(folder: Path, url: UPath, record: str) -> None:
    """Put the files of a folder in the place of what is at a URL, the record last.

    Raises:
        RunError: that failed; the folder is kept.
    """
    files = [(n, path) for n, path in files_below(folder) if isinstance(path, Path) and path.name not in (MARK, LOCK)]
    assert (folder / record).is_file()
    try:
        write(url / MARK, b"a result is being copied here\n")
        # Without its record, what was here before is no result from now on.
        kept = {name for name, _ in files if name != record} | {MARK}
        for name in sorted(sizes_below(url).keys() - kept):
            url.fs.rm_file((url / name).path)
        for name, path in sorted(files, key=lambda file: file[0] == record):
            copy_file(path, url / name)
        url.fs.rm_file((url / MARK).path)
    except Exception as error:
        raise RunError(
            "the result could not be copied to the storage",
            received=reason_of(error) if not isinstance(error, InputError) else str(error.received),
            where=shown(url),
            advice=f"it is kept in {folder}: run the same command with --resume to copy it again",
        ) from error


def remove(folder: UPath) -> None:
    """Remove a folder of a storage as far as that can be done."""
    with suppress(Exception):  # what stays is in nobody's way
        folder.fs.invalidate_cache()
        folder.fs.rm(folder.path, recursive=True)


def fetched(location: str | Place) -> tuple[Path, TemporaryFolder | None]:
    """The folder of a result on this machine; for a URL a copy, which lives as long as the object that comes with it.

    Raises:
        InputError: nothing is there, only half of a result, or the storage fails.
    """
    url = url_of(location)
    if url is None:
        return Path(str(location)), None
    found = sizes_below(url)
    if not found:
        raise InputError("no saved result", received=shown(url), expected="a URL as it was given to --out")
    if MARK in found:
        raise InputError(
            "the result was not copied to the end",
            received=shown(url),
            expected=f"a folder without the file {MARK}",
            advice="run the command that made it once more with --resume, on the same machine",
        )
    owner = TemporaryFolder()
    folder = owner.path / name_of(url)
    fetch(url, folder, found)
    return folder, owner


def fetch(url: UPath, folder: Path, sizes: dict[str, int] | None = None) -> None:
    """Copy the files of a URL into a folder of this machine. sizes: as `sizes_below`, asked for unless given.

    Raises:
        InputError: the storage fails, or a file does not arrive whole.
    """
    for name, size in (sizes_below(url) if sizes is None else sizes).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with reaching(url / name):
            url.fs.get_file((url / name).path, str(path))
        if path.stat().st_size != size:
            raise unreachable(url / name, OSError(errno.EIO, f"{path.stat().st_size} of {size} bytes arrived"))


@contextmanager
def local_file(location: str | Place) -> Iterator[Path]:
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


def _make_parents(file: UPath) -> None:
    if not isinstance(file, CloudPath):  # object storage has no folders, and a bucket is not made by mistake
        file.fs.makedirs(file.parent.path, exist_ok=True)
