"""The one pair classifier against its definition, pair by pair."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.topics import NO_PAIR, PairClass, Positions, classify_pairs


def by_definition(word_i: int, word_j: int, topics_i: set[int], topics_j: set[int], same_place: bool) -> int:
    """design.md's PairClass, in words rather than arrays."""
    if same_place or word_i < 0 or word_j < 0:
        return NO_PAIR
    if word_i == word_j:
        return PairClass.same_word if topics_i else PairClass.same_word_no_topic
    if not topics_i or not topics_j:
        return PairClass.no_topic
    return PairClass.same_topic if topics_i & topics_j else PairClass.different_topic


@st.composite
def texts(draw: st.DrawFn) -> tuple[np.ndarray, list[set[int]], int]:
    """Words of one text, the topics of each word of the vocabulary, and the number of topics."""
    num_topics = draw(st.integers(1, 4))
    num_words = draw(st.integers(1, 6))
    topics = [draw(st.sets(st.integers(0, num_topics - 1))) for _ in range(num_words)]
    words = draw(st.lists(st.integers(-1, num_words - 1), min_size=1, max_size=9))
    return np.array(words), topics, num_topics


@given(texts(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_membership_form_follows_the_definition(text: tuple[np.ndarray, list[set[int]], int], use_torch: bool) -> None:
    words, topics, num_topics = text
    of = [topics[w] if w >= 0 else set() for w in words]
    member = np.array([[float(t in s) for t in range(num_topics)] for s in of])
    arrays = (words, member, np.arange(len(words)))
    got = np.asarray(classify_pairs(Positions(*(map(torch.as_tensor, arrays) if use_torch else arrays))))
    want = [
        [by_definition(words[i], words[j], of[i], of[j], i == j) for j in range(len(words))] for i in range(len(of))
    ]
    np.testing.assert_array_equal(got, want)


@given(texts())
@settings(max_examples=100, deadline=None)
def test_one_topic_form_equals_membership_form(text: tuple[np.ndarray, list[set[int]], int]) -> None:
    words, topics, num_topics = text
    single = np.array([min(topics[w], default=-1) if w >= 0 else -1 for w in words])
    member = (single[:, None] == np.arange(num_topics)).astype(float)
    place = np.arange(len(words))
    np.testing.assert_array_equal(
        classify_pairs(Positions(words, single, place)), classify_pairs(Positions(words, member, place))
    )


def test_two_sequences_of_the_same_text_leave_out_the_same_occurrence() -> None:
    words, topics = np.array([5, 6, 5]), np.array([0, 1, 0])
    query = Positions(np.array([-1, 5, 6]), np.array([-1, 0, 1]), np.array([-1, 0, 1]))
    got = classify_pairs(query, Positions(words, topics, np.arange(3)))
    none, same, different = NO_PAIR, PairClass.same_word, PairClass.different_topic
    np.testing.assert_array_equal(got, [[none, none, none], [none, different, same], [different, none, different]])


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_leading_axes_are_kept(batch: tuple[int, ...]) -> None:
    words = np.zeros((*batch, 4), dtype=int)
    assert classify_pairs(Positions(words, words, words + np.arange(4))).shape == (*batch, 4, 4)
