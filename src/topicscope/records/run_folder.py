"""The rules for an output folder: what may be replaced, and how one result takes the place of another.

A result is whole beside the earlier one before that one goes:

    .NAME.replacing              what is being replaced, held by the process at it: {"kind", "earlier"}
    .NAME.XXXXXXXX.unfinished    the earlier result, from the moment it is moved aside until it is removed, by name

A process that dies on the way leaves the earlier or the new result whole; the next command that writes to the folder
or reads it puts back or clears up what is left (`recover`).
"""

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from topicscope.errors import InputError, RunError
from topicscope.records.contents import LAYOUTS, Layout
from topicscope.records.files import HALF_WRITTEN
from topicscope.records.lock import LOCK, folder_lock, is_lock, locked_file

_JOURNAL = '{"kind": "'  # how a journal begins


def output_target(path: Path | str) -> Path:
    """The folder that is meant, without links: what is written to a link goes to the folder it points to.

    Raises:
        InputError: a link that points nowhere, or a name that is that of a file.
    """
    path = Path(path)
    dangling = next((part for part in (path, *path.parents) if part.is_symlink() and not part.exists()), None)
    if dangling is not None:
        raise InputError(
            "the output path is a link that points nowhere",
            received=f"{dangling} -> {os.readlink(dangling)}",
            expected="a folder, new or empty",
            advice="make the folder that it points to, or choose another --out",
        )
    target = Path(os.path.realpath(path))  # "." has no name to put .unfinished behind; "a/../b" needs a folder a
    if target.exists() and not target.is_dir():
        raise InputError("the output path is a file", received=str(path), expected="a folder, new or empty")
    return target


def check_output_folder(
    path: Path | str,
    *,
    replaces: Layout | None = None,
    inputs: Sequence[Path] = (),
    advice: str = "choose another --out, or add --overwrite to replace an earlier result",
) -> Path:
    """Make sure, before any work, that a result can be written to `path`; returns the folder that is meant.

    replaces: the kind of an earlier result that may be there. inputs: files and folders that the work reads. advice:
    what to do where something is there and nothing may be replaced.

    Raises:
        InputError: as `output_target`; a folder that is not empty while nothing may be replaced, one that holds
            anything but an earlier result of this kind, one that is never replaced (`check_replaceable_place`), or one
            that cannot be written.
    """
    target = output_target(path)
    recover(target)
    if target.is_dir() and [path.name for path in target.iterdir()] == [LOCK] and is_lock(target / LOCK):
        with folder_lock(target):  # of a run that was killed before it wrote anything
            (target / LOCK).unlink()
    if target.is_dir() and any(target.iterdir()):
        if replaces is None:
            raise InputError(
                "the output folder is not empty",
                received=str(path),
                expected="a new or empty folder",
                advice=advice,
            )
        check_replaceable_place(target, inputs)
        replaces.require_own(target)
        if (target / LOCK).is_file():
            with folder_lock(target):  # not while a run writes there
                pass
    nearest = next(parent for parent in target.parents if parent.exists())
    try:
        # Tried, not asked: permissions do not tell of read-only and virtual file systems.
        tempfile.TemporaryDirectory(dir=nearest, prefix=f".{target.name}.", suffix=HALF_WRITTEN).cleanup()
    except OSError as error:
        raise InputError(
            "the output folder cannot be written",
            received=str(path),
            expected=f"a folder that can be made in {nearest}",
            where=str(error),
            advice="choose another --out",
        ) from error
    return target


