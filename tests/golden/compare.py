"""Compare two recordings: exactly, or within tolerances where they come from different processors.

What may differ is in EXPECTED_CHANGES.md. Whatever else differs is a problem, and so is an expected change that is not
there, or a number that changed under the same NUMBERS_VERSION.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from golden.expected import Expected

SHOWN = 20
VERSION = "/numbers-version/version"  # ends a key of every part
_ABSENT = "(absent)"


@dataclass(frozen=True)
class Tolerance:
    """|a - b| <= relative · max(|a|, |b|) + absolute · scale, with the largest entry of an array as its scale.

    The scale of a single number is 1.
    """

    relative: float = 0.0
    absolute: float = 0.0

    def allows(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Entry by entry; NaN is equal to NaN, infinities to themselves."""
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        finite = np.abs(a[np.isfinite(a)])
        scale = float(finite.max()) if a.ndim and finite.size else 1.0
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= self.relative * np.maximum(np.abs(a), np.abs(b)) + self.absolute * scale
        return (a == b) | (near & np.isfinite(a) & np.isfinite(b)) | (np.isnan(a) & np.isnan(b))


EXACT = Tolerance()


@dataclass
class Comparison:
    """What came out: every difference that nobody expected, and what else is wrong."""

    differences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    compared: int = 0

    @property
    def fine(self) -> bool:
        """Nothing to report."""
        return not self.differences and not self.problems

    def text(self) -> str:
        """The first differences, how many more there are, and the problems."""
        lines = self.differences[:SHOWN]
        if len(self.differences) > SHOWN:
            lines.append(f"and {len(self.differences) - SHOWN} more differences")
        return "\n".join([*lines, *self.problems, f"{self.compared} golden values compared"])


def load(folder: Path) -> dict[str, Any]:
    """Every value of a recording by key, documents taken apart into leaves."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        for key, document in json.loads(path.read_text(encoding="utf-8")).items():
            found.update(leaves(key, document))
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as archive:
            found.update({name: archive[name] for name in archive.files})
    return found


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Keys and values of a document; a list of plain values is one leaf."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from leaves(f"{key}/{name}", item)
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from leaves(f"{key}/{number}", item)
    else:
        yield key, value


def compare(
    base: Mapping[str, Any],
    head: Mapping[str, Any],
    expected: Expected,
    *,
    tolerance: Tolerance = EXACT,
    looser: Mapping[str, Tolerance] | None = None,
    parts: Sequence[str] | None = None,
) -> Comparison:
    """Compare recordings of these parts (None: all parts, so that every expected change must be seen).

    looser: other tolerances for keys that match a pattern.
    """
    found, moved = Comparison(), expected.renamed(base)
    changed_numbers: list[str] = []
    for key in sorted(moved.keys() | head.keys()):
        a, b = moved.get(key, _ABSENT), head.get(key, _ABSENT)
        found.compared += 1
        if same(a, b, tolerance) or any(same(a, b, t) for name, t in (looser or {}).items() if fnmatchcase(key, name)):
            continue
        within = expected.tolerance_of(key)
        if within is not None and same(a, b, Tolerance(*within)):
            continue
        if key.endswith(VERSION):
            continue
        if is_number(a) and is_number(b) and not key.startswith("surface/"):
            changed_numbers.append(key)
        if not expected.allows(key):
            found.differences.append(f"{key}\n{difference(a, b)}")
    before, version = version_of(base), version_of(head)
    if changed_numbers and tolerance == EXACT and version is not None and before == version:
        found.problems.append(
            f"{len(changed_numbers)} numbers changed ({changed_numbers[0]}, …) while NUMBERS_VERSION is {version} "
            "as in the base: raise it in the records package, so that no run resumes or reuses older numbers"
        )
    if tolerance == EXACT:
        found.problems += [f"expected, but nothing changed there: {line}" for line in expected.stale(parts)]
    return found


def version_of(recorded: Mapping[str, Any]) -> int | None:
    """NUMBERS_VERSION of a recording."""
    return next((value for key, value in recorded.items() if key.endswith(VERSION)), None)


def same(a: Any, b: Any, tolerance: Tolerance) -> bool:
    """Equal, or numbers within the tolerance; exact values have the same type as well."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or (tolerance == EXACT and a.dtype != b.dtype):
            return False
        return bool(tolerance.allows(a, b).all())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return bool(tolerance.allows(np.array(a), np.array(b)))
    return bool(a == b)


def is_number(value: Any) -> bool:
    """A measured value: floats and arrays, and not the whole numbers of a document (versions, options)."""
    if isinstance(value, list):
        return bool(value) and any(isinstance(item, float) for item in value)
    return isinstance(value, (float, np.ndarray))


def difference(a: Any, b: Any) -> str:
    """Both values, or what differs between two texts or arrays."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
        if a.dtype != b.dtype:
            return f"  base {a.dtype}, now {b.dtype}"
        wrong = np.argwhere(~EXACT.allows(a, b))
        first = tuple(int(i) for i in wrong[0])
        with np.errstate(invalid="ignore"):
            largest = np.nanmax(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))
        place = f"the first at {list(first)}: base {a[first]!r}, now {b[first]!r}"
        return f"  {len(wrong)} of {a.size} entries differ, at most by {largest:.3g}; {place}"
    if _is_text(a) and _is_text(b):
        lines = difflib.unified_diff(a, b, "base", "now", lineterm="", n=0)
        return "\n".join(f"  {line}" for line in list(lines)[2:14])
    return f"  base {_short(a)}\n  now  {_short(b)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def _short(value: Any) -> str:
    text = f"array {value.shape} {value.dtype}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 300 else text[:300] + " …"
