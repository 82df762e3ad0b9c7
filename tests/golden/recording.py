"""One recording: plain values under readable keys, without what differs from run to run.

A key names part, case, file and what is in it: `probe/bert-sentence-skip/moments.npz/encoder/sum`. Documents (JSON) are
kept nested and become one key for each leaf when they are compared; arrays have a key each.
"""

import contextlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load as load_tensors

from golden import adapter

MASKED = "(masked)"
# Moments, machines and durations; `bytes` and `command` depend on pages and folders, the `key` of a sweep's row on the
# version of the numbers, which has a golden key of its own.
VOLATILE = {
    "bytes", "command", "created", "elapsed_s", "environment", "key", "left_s", "libraries", "numbers_version",
    "seconds", "setup_seconds",
}  # fmt: skip
_NOT_VALUES = {".html", ".png", ".pdf", ".md"}  # only their names are recorded


class Recorder:
    """Collects the values of one part and writes them as PART.json and PART.npz."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.documents: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON document, a text or a number under PART/key."""
        self.documents[f"{self.part}/{key}"] = masked(value)

    def put_array(self, key: str, array: np.ndarray) -> None:
        """Keep an array; one of texts becomes a list."""
        array = np.asarray(array)
        if array.dtype.kind in "iufb":
            self.arrays[f"{self.part}/{key}"] = array
        elif array.shape == () and str(array).startswith("{"):
            self.put(key, json.loads(str(array)))
        else:
            self.put(key, [None if value is None else str(value) for value in array.ravel().tolist()])

    def put_columns(self, key: str, frame: pd.DataFrame) -> None:
        """Keep a table column by column, the names alone of what is volatile."""
        self.put(f"{key}/(columns)", [str(name) for name in frame.columns])
        for name in [name for name in frame.columns if name not in VOLATILE]:
            self.put_array(f"{key}/{name}", frame[name].to_numpy(object if frame[name].dtype.kind == "O" else None))

    def put_folder(self, key: str, folder: Path) -> None:
        """Keep the values of every file of a result, and the list of its files."""
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        self.put(f"{key}/(files)", [path.relative_to(folder).as_posix() for path in found])
        for path in found:
            self._put_file(f"{key}/{path.relative_to(folder).as_posix()}", path)

    def _put_file(self, key: str, path: Path) -> None:
        if path.suffix == ".json":
            self.put(key, json.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".jsonl":
            self.put(key, by_step([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]))
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                for name in archive.files:
                    self.put_array(f"{key}/{name}", archive[name])
        elif path.suffix == ".safetensors":
            for name, tensor in load_tensors(path.read_bytes()).items():
                self.put_array(f"{key}/{name}", tensor)
        elif path.suffix == ".csv":
            self.put_columns(key, pd.read_csv(path, float_precision="round_trip"))
        elif path.suffix == ".parquet":
            self.put_columns(key, pd.read_parquet(path))
        elif path.suffix not in _NOT_VALUES:
            self.put(f"{key}/(unknown kind of file)", path.suffix)

    def save(self, folder: Path) -> None:
        """Write both files."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{self.part}.npz", **self.arrays)
        text = json.dumps(self.documents, ensure_ascii=False, indent=1)
        (folder / f"{self.part}.json").write_text(text, encoding="utf-8")


def by_step(lines: Sequence[Any]) -> Any:
    """Lines that have a step by it, so that one step more or less leaves the others comparable."""
    if not all(isinstance(line, dict) for line in lines):
        return list(lines)
    keys = [_name_of(line) for line in lines]
    return dict(zip(keys, lines, strict=True)) if len(set(keys)) == len(keys) else list(lines)


def _name_of(line: Mapping[str, Any]) -> str:
    names = [f"{name} {line[name]}" for name in ("kind", "seed", "step") if name in line]
    return ", ".join(names)


def masked(value: Any) -> Any:
    """The value with what is volatile replaced; temporary folders and hashes of runs are so in texts as well."""
    if isinstance(value, Mapping):
        return {str(name): MASKED if name in VOLATILE else masked(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    if isinstance(value, str):
        value = value.replace(str(Path.cwd()), ".").replace(str(adapter.source_tree()), "(tree)")
        return re.sub(r"\b\d+(\.\d+)? s\b", "(masked) s", value)
    return value


def command_line(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `topicscope ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = adapter.find("command line")([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return int(code or 0), out.getvalue(), err.getvalue()


def succeed(*arguments: object) -> str:
    """What `topicscope ARGUMENTS` prints; a failure ends the recording."""
    code, out, err = command_line(*arguments)
    if code != 0:
        raise RuntimeError(f"topicscope {' '.join(map(str, arguments))}: exit code {code}\n{err}")
    return out
