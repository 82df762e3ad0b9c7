"""A lock on a folder, so that two runs never write to one place; it dies with the process that holds it."""

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from topicscope.errors import InputError
from topicscope.records.manifest import now

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
_PAUSE_S = 0.2  # between looks at a lock that is waited for


@contextmanager
def folder_lock(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold `folder`/lock while the block runs; the folder must exist, and the block may remove it.

    wait: until another run lets go of it, however long that takes; else it is refused. See `locked_file`.

    Raises:
        InputError: another run holds the lock; names its process, machine and start. Or the file is no lock.
    """
    with locked_file(folder / LOCK, wait=wait) as stream:
        if not is_lock(folder / LOCK):
            raise InputError(
                "a file is in the way that topicscope did not write",
                received=str(folder / LOCK),
                expected="no file of this name",
                advice="move it away, or choose another --out",
            )
        stream.truncate(0)
        stream.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now()}))
        stream.flush()
        yield


def is_lock(path: Path) -> bool:
    """Whether a file is a lock of topicscope, held or left behind: it says who held it, or nothing yet."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return text == "" or "pid" in _holder(path)


@contextmanager
def locked_file(path: Path, *, wait: bool = False) -> Iterator[IO[str]]:
    """Open a file to read and append, making it unless it is there, and hold it while the block runs.

    The system's own lock on an open file is used, which a killed process cannot leave behind; what the file holds is up
    to the caller. A second run is refused in whichever process or thread it is.

    Raises:
        InputError: another run holds the file, and `wait` is false; or it cannot be locked.
    """
    folder = path.parent
    while True:
        try:
            stream = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the lock
        except OSError as error:
            raise _unlockable(folder, error) from error
        try:
            _acquire(stream)
        except OSError as error:
            holder = _holder(path)
            stream.close()
            if wait and error.errno in (errno.EAGAIN, errno.EACCES):
                time.sleep(_PAUSE_S)
                continue
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                raise _unlockable(folder, error) from error
            raise InputError(
                "another run is writing to this folder",
                received=str(folder),
                expected="one run for each folder",
                where=f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}",
                advice="wait for it to end, or choose another --out",
            ) from error
        # Between opening and locking, the run before us may have ended and removed the file.
        with suppress(FileNotFoundError):
            if os.fstat(stream.fileno()).st_ino == path.stat().st_ino:
                break
        stream.close()
    try:
        yield stream
    finally:
        stream.close()


def _unlockable(folder: Path, error: OSError) -> InputError:
    return InputError(
        "the folder cannot be locked", received=str(folder), where=str(error), advice="choose another --out"
    )


def _acquire(stream: IO[str]) -> None:
    if fcntl is not None:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt  # type: ignore[unreachable, unused-ignore]

    stream.seek(1 << 20)  # beyond the text, which others must be able to read
    msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)


def _holder(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}
