"""The shuffles of topics over words, against enumeration pair by pair, and what they must and must not notice."""

import itertools
from statistics import fmean

import numpy as np
import pytest

from topicscope.probing.attention import WordPairs
from topicscope.probing.statistics import frequency_bands
from topicscope.probing.statistics.permutation import permutation_test

SINGLE, SEVERAL = 1, 3


def made_pairs(words: int, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Entries [pair, 3] of two different words and one of 4 distances, and positive attention [pair]."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, words, number)
    key = (query + rng.integers(1, words, number)) % words
    return np.stack([query, key, rng.integers(0, 4, number)], 1), rng.gamma(4, 0.25, number)


def collected(entries: np.ndarray, attention: np.ndarray) -> WordPairs:
    """Every pair counts once."""
    pairs = WordPairs()
    pairs.add(entries, attention, np.ones(len(entries)))
    return pairs


def made_topics(words: int, topics: int, most: int, seed: int) -> np.ndarray:
    """Membership [word, topic]; the last word has no topic."""
    rng = np.random.default_rng(seed)
    membership = np.zeros((words, topics), dtype=bool)
    for row in membership[:-1]:
        row[rng.choice(topics, rng.integers(1, most + 1), replace=False)] = True
    return membership


def slow_statistic(entries: np.ndarray, attention: np.ndarray, membership: np.ndarray, known: np.ndarray) -> float:
    """T pair by pair; known [word]: whether it has a topic in some model."""
    chosen = [
        (q, k, d, a) for (q, k, d), a in zip(entries.tolist(), attention.tolist(), strict=True) if known[q] and known[k]
    ]
    expected = {d: fmean(a for *_, e, a in chosen if e == d) for d in {d for *_, d, _ in chosen}}
    found: dict[bool, list[float]] = {True: [], False: []}
    for q, k, d, a in chosen:
        if membership[q].any() and membership[k].any():
            found[bool((membership[q] & membership[k]).any())].append(a - expected[d])
    if not all(found.values()):
        return float("nan")
    return (fmean(found[True]) - fmean(found[False])) / fmean(a for *_, a in chosen)


@pytest.mark.parametrize(("topics", "most"), [(3, SINGLE), (3, SEVERAL), (70, SEVERAL)])
def test_statistic_is_that_of_all_pairs(topics: int, most: int) -> None:
    entries, attention = made_pairs(12, 400, 1)
    models = [made_topics(12, topics, most, seed) for seed in (2, 3)]
    models[1][4] = False  # a word that only one model gives a topic
    known = models[0].any(1) | models[1].any(1)
    want = [slow_statistic(entries, attention, model, known) for model in models]
    for chosen, value in ((models, fmean(want)), (models[:1], slow_statistic(entries, attention, models[0], known))):
        found = permutation_test(collected(entries, attention), chosen, np.ones(12, int), shuffles=3, seed=0)
        assert found.statistic == pytest.approx(value, rel=1e-9)


def test_p_value_and_z_are_those_of_all_permutations() -> None:
    words = 6
    entries, attention = made_pairs(words, 60, 4)
    membership = np.eye(2, dtype=bool)[[0, 0, 1, 1, 0, 1]]
    known = np.ones(words, dtype=bool)
    values = np.array(
        [slow_statistic(entries, attention, membership[list(p)], known) for p in itertools.permutations(range(words))]
    )
    observed = slow_statistic(entries, attention, membership, known)
    exact = min(1.0, 2 * min((values >= observed - 1e-9).mean(), (values <= observed + 1e-9).mean()))
    found = permutation_test(collected(entries, attention), [membership], np.ones(words, int), shuffles=4000, seed=1)
    assert found.p_value == pytest.approx(exact, abs=0.04)
    assert found.z == pytest.approx((observed - values.mean()) / values.std(), abs=0.08)
    assert 0.05 < exact < 0.95, "a case in which much could go wrong"


@pytest.mark.parametrize(("strength", "sign"), [(0.3, 1), (-0.3, -1)])
def test_topics_are_found_in_either_direction(strength: float, sign: int) -> None:
    entries, attention = made_pairs(60, 6000, 5)
    topic = np.arange(60) % 4
    attention = attention * (1 + strength * (topic[entries[:, 0]] == topic[entries[:, 1]]))
    found = permutation_test(
        collected(entries, attention), [np.eye(4, dtype=bool)[topic]], np.ones(60, int), shuffles=199, seed=0
    )
    assert found.p_value == pytest.approx(2 / 200)
    assert found.z * sign > 5
    assert (found.words, found.bands) == (60, 3)


def test_distance_alone_is_nothing() -> None:
    """Pairs of one topic stand nearer, and attention is a function of the distance."""
    entries, _ = made_pairs(40, 4000, 6)
    topic = np.arange(40) % 4
    same = topic[entries[:, 0]] == topic[entries[:, 1]]
    entries[:, 2] = np.where(same, entries[:, 2] // 2, entries[:, 2])
    attention = 1.0 / (1 + entries[:, 2])
    assert attention[same].mean() / attention[~same].mean() > 1.2
    membership = np.eye(4, dtype=bool)[topic]
    found = permutation_test(collected(entries, attention), [membership], np.ones(40, int), shuffles=99, seed=0)
    assert abs(found.statistic) < 1e-12


def test_bands_take_out_what_frequency_explains() -> None:
    """Frequent words stand in topic 0, attend each other and have no other structure: only bands are not fooled."""
    entries, attention = made_pairs(80, 8000, 7)
    counts = np.where(np.arange(80) < 40, 1000, 10)
    topic = np.where(np.arange(80) < 40, 0, 1 + np.arange(80) % 3)
    both = (counts[entries[:, 0]] > 500) & (counts[entries[:, 1]] > 500)
    pairs = collected(entries, attention * (1 + both))
    membership = np.eye(4, dtype=bool)[topic]
    elsewhere = np.random.default_rng(8).permutation(80)
    fooled = permutation_test(pairs, [membership], elsewhere, shuffles=199, seed=0)
    banded = permutation_test(pairs, [membership], counts, shuffles=199, seed=0)
    assert fooled.p_value < 0.05, "bands of something else"
    assert banded.p_value > 0.1


def test_words_that_attend_much_are_no_topic_structure() -> None:
    """Loud words attend to each other: p < .05 in 5 % of 200 texts; independent pairs say 'often'."""
    shuffled = independent = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        entries, attention = made_pairs(24, 4000, 1000 + seed)
        attention = attention * rng.gamma(2, 0.5, 24)[entries[:, :2]].prod(1)
        topic = rng.permutation(np.arange(24) % 3)
        same = topic[entries[:, 0]] == topic[entries[:, 1]]
        pairs = collected(entries, attention)
        found = permutation_test(pairs, [np.eye(3, dtype=bool)[topic]], np.ones(24, int), shuffles=99, seed=seed)
        shuffled += found.p_value < 0.05
        error = np.sqrt(attention[same].var() / same.sum() + attention[~same].var() / (~same).sum())
        independent += abs(attention[same].mean() - attention[~same].mean()) > 1.96 * error
    assert 1 <= shuffled <= 19
    assert independent > 19


def test_nothing_to_compare_has_no_p_value() -> None:
    entries, attention = made_pairs(10, 50, 8)
    one_topic = np.ones((10, 1), dtype=bool)
    for pairs, membership in ((collected(entries, attention), one_topic), (WordPairs(), np.eye(10, dtype=bool))):
        found = permutation_test(pairs, [membership], np.ones(10, int), shuffles=9, seed=0)
        assert np.isnan([found.statistic, found.p_value, found.z]).all()


def test_bands_are_of_like_size_in_the_order_of_frequency() -> None:
    counts = np.random.default_rng(0).zipf(1.5, 205).astype(float)
    bands = frequency_bands(counts)
    assert len(np.unique(bands)) == 10
    assert np.bincount(bands).min() >= 20
    for band in range(9):
        assert counts[bands == band].max() <= counts[bands == band + 1].min()
    assert frequency_bands(np.arange(39.0)) is None


def test_too_few_words_for_two_bands_are_shuffled_in_one() -> None:
    membership = np.arange(39)[:, None] % 3 == np.arange(3)
    assert permutation_test(WordPairs(), [membership], np.arange(39), shuffles=2, seed=0).bands == 1
