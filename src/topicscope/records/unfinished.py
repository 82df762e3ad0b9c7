"""DIR.unfinished: where a run that writes to DIR keeps what it has done, until DIR can be put in place in one move."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from topicscope.errors import InputError, RunError
from topicscope.records.files import read_json, write_json
from topicscope.records.folder import check_output_folder
from topicscope.records.lock import LOCK, folder_lock

SCHEMA_VERSION = 1
IDENTITY = "run.json"


class UnfinishedRun:
    """The folder of a run under way. `folder`: where it keeps its work; `resumed`: whether an earlier run left some."""

    def __init__(self, target: Path, folder: Path, *, resumed: bool) -> None:
        self.target, self.folder, self.resumed = target, folder, resumed
        self.keep = False

    def require_same(self, identity: dict[str, Any]) -> None:
        """Write down what decides the numbers of this run, or compare it with what the earlier run wrote down.

        Raises:
            InputError: the earlier run was of another kind; names every difference.
        """
        path = self.folder / IDENTITY
        if not path.is_file():
            write_json(path, {"schema_version": SCHEMA_VERSION, "identity": identity})
            return
        found = read_json(path)
        earlier = found.get("identity", {}) if found.get("schema_version") == SCHEMA_VERSION else {}
        different = sorted(k for k in identity.keys() | earlier.keys() if identity.get(k) != earlier.get(k))
        if different:
            raise InputError(
                "the unfinished run is another one, so it cannot be resumed",
                received={key: identity.get(key) for key in different},
                expected={key: earlier.get(key) for key in different},
                where=str(self.folder),
                advice="give the options, model and text of the earlier run, or start anew with --overwrite",
            )

    def publish(self, staging: Path) -> None:
        """Put `staging` (a folder inside `folder`) in the place of the target."""
        if self.target.exists():
            shutil.rmtree(self.target)
        os.replace(staging, self.target)


@contextmanager
def unfinished_run(
    target: Path, *, resume: bool = False, overwrite: bool = False, replaces: bool = False
) -> Iterator[UnfinishedRun]:
    """A locked folder `target`.unfinished for the work, removed when the block ends well unless `keep` was set.

    With `resume` it may hold the work of an earlier run, with `overwrite` that is thrown away. After an error or a
    kill it stays, so that the run can be resumed; after an InputError, or with nothing finished in it, a folder that
    this run made is removed. replaces: the target may hold something (an interrupted result of the same run).

    Raises:
        InputError: as `check_output_folder`; an unfinished run is there without `resume` or `overwrite`; another run
            holds it.
        RunError: the disk is full, or the folder is no longer there.
    """
    target = Path(os.path.abspath(target))  # "." has no name to put .unfinished behind; "a/../b" needs a folder a
    check_output_folder(target, overwrite=overwrite or replaces)
    folder = target.parent / f"{target.name}.unfinished"
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    made = bool(missing)
    if not made and not (resume or overwrite):
        with folder_lock(folder):  # says who, if somebody is at it right now
            raise InputError(
                "an earlier run to this folder was not finished",
                received=str(folder),
                expected="a new --out",
                advice="add --resume to go on with it, or --overwrite to start anew",
            )
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        if overwrite and not resume:
            _clear(folder)
        _remove_half_written(folder)
        run = UnfinishedRun(target, folder, resumed=_has_work(folder))
        try:
            yield run
        except BaseException as error:
            if made and (isinstance(error, InputError) or not _has_work(folder)):
                _remove(folder, missing[1:])
            if not isinstance(error, OSError):
                raise
            raise RunError(
                "the result could not be written",
                received=str(error),
                where=str(folder),
                advice="make room on the disk, then run the same command with --resume: what was finished is kept",
            ) from error
        if not run.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_half_written(folder: Path) -> None:
    """What a killed run left of files and folders that were to be renamed when whole."""
    for path in sorted(folder.rglob(".*.????????")):  # mkstemp's and mkdtemp's eight random characters
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _has_work(folder: Path) -> bool:
    return folder.is_dir() and any(path.name not in (LOCK, IDENTITY) for path in folder.iterdir())


def _remove(folder: Path, parents: list[Path]) -> None:
    """The folder, and those above it that were made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in parents:
        with suppress(OSError):
            path.rmdir()


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
