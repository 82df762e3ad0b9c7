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

    wait: until another run lets go of it, however long that takes; else it is refused.

    The system's own lock on an open file is used, which a killed process cannot leave behind; the file's content only
    says who holds it. A second run is refused in whichever process or thread it is.

    Raises:
        InputError: another run holds the lock; names its process, machine and start.
    """
    path = folder / LOCK
    while True:
        stream = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held as long as the lock
        try:
            _acquire(stream)
        except OSError as error:
            holder = _holder(path)
            stream.close()
            if wait and error.errno in (errno.EAGAIN, errno.EACCES):
                time.sleep(_PAUSE_S)
                continue
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                raise InputError(
                    "the folder cannot be locked", received=str(folder), where=str(error), advice="choose another --out"
                ) from error
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
        stream.truncate(0)
        stream.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now()}))
        stream.flush()
        yield
    finally:
        stream.close()


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
