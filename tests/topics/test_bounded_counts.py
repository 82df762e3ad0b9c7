"""Counting in bounded memory against exact counting: equal below the bound, no further off than is said above it."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.topics.bounded_counts import BoundedCounts

passages = st.lists(st.lists(st.sampled_from([f"w{i}" for i in range(12)]), max_size=8), max_size=40)


def zipf_passages(number: int = 300, words: int = 400) -> list[list[str]]:
    draw = np.random.default_rng(0)
    return [[f"w{int(w) % words}" for w in draw.zipf(1.3, 20)] for _ in range(number)]


def counted(passages: list[list[str]], limit: int) -> tuple[BoundedCounts, Counter[str], list[list[int]]]:
    bounded, exact, numbers = BoundedCounts(limit), Counter[str](), []
    for words in passages:
        numbers.append(bounded.add(words))
        exact.update(words)
        assert len(bounded) <= limit
    return bounded, exact, numbers


@given(passages)
def test_below_the_bound_counts_are_exact_and_numbers_tell_words_apart(texts: list[list[str]]) -> None:
    bounded, exact, numbers = counted(texts, 12)
    assert bounded.counts == exact
    assert bounded.undercount == bounded.prunings == bounded.pruned_words == bounded.pruned_tokens == 0
    found = dict(zip(chain(*texts), chain(*numbers), strict=True))
    assert [[found[word] for word in text] for text in texts] == numbers
    assert len(set(found.values())) == len(found) == len(bounded)


@settings(max_examples=200)
@given(passages, st.integers(1, 11))
def test_above_the_bound_no_count_is_further_off_than_is_said(texts: list[list[str]], limit: int) -> None:
    bounded, exact, _ = counted(texts, limit)
    held = bounded.counts
    for word, count in exact.items():
        assert held.get(word, 0) <= count <= held.get(word, 0) + bounded.undercount
    assert bounded.tokens + bounded.pruned_tokens == exact.total()
    assert bounded.tokens == sum(held.values())
    assert (bounded.prunings > 0) >= (len(exact) > limit)
    assert (bounded.prunings == 0) == (bounded.pruned_words == 0) == (bounded.undercount == 0)


@given(passages, st.integers(1, 11))
def test_no_two_words_ever_had_one_number(texts: list[list[str]], limit: int) -> None:
    """What was written under a number is never taken for another word, also after some were pruned."""
    _, _, numbers = counted(texts, limit)
    words: dict[int, str] = {}
    for number, word in zip(chain(*numbers), chain(*texts), strict=True):
        assert words.setdefault(number, word) == word


def test_frequent_words_survive_and_a_smaller_bound_loses_more() -> None:
    lost, under = [], []
    for limit in (400, 100, 30, 10):
        bounded, exact, _ = counted(zipf_passages(), limit)
        frequent = {word for word, count in exact.items() if count > bounded.undercount}
        assert frequent <= bounded.counts.keys()
        lost.append(bounded.pruned_tokens)
        under.append(bounded.undercount)
    assert lost == sorted(lost)
    assert under == sorted(under)
    assert lost[0] == 0 < lost[1]


def test_the_largest_undercount_is_reached() -> None:
    """a is pruned with a count of 1, comes again and is pruned with 2: 3 occurrences are lost, and Δ says 3."""
    bounded = BoundedCounts(2)
    bounded.add(["a", "b", "b", "c", "c"])
    assert (bounded.undercount, bounded.counts) == (2, {})
    bounded = BoundedCounts(4)
    bounded.add(["a", "b", "b", "c", "c", "d", "e"])
    assert (bounded.undercount, bounded.counts) == (1, {"b": 2, "c": 2})
    bounded.add(["a", "a", "b", "c", "f", "g"])
    assert (bounded.undercount, bounded.counts) == (3, {"b": 3, "c": 3})
    assert bounded.add(["a", "b"])[0] > bounded.add(["b"])[0], "a pruned word gets a new number"


def test_the_most_frequent_come_first_then_the_alphabet() -> None:
    bounded = BoundedCounts(10)
    numbers = bounded.add(["z", "y", "y", "x", "x", "w", "v", "v", "v"])
    words, found, counts = bounded.most_frequent(1)
    assert words == ("v", "x", "y", "w", "z")
    assert counts.tolist() == [3, 2, 2, 1, 1]
    assert found.tolist() == [numbers[i] for i in (6, 3, 1, 5, 0)]
    assert bounded.most_frequent(3)[0] == ("v",)
    assert bounded.most_frequent(9)[0] == ()


@pytest.mark.parametrize("limit", [5, 1000])
def test_memory_is_that_of_the_bound(limit: int) -> None:
    bounded = BoundedCounts(limit)
    for i in range(3000):
        bounded.add([f"w{i}"])
        assert len(bounded._place) == len(bounded._counts) == len(bounded._numbers) <= limit