def check_replaceable_place(target: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse to replace a folder that people work in or read from, whatever it holds.

    Raises:
        InputError: the working directory, the home folder, or a folder above one of these; the root of a file system;
            a folder with a .git; a folder that holds one of the inputs.
    """
    read = [Path(os.path.realpath(path)) for path in inputs]
    reasons = (
        (_holds(target, Path.cwd()), "it is the working directory, or holds it"),
        (_holds(target, Path(os.path.realpath(Path.home()))), "it is the home folder, or holds it"),
        (os.path.ismount(target), "it is the root of a file system"),
        ((target / ".git").exists(), "it holds a git repository (.git)"),
        *((_holds(target, path), f"it holds an input of this command: {path}") for path in read),
    )
    reason = next((words for applies, words in reasons if applies), None)
    if reason is not None:
        raise InputError(
            "this folder is never replaced",
            received=str(target),
            expected="a folder that holds an earlier result and nothing else",
            where=reason,
            advice="choose another --out, such as a new folder in it",
        )


def require_movable(target: Path) -> None:
    """Refuse a folder that cannot be renamed, since results are put in place by renaming.

    Raises:
        InputError: the root of a file system, such as a volume of a container.
    """
    if os.path.ismount(target):
        raise InputError(
            "the output folder is the root of a file system, which cannot be replaced as a whole",
            received=str(target),
            expected="a folder in it",
            advice=f"use --out {target / 'NAME'}",
        )


@contextmanager
def replaced_folder(
    path: Path | str, layout: Layout, *, overwrite: bool = False, inputs: Sequence[Path] = ()
) -> Iterator[Path]:
    """A staging folder beside `path` that takes its place in one move when the block ends well.

    After an error `path` is as it was: a result is there whole or not at all.

    Raises:
        InputError: as `check_output_folder` and `require_movable`.
    """
    target = check_output_folder(path, replaces=layout if overwrite else None, inputs=inputs)
    require_movable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = staging_folder(target)
    try:
        yield staging
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    staging.chmod(0o755)
    put_in_place(staging, target, layout)


def staging_folder(target: Path) -> Path:
    """A new folder beside `target` for what will take its place."""
    return Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=HALF_WRITTEN))


def put_in_place(staging: Path, target: Path, layout: Layout) -> None:
    """Let a finished result take the place of what is at `target`, nothing or an earlier result of its kind.

    Raises:
        RunError: something foreign has come into the target since it was checked; both results stay where they are.
    """
    layout.write_list(staging)
    if not target.is_dir() or not any(target.iterdir()):
        os.replace(staging, target)
        return
    try:
        layout.require_own(target)
    except InputError as error:
        raise RunError(
            "while this ran, files that topicscope did not write have come into the output folder",
            received=error.received,
            expected=error.expected,
            where=str(target),
            advice=f"move them away; the new result is kept in {staging}",
        ) from error
    journal = _journal(target)
    with locked_file(journal, wait=True) as stream:
        earlier = staging_folder(target)
        earlier.rmdir()  # its name is what is wanted
        stream.truncate(0)
        stream.write(json.dumps({"kind": layout.name, "earlier": earlier.name}))
        stream.flush()
        os.fsync(stream.fileno())
        os.replace(target, earlier)
        try:
            os.replace(staging, target)
        except OSError:
            os.replace(earlier, target)
            journal.unlink()
            raise
        _remove_earlier(earlier, layout)
        journal.unlink()


def recover(target: Path) -> None:
    """Finish what a process that died in `put_in_place` left: the earlier result is put back unless the new one is
    there; then the earlier one is removed.

    Raises:
        InputError: there is a file of the journal's name that topicscope did not write.
    """
    if target.parent == target:
        return
    journal = _journal(target)
    if not journal.is_file():
        return
    with locked_file(journal, wait=True) as stream:
        stream.seek(0)
        text = stream.read()
        if not (text.startswith(_JOURNAL) or _JOURNAL.startswith(text)):
            raise InputError(
                "a file is in the way that topicscope did not write",
                received=str(journal),
                expected="no file of this name beside the output folder",
                advice="move it away, or choose another --out",
            )
        try:
            document = json.loads(text)
        except ValueError:  # cut short before anything was moved
            document = {"kind": "", "earlier": HALF_WRITTEN}
        layout, earlier = LAYOUTS.get(document["kind"]), target.with_name(document["earlier"])
        if earlier.is_dir() and layout is not None:
            if target.exists():
                _remove_earlier(earlier, layout)
            else:
                os.replace(earlier, target)
        journal.unlink(missing_ok=True)


def _remove_earlier(earlier: Path, layout: Layout) -> None:
    foreign = layout.remove(earlier)
    if foreign:
        raise RunError(
            "the result is in place, but files that topicscope did not write came into the folder meanwhile",
            received=", ".join(foreign[:5]),
            where=str(earlier),
            advice="they are kept there: move them where you want them",
        )


def _journal(target: Path) -> Path:
    return target.with_name(f".{target.name}.replacing")


def _holds(folder: Path, path: Path) -> bool:
    return folder == path or folder in path.parents


class TemporaryFolder:
    """A folder that is removed with the last reference to this object, or at the end of the process."""

    def __init__(self, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(dir=parent, prefix="topicscope-"))
        # Unlike `tempfile.TemporaryDirectory`, which warns where nobody closed it.
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def renamed(self, path: Path) -> None:
        """Give the folder another name, under which it stays.

        Raises:
            OSError: it cannot be moved there, or something is there.
        """
        self.path.rename(path)
        self._end.detach()
