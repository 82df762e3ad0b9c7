"""Words to topics against Knowl 8 read aloud, word by word."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.topics import (
    Overlap,
    TopicAssignment,
    TopicModel,
    Topics,
    Vocabulary,
    WordList,
    assign_words,
    from_word_list,
)
from topicscope.topics.assignment import FEW_WORDS


def model_of(weights: object, words: list[str] | None = None) -> TopicModel:
    matrix = np.array(weights, dtype=float)
    return TopicModel.normalised(matrix, Vocabulary(tuple(words or [f"w{i}" for i in range(matrix.shape[1])])))


def random_model(num_topics: int, num_words: int, seed: int = 0) -> TopicModel:
    draw = np.random.default_rng(seed)
    return model_of(draw.gamma(0.1, size=(num_topics, num_words)) + 1e-6)


def slow_twin(model: TopicModel, theta: Fraction, stops: set[str], overlap: Overlap) -> tuple[dict[str, set[int]], int]:
    """Knowl 8 as it is written, without a thought for speed; returns word -> topics and the ambiguous words' number."""
    words = [word for word in model.vocabulary.words if word not in stops]
    n = len(words)
    lists = []
    for t in range(model.num_topics):
        likelihood = {word: model.phi[t, model.vocabulary.words.index(word)] for word in words}
        ranked = sorted(words, key=lambda word: (-likelihood[word], words.index(word)))
        count = max(1, int(theta * n))
        lists.append([word for word in ranked[:count] if likelihood[word] > 0])
    found = {word: {t for t, listed in enumerate(lists) if word in listed} for word in words}
    found = {word: topics for word, topics in found.items() if topics}
    ambiguous = sum(len(topics) > 1 for topics in found.values())
    if overlap == "drop":
        found = {word: topics for word, topics in found.items() if len(topics) == 1}
    return found, ambiguous


def as_dict(assignment: TopicAssignment) -> dict[str, set[int]]:
    return {word: set(topics) for word, topics in zip(assignment.words, assignment.topics, strict=True)}


@settings(max_examples=150, deadline=None)
@given(
    # Small whole weights make many ties and zeros.
    weights=st.integers(1, 12).flatmap(
        lambda V: st.lists(st.lists(st.integers(0, 3), min_size=V, max_size=V).filter(any), min_size=1, max_size=4)
    ),
    percent=st.integers(1, 100),
    stops=st.sets(st.integers(0, 11)),
    overlap=st.sampled_from(["drop", "keep"]),
)
def test_against_the_slow_twin(weights: list[list[int]], percent: int, stops: set[int], overlap: Overlap) -> None:
    model = model_of(weights)
    stop_words = {f"w{i}" for i in stops}
    result = assign_words(model, percent / 100, stop_words=stop_words, overlap=overlap)
    expected, ambiguous = slow_twin(model, Fraction(percent, 100), stop_words, overlap)
    assert as_dict(result) == expected
    assert list(result.words) == [word for word in model.vocabulary.words if word in expected]
    assert result.dropped_ambiguous == (ambiguous if overlap == "drop" else 0)
    assert result.dropped_stop_words == len(stop_words & set(model.vocabulary.words))
    mean = sum(map(len, expected.values())) / model.num_topics
    assert result.words_per_topic == pytest.approx(mean)
    assert bool(result.warnings) == (mean < FEW_WORDS)


@pytest.mark.parametrize("overlap", ["drop", "keep"])
def test_the_proposed_threshold_is_enough_and_the_smallest(overlap: Overlap) -> None:
    model = random_model(8, 700)

    def words_per_topic(theta: float) -> float:
        return assign_words(model, theta, stop_words=(), overlap=overlap).words_per_topic

    (warning,) = assign_words(model, 0.001, stop_words=(), overlap=overlap).warnings
    found = re.search(r"--threshold ([\d.]+)\)", warning)
    assert found, warning
    proposed = float(found.group(1))
    assert words_per_topic(proposed) >= FEW_WORDS
    length = int(proposed * 700)
    assert all(words_per_topic((m + 0.5) / 700) < FEW_WORDS for m in range(length))
    assert not assign_words(model, proposed, stop_words=(), overlap=overlap).warnings


