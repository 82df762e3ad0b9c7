"""EXPECTED_CHANGES.md: what may differ from the base commit, with the reason of each.

The file is prose around fenced blocks of TOML:

    [[changed]]                        # these keys may differ, appear or go
    keys = ["surface/help/probe"]
    reason = "…"
    [[renamed]]                        # a segment of these keys has another name now, and the same value
    keys = ["probe/*/result.json/*"]
    old = "z_turned"
    new = "z_rotation"
    reason = "…"
    [[reworded]]                       # a text under these keys reads otherwise
    keys = ["*"]
    old = "…"
    new = "…"
    reason = "…"
    [[within]]                         # numbers under these keys may differ by so much
    keys = ["probe/*/embeddings/*/z"]
    relative = 1e-12
    reason = "…"

Keys are patterns in which * stands for anything. An entry that matches no difference is an error: nothing stale stays.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("EXPECTED_CHANGES.md")
_FIELDS = {
    "changed": {"keys", "reason"},
    "renamed": {"keys", "reason", "old", "new"},
    "reworded": {"keys", "reason", "old", "new"},
    "within": {"keys", "reason", "relative", "absolute"},
}
_OPTIONAL = {"relative", "absolute"}


@dataclass
class Expected:
    """The entries by kind; remembers which patterns met a difference."""

    entries: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    _met: set[tuple[str, int, str]] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path = FILE) -> "Expected":
        """Read every fenced block of TOML."""
        return cls.parsed(path.read_text(encoding="utf-8"))

    @classmethod
    def parsed(cls, text: str) -> "Expected":
        """Read a text.

        Raises:
            ValueError: an unknown kind or field, or an entry without keys or reason.
        """
        entries: dict[str, list[Mapping[str, Any]]] = {}
        for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for kind, found in tomllib.loads(block).items():
                for entry in found:
                    fields = _FIELDS.get(kind)
                    if fields is None or set(entry) - fields or (fields - _OPTIONAL) - set(entry):
                        raise ValueError(f"[[{kind}]] {entry}: expected the fields {_FIELDS}")
                    entries.setdefault(kind, []).append(entry)
        return cls(entries)

    def renamed(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The base under the names and words of the present commit."""
        return dict(self._renamed_item(key, value) for key, value in base.items())

    def _renamed_item(self, key: str, value: Any) -> tuple[str, Any]:
        for number, pattern, entry in self._matching("renamed", key):
            segment = rf"(?<![^/]){re.escape(entry['old'])}(?![^/])"
            other = re.sub(segment, lambda _, new=entry["new"]: str(new), key)
            if other != key:
                self._met.add(("renamed", number, pattern))
                key = other
        for number, pattern, entry in self._matching("reworded", key):
            other = _reworded(value, entry["old"], entry["new"])
            if other is not value:
                self._met.add(("reworded", number, pattern))
                value = other
        return key, value

    def tolerance_of(self, key: str) -> tuple[float, float] | None:
        """Relative and absolute tolerance of a key that differs, if it has one."""
        for number, pattern, entry in self._matching("within", key):
            self._met.add(("within", number, pattern))
            return float(entry.get("relative", 0.0)), float(entry.get("absolute", 0.0))
        return None

    def allows(self, key: str) -> bool:
        """Whether a key may differ."""
        found = list(self._matching("changed", key))
        self._met.update(("changed", number, pattern) for number, pattern, _ in found)
        return bool(found)

    def stale(self, parts: Sequence[str] | None) -> list[str]:
        """Patterns that met no difference, of the parts that were compared."""
        return [
            f"[[{kind}]] {pattern} ({entry['reason']})"
            for kind, entries in self.entries.items()
            for number, entry in enumerate(entries)
            for pattern in entry["keys"]
            if (kind, number, pattern) not in self._met and _is_of(pattern, parts)
        ]

    def _matching(self, kind: str, key: str) -> list[tuple[int, str, Mapping[str, Any]]]:
        return [
            (number, pattern, entry)
            for number, entry in enumerate(self.entries.get(kind, ()))
            for pattern in entry["keys"]
            if fnmatchcase(key, pattern)
        ]


def _is_of(pattern: str, parts: Sequence[str] | None) -> bool:
    """Whether a pattern is judged: one without a plain first segment only when every part was compared."""
    return parts is None or pattern.partition("/")[0] in parts


def _reworded(value: Any, old: str, new: str) -> Any:
    """A whole text in place of another, also in a list."""
    if isinstance(value, str) and value == old:
        return new
    if isinstance(value, list) and old in value:
        return [new if item == old else item for item in value]
    return value
