"""Accumulators come back from arrays as they were stored, in the order in which they were."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from topicscope.records import ArrayFields


@dataclass(frozen=True)
class Description:
    name: str
    layers: tuple[int, ...] | None = None


@dataclass(eq=False)
class Sums(ArrayFields):
    of: Description
    total: np.ndarray
    corrected: np.ndarray | None = None
    count: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class Collection(ArrayFields):
    parts: dict[str, Sums] = field(default_factory=dict)
    waiting: list[Sums] = field(default_factory=list)
    open: Sums | None = None


def test_arrays_give_back_every_field() -> None:
    one, other = Sums(Description("ä", (1, 2)), np.arange(3.0), np.ones(2), 4, 0.5), Sums(Description("b"), np.eye(2))
    stored = Collection({"later": other, "earlier": one}, [one, other], one).arrays("x")
    assert all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in stored.values())
    again = Collection.from_arrays(dict(sorted(stored.items())), "x")
    assert list(again.parts) == ["later", "earlier"]
    assert again.parts["later"].corrected is None
    for found in (again.parts["earlier"], again.waiting[0], again.open):
        assert found is not None
        assert (found.of, found.count, found.seconds) == (one.of, 4, 0.5)
        assert found.corrected is not None
        np.testing.assert_array_equal(found.total, one.total)
        np.testing.assert_array_equal(found.corrected, np.ones(2))


def test_arrays_of_nothing_give_back_nothing() -> None:
    again = Collection.from_arrays(Collection().arrays("x"), "x")
    assert (again.parts, again.waiting, again.open) == ({}, [], None)


def test_from_arrays_names_what_is_missing() -> None:
    stored = Sums(Description("a"), np.ones(1)).arrays("x")
    del stored["x/total"]
    with pytest.raises(KeyError, match="x/total"):
        Sums.from_arrays(stored, "x")
