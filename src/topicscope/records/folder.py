"""The rules for an output folder."""

import shutil
from pathlib import Path

from topicscope.errors import InputError


def prepare_output_folder(path: Path, *, overwrite: bool = False) -> Path:
    """Return an empty folder at `path`, made if need be.

    Raises:
        InputError: `path` is a file, or a folder that is not empty and `overwrite` is false.
    """
    if path.exists() and not path.is_dir():
        raise InputError("the output path is a file", received=str(path), expected="a folder, new or empty")
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise InputError(
                "the output folder is not empty",
                received=str(path),
                expected="a new or empty folder",
                advice="choose another --out, or add --overwrite to replace what is there",
            )
        shutil.rmtree(path)
    path.mkdir(parents=True, exist_ok=True)
    return path
