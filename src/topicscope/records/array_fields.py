"""Accumulators on disk: the fields of a dataclass as named arrays, and back.

Each field is stored as what it is: an array or a number under its own name, another accumulator below that name, and a
dict or list of accumulators below its keys. Anything else (a name, the description of a part) is JSON in UTF-8 bytes.
"""

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import TypeAdapter

Kind = TypeVar("Kind", bound="ArrayFields")
_HINTS: dict[Any, dict[str, Any]] = {}  # of each class, since shards come by the thousand


class ArrayFields:
    """Base of a dataclass that is stored as arrays; all fields that it is made of are."""

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """The fields by name, below `prefix`; a field that is None is left out."""
        found: dict[str, np.ndarray] = {}
        for name in _hints(type(self)):
            _store(found, f"{prefix}/{name}", getattr(self, name))
        return found

    @classmethod
    def from_arrays(cls: type[Kind], arrays: Mapping[str, np.ndarray], prefix: str) -> Kind:
        """The inverse of `arrays`.

        Raises:
            KeyError: an array is missing.
        """
        return cls(**{name: _restore(hint, arrays, f"{prefix}/{name}") for name, hint in _hints(cls).items()})


def _hints(kind: Any) -> dict[str, Any]:
    """The type of each field."""
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {field.name: hints[field.name] for field in fields(kind) if field.init}
    return _HINTS[kind]


def _store(found: dict[str, np.ndarray], name: str, value: Any) -> None:
    if isinstance(value, ArrayFields):
        found.update(value.arrays(name))
    elif isinstance(value, (dict, list)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        found[name] = _json(keys)
        for key in keys:
            found.update(value[key].arrays(f"{name}/{key}"))
    elif isinstance(value, (np.ndarray, int, float)):
        found[name] = np.asarray(value)
    elif value is not None:
        found[name] = _json(value)


def _restore(hint: Any, arrays: Mapping[str, np.ndarray], name: str) -> Any:
    origin, within = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        there = name in arrays or any(stored.startswith(f"{name}/") for stored in arrays)
        return _restore(within[0], arrays, name) if there else None
    if origin in (dict, list):
        read = {key: within[-1].from_arrays(arrays, f"{name}/{key}") for key in _from_json(list[Any], arrays[name])}
        return read if origin is dict else list(read.values())
    if hint is np.ndarray:
        return arrays[name]
    if hint in (int, float):
        return hint(arrays[name])
    return hint.from_arrays(arrays, name) if issubclass(hint, ArrayFields) else _from_json(hint, arrays[name])


def _json(value: Any) -> np.ndarray:
    return np.frombuffer(TypeAdapter(type(value)).dump_json(value), dtype=np.uint8)


def _from_json(kind: Any, array: np.ndarray) -> Any:
    return TypeAdapter(kind).validate_json(array.tobytes())
