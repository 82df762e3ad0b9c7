"""The committed values: a recording made small, for machines where the base commit is not at hand.

Floats keep eight digits, long arrays every so many entries. What a sampler drew is left out: tomotopy's numbers
depend on the processor.
"""

import gzip
import io
import json
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from golden.compare import Tolerance, leaves

FOLDER = Path(__file__).with_name("values")
LEFT_OUT = ("fitted", "minilm")
ACROSS_PROCESSORS = Tolerance(1e-5, 1e-6)
# Hashes of numbers, which differ with their last bits.
_HASHES = ("*/weights_hash", "*/sources/run")
# What rounding is magnified in: Adam divides by gradients near zero, errors and z by small spreads. Measured against
# the kernels of an old processor (ATEN_CPU_CAPABILITY=default and the like), which need no more than this.
_MAGNIFIED = Tolerance(1e-4, 1e-5)
LOOSER = dict.fromkeys(
    ("train/*/weights.safetensors/*", "*_z", "*/z", "*z_banded", "*permutation_statistic", "*/heads.csv/*_se"),
    _MAGNIFIED,
)
_MOST_ENTRIES = 512


def reduced(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they are committed: shapes of arrays apart, few entries, eight digits."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if any(fnmatchcase(key, pattern) for pattern in _HASHES):
            continue
        if isinstance(value, np.ndarray):
            step = max(1, math.ceil(value.size / _MOST_ENTRIES))
            found[f"{key}/(shape)"] = list(value.shape)
            found[key] = _plain(value.ravel()[::step])
        else:
            found[key] = _rounded(value)
    return found


def write(values: Mapping[str, Any], folder: Path = FOLDER) -> None:
    """One pair of files a part."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in reduced(values).items():
        parts.setdefault(key.partition("/")[0], {})[key] = value
    folder.mkdir(exist_ok=True)
    for part, found in parts.items():
        documents = {key: value for key, value in found.items() if not isinstance(value, np.ndarray)}
        arrays = {key: value for key, value in found.items() if isinstance(value, np.ndarray)}
        text = json.dumps(_nested(documents), ensure_ascii=False, separators=(",", ":"))
        (folder / f"{part}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        names = sorted(arrays)
        joined = {
            kind: np.concatenate([arrays[name] for name in names if arrays[name].dtype == kind] or [np.zeros(0, kind)])
            for kind in ("float32", "int64")
        }
        table = json.dumps([[name, str(arrays[name].dtype), len(arrays[name])] for name in names])
        buffer = io.BytesIO()
        np.savez_compressed(buffer, names=np.frombuffer(table.encode(), np.uint8), **joined)
        (folder / f"{part}.npz").write_bytes(buffer.getvalue())


def read(folder: Path = FOLDER) -> dict[str, Any]:
    """What `write` wrote."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json.gz")):
        found.update(leaves("", json.loads(gzip.decompress(path.read_bytes()))))
        with np.load(folder / f"{path.name.partition('.')[0]}.npz", allow_pickle=False) as archive:
            at = dict.fromkeys(("float32", "int64"), 0)
            for name, kind, length in json.loads(archive["names"].tobytes()):
                found[f"/{name}"] = archive[kind][at[kind] : at[kind] + length]
                at[kind] += length
    return {key.removeprefix("/"): value for key, value in found.items()}


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}")
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _nested(leaves_by_key: Mapping[str, Any]) -> dict[str, Any]:
    """Keys taken apart at their slashes, which saves most of the text."""
    root: dict[str, Any] = {}
    for key, value in leaves_by_key.items():
        *path, last = key.split("/")
        place = root
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return root