def test_when_no_threshold_is_enough_the_warning_says_so() -> None:
    model = model_of(np.random.default_rng(0).uniform(1, 2, size=(10, 40)))
    (warning,) = assign_words(model, 0.1, stop_words=()).warnings
    assert "No threshold" in warning
    assert "--overlap keep" in warning
    best = float(re.search(r"; ([\d.]+) gives the most", warning).group(1))  # type: ignore[union-attr]
    means = [assign_words(model, m / 40, stop_words=()).words_per_topic for m in range(1, 41)]
    assert assign_words(model, best, stop_words=()).words_per_topic == max(means)
    assert "stop words only" in assign_words(model, 0.1, stop_words=model.vocabulary.words).warnings[0]


def test_ambiguous_words_belong_to_none_or_to_all() -> None:
    model = model_of([[5, 4, 3, 0], [0, 4, 3, 5]], ["war", "party", "court", "apple"])
    drop = assign_words(model, 0.5, stop_words=())
    assert as_dict(drop) == {"war": {0}, "apple": {1}}
    assert drop.dropped_ambiguous == 1
    keep = assign_words(model, 0.5, stop_words=(), overlap="keep")
    assert as_dict(keep) == {"war": {0}, "party": {0, 1}, "apple": {1}}
    assert keep.dropped_ambiguous == 0


def test_stop_words_leave_before_the_list_is_cut() -> None:
    model = model_of([[9, 8, 3, 2, 1], [1, 1, 1, 1, 8]], ["the", "of", "war", "army", "tree"])
    result = assign_words(model, 0.34, stop_words={"The", "OF"})
    assert as_dict(result) == {"war": {0}, "tree": {1}}
    assert result.dropped_stop_words == 2


def test_the_threshold_means_what_it_says_in_decimals() -> None:
    # 0.29 * 100 is 28.999999999999996 in floating point.
    model = model_of([np.arange(100, 0, -1)])
    assert len(assign_words(model, 0.29, stop_words=()).words) == 29
    assert len(assign_words(model, 0.299, stop_words=()).words) == 29
    assert len(assign_words(model, 0.000001, stop_words=()).words) == 1


def test_equal_likelihoods_go_to_the_first_in_the_vocabulary() -> None:
    assert assign_words(model_of([[1, 1, 1, 1]]), 0.5, stop_words=()).words == ("w0", "w1")


def test_words_of_likelihood_zero_are_of_no_topic() -> None:
    disjoint = assign_words(TopicModel.disjoint(3, 4), 1.0, stop_words=())
    assert [set(topics) for topics in disjoint.topics] == [{i // 4} for i in range(12)]
    assert disjoint.dropped_ambiguous == 0


def test_membership_is_by_normalised_word() -> None:
    model = model_of([[5, 1, 0], [0, 1, 5]], ["café", "tea", "don't"])
    result = assign_words(model, 1.0, stop_words=(), overlap="keep")
    words = ["CAFÉ", "cafe\u0301", "tea", "Don’t", "unknown", "caf"]
    np.testing.assert_array_equal(result.membership(words), [[1, 0], [1, 0], [1, 1], [0, 1], [0, 0], [0, 0]])
    assert result.membership([]).shape == (0, 2)


def test_a_word_list_serves_as_well() -> None:
    words = WordList(
        ("goal", "bank", "loan", "the", "net"),
        (frozenset({0}), frozenset({0, 1}), frozenset({1}), frozenset({1}), frozenset({0})),
        ("sport", "money"),
        {},
    )
    drop = from_word_list(words, stop_words={"the"})
    assert as_dict(drop) == {"goal": {0}, "loan": {1}, "net": {0}}
    assert (drop.labels, drop.threshold, drop.num_topics) == (("sport", "money"), None, 2)
    assert (drop.dropped_ambiguous, drop.dropped_stop_words) == (1, 1)
    assert "1.5 words a topic" in drop.warnings[0]
    assert as_dict(from_word_list(words, stop_words=(), overlap="keep"))["bank"] == {0, 1}


def test_labels_come_along() -> None:
    topics = Topics(TopicModel.disjoint(2, 6), {}, ("a", "b"))
    result = assign_words(topics, 0.5, stop_words=())
    assert result.labels == ("a", "b")
    assert result.warnings == ()
    assert as_dict(result) == as_dict(assign_words(topics.model, 0.5, stop_words=()))


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.0001, float("nan"), float("inf")])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match="0 < threshold <= 1"):
        assign_words(TopicModel.disjoint(2, 2), threshold, stop_words=())
