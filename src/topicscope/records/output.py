"""Where a run writes: its output folder, or for a URL a folder of this machine that is copied there when it is whole.

    CACHE/runs/HASH/NAME             the folder of a run to the URL …/NAME, until it is at the URL
    CACHE/runs/HASH/NAME.unfinished  its work, as beside an output folder

The hash is that of the URL, so that the same command finds its work again on the same machine.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from upath import UPath

from topicscope.errors import InputError, RunError
from topicscope.records.cache import cache_folder
from topicscope.records.folder import TemporaryFolder
from topicscope.records.lock import LOCK, folder_lock
from topicscope.records.places import Place, kind_of, name_of, reason_of, shown, url_of
from topicscope.records.storage import (
    check_folder,
    copy_file,
    fetch,
    holds_result,
    publish,
    remove,
    try_writing,
)


class OutputFolder:
    """folder: where to write. url: where it goes, None if it stays. copied: it was fetched from there.

    publishes: whether it is copied to the URL when the block ends. keeps: whether work stays for --resume. owner: what
    a folder that was copied lives as long as.
    """

    def __init__(self, folder: Path, url: UPath | None) -> None:
        self.folder, self.url = folder, url
        self.copied, self.publishes, self.keeps = False, True, False
        self.owner: TemporaryFolder | None = None

    @property
    def exchange(self) -> UPath | None:
        """URL.unfinished, where workers of a cluster leave what they have done."""
        return None if self.url is None else self.url.with_name(f"{name_of(self.url)}.unfinished")


def working_folder(out: str | Place) -> Path:
    """Where a run to `out` writes on this machine."""
    url = url_of(out)
    if url is None:
        return Path(str(out))
    return cache_folder() / "runs" / hashlib.sha256(shown(url).encode()).hexdigest()[:16] / (name_of(url) or "run")


@contextmanager
def output_folder(
    out: str | Place, record: str, *, resume: bool = False, overwrite: bool = False, advice: str | None = None
) -> Iterator[OutputFolder]:
    """The folder to write a result to, whose file `record` makes it one; see `OutputFolder` and `check_folder`.

    A path of this machine is taken as it is: who writes there checks it. At a URL the result is put in place when the
    block ends well; after an error or Ctrl-C what was done is kept on this machine for `resume`.

    Raises:
        InputError: as `check_folder`; an earlier run to this URL was not finished; another run holds it.
        RunError: the result could not be copied; it is kept.
    """
    url = url_of(out)
    if url is None:
        yield OutputFolder(Path(str(out)), None)
        return
    check_folder(url, record, resume=resume, overwrite=overwrite, advice=advice)
    output = OutputFolder(working_folder(url), url)
    room = output.folder.parent
    room.mkdir(parents=True, exist_ok=True)
    with folder_lock(room):
        if overwrite and not resume:
            _clear(room)
        elif not resume and _has_work(room):
            raise InputError(
                "an earlier run to this folder was not finished",
                received=shown(url),
                expected="a new --out",
                where=f"its work is kept in {room}",
                advice="add --resume to go on with it, or start anew"
                + (f" after removing {room}" if advice else " with --overwrite"),
            )
        if resume and not _has_work(room) and holds_result(url, record):
            fetch(url, output.folder)
            output.copied = True
        try:
            yield output
            if output.publishes:
                publish(output.folder, url, record)
        except BaseException as error:
            if not _has_work(room) or (output.copied and isinstance(error, InputError)):
                shutil.rmtree(room, ignore_errors=True)
            raise
        if not output.keeps:
            _hand_over(output)
            assert output.exchange is not None
            remove(output.exchange)


def check_file(url: UPath, *, overwrite: bool = False) -> None:
    """Make sure, before any work, that a file can be written to a URL; changes nothing.

    Raises:
        InputError: there is a folder, or a file and `overwrite` is false, or it cannot be written.
    """
    kind = kind_of(url)
    if kind == "folder" or name_of(url) in ("", ".."):
        raise InputError("the output is a folder", received=shown(url), expected="the name of a file")
    if kind == "file" and not overwrite:
        raise InputError(
            "the output file exists",
            received=shown(url),
            expected="a new file",
            advice="choose another --output, or add --overwrite to replace it",
        )
    try_writing(url.parent)


@contextmanager
def output_file(out: str | Place) -> Iterator[Path]:
    """The file to write to: `out`, or for a URL one of this machine that is copied there when the block ends well.

    Raises:
        RunError: the file could not be copied; it is kept.
    """
    url = url_of(out)
    if url is None:
        yield Path(str(out))
        return
    path = working_folder(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    yield path
    try:
        copy_file(path, url)
    except Exception as error:
        raise RunError(
            "the file could not be copied to the storage",
            received=reason_of(error),
            where=shown(url),
            advice=f"it is kept as {path}: copy it yourself",
        ) from error
    shutil.rmtree(path.parent, ignore_errors=True)


def _hand_over(output: OutputFolder) -> None:
    """What is at the URL is no longer work; on this machine it lives as long as somebody looks at it."""
    room = output.folder.parent
    output.owner = TemporaryFolder(room.parent)
    output.folder = output.folder.rename(output.owner.path / output.folder.name)
    shutil.rmtree(room, ignore_errors=True)


def _has_work(room: Path) -> bool:
    return any(path.name != LOCK for path in room.iterdir())


def _clear(room: Path) -> None:
    for path in room.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
