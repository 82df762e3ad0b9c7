"""A lock on a folder, so that two runs never write to one place; it dies with the process that holds it."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from topicscope.errors import InputError
from topicscope.records.manifest import now

LOCK = "lock"
_PAUSE_S = 0.2  # between looks at a lock that is waited for


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold `folder`/lock while the block runs; the folder must exist, and the block may remove it.

    Raises:
        InputError: another run holds the lock; names its process, machine and start. Or the file is no lock.
    """
    with locked_file(folder / LOCK) as stream:
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
    to the caller. A second run is refused in whichever process or thread it is, unless it is to `wait`.

    Raises:
        InputError: another run holds the file, and `wait` is false; or it cannot be locked.
    """
    lock = FileLock(path, timeout=-1 if wait else 0, poll_interval=_PAUSE_S)
    try:
        lock.acquire()
    except Timeout as error:
        holder = _holder(path)
        raise InputError(
            "another run is writing to this folder",
            received=str(path.parent),
            expected="one run for each folder",
            where=f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}",
            advice="wait for it to end, or choose another --out",
        ) from error
    except OSError as error:
        raise InputError(
            "the folder cannot be locked", received=str(path.parent), where=str(error), advice="choose another --out"
        ) from error
    with lock, path.open("a+", encoding="utf-8") as stream:
        lock.release()  # the acquisition above; `with lock` holds its own until the block ends
        yield stream


def _holder(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}
