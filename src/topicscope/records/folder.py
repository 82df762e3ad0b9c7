"""The rules for an output folder."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topicscope.errors import InputError


def check_output_folder(path: Path, *, overwrite: bool = False) -> None:
    """Make sure, before any work, that a result can be written to `path`; change nothing.

    Raises:
        InputError: `path` is a file, a folder that is not empty and `overwrite` is false, or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise InputError("the output path is a file", received=str(path), expected="a folder, new or empty")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise InputError(
            "the output folder is not empty",
            received=str(path),
            expected="a new or empty folder",
            advice="choose another --out, or add --overwrite to replace what is there",
        )
    nearest = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        # Tried, not asked: permissions do not tell of read-only and virtual file systems.
        tempfile.TemporaryDirectory(dir=nearest, prefix=f".{path.name}.").cleanup()
    except OSError as error:
        raise InputError(
            "the output folder cannot be written",
            received=str(path),
            expected=f"a folder that can be made in {nearest}",
            where=str(error),
            advice="choose another --out",
        ) from error


@contextmanager
def replaced_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A staging folder beside `path` that takes its place in one move when the block ends well.

    After an error `path` is as it was: a result is there whole or not at all.

    Raises:
        InputError: as `check_output_folder`.
    """
    check_output_folder(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield staging
        staging.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        os.replace(staging, path)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def prepare_output_folder(path: Path, *, overwrite: bool = False) -> Path:
    """An empty folder at `path` for a run that writes as it goes; with `overwrite` what was there is removed.

    Raises:
        InputError: as `check_output_folder`.
    """
    check_output_folder(path, overwrite=overwrite)
    if path.is_dir():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


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
