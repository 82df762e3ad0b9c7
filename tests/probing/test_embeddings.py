"""Exact pair statistics of embeddings against loops over pairs, explicit shuffles and simulated vocabularies."""

from dataclasses import asdict
from itertools import combinations, permutations
from math import erfc, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.probing.embeddings import embedding_similarity
from topicscope.probing.embeddings.similarity import mean_similarity


def single_topics(topic, num_topics):
    """Membership of words with one topic each; -1: none."""
    return np.asarray(topic)[:, None] == np.arange(num_topics)


def vocabulary(seed=0, words=40, d=6, topics=4, overlap=False):
    """Vectors around topic means, away from the origin; every word has a topic but the last."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, topics, size=words)
    membership = single_topics(topic, topics)
    if overlap:
        membership |= rng.random((words, topics)) < 0.25
    membership[-1] = False
    vectors = 0.7 + rng.normal(size=(topics, d))[topic] * 0.6 + rng.normal(size=(words, d))
    return vectors, membership


def slow_pairs(vectors, membership, kind):
    """The slow twin: (similarity, same topic, i, j) of every pair of words with a topic, one at a time."""
    pairs = []
    for i, j in combinations(range(len(vectors)), 2):
        mine, yours = set(np.flatnonzero(membership[i])), set(np.flatnonzero(membership[j]))
        if mine and yours:
            similarity = sum(a * b for a, b in zip(vectors[i].tolist(), vectors[j].tolist(), strict=True))
            if kind == "cosine":
                similarity /= sum(a * a for a in vectors[i]) ** 0.5 * sum(b * b for b in vectors[j]) ** 0.5
            pairs.append((float(similarity), bool(mine & yours), i, j))
    return pairs


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else nan


def slow_statistics(pairs):
    """(S, D, S - D, S/D) by the definition."""
    s, d = mean(p[0] for p in pairs if p[1]), mean(p[0] for p in pairs if not p[1])
    return np.array([s, d, s - d, s / d])


def slow_errors(pairs):
    """Leave-one-word-out jackknife by leaving each word out and starting over."""
    words = sorted({w for p in pairs for w in p[2:]})
    left_out = np.array([slow_statistics([p for p in pairs if w not in p[2:]]) for w in words])
    return np.sqrt((len(words) - 1) * left_out.var(axis=0))


@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize("overlap", [False, True])
def test_means_errors_and_counts_equal_the_slow_twin(kind, overlap):
    vectors, membership = vocabulary(overlap=overlap)
    pairs = slow_pairs(vectors, membership, kind)
    found = embedding_similarity(vectors, membership, kind=kind)
    values = [found.same, found.different, found.difference, found.ratio]
    np.testing.assert_allclose(values, slow_statistics(pairs), rtol=1e-12)
    errors = [found.same_se, found.different_se, found.difference_se, found.ratio_se]
    np.testing.assert_allclose(errors, slow_errors(pairs), rtol=1e-10)
    assert found.pairs_same == sum(p[1] for p in pairs)
    assert found.pairs_same + found.pairs_different == len(pairs)
    assert (found.num_words, found.num_topics, found.ratio_withheld, found.reason) == (39, 4, None, None)


@settings(max_examples=60, deadline=None)
@given(
    words=st.integers(0, 12),
    d=st.integers(1, 15),
    topics=st.integers(1, 10),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["cosine", "dot"]),
)
def test_every_shape_equals_the_slow_twin(words, d, topics, density, seed, kind):
    rng = np.random.default_rng(seed)
    vectors, membership = rng.normal(size=(words, d)), rng.random((words, topics)) < density
    pairs = slow_pairs(vectors, membership, kind)
    found = embedding_similarity(vectors, membership, kind=kind)
    expected = [mean(p[0] for p in pairs if p[1] is same) for same in (True, False)]
    np.testing.assert_allclose([found.same, found.different], expected, rtol=1e-9, atol=1e-12)
    assert found.pairs_same == sum(p[1] for p in pairs)
    assert found.pairs_different == sum(not p[1] for p in pairs)
    assert (found.reason is None) == (found.pairs_same > 0 and found.pairs_different > 0)


def test_a_pair_that_shares_two_topics_counts_once():
    membership = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=bool)
    found = embedding_similarity(np.diag([1.0, 2, 3, 4]) + 1, membership, kind="dot")
    assert (found.pairs_same, found.pairs_different) == (4, 2)


def test_many_signatures_are_compared_in_blocks(monkeypatch):
    vectors, membership = vocabulary(words=60, topics=6, overlap=True)
    whole = embedding_similarity(vectors, membership, kind="dot")
    monkeypatch.setattr("topicscope.probing.statistics.mantel._BLOCK", 7)
    blocks = embedding_similarity(vectors, membership, kind="dot")
    assert blocks.pairs_same == whole.pairs_same
    assert (blocks.same, blocks.z) == (pytest.approx(whole.same, rel=1e-13), pytest.approx(whole.z, rel=1e-12))


def test_neither_order_of_words_nor_topic_names_nor_words_without_topic_matter():
    vectors, membership = vocabulary(1, overlap=True)
    order = np.random.default_rng(1).permutation(len(vectors))
    a = embedding_similarity(vectors, membership, kind="cosine")
    b = embedding_similarity(vectors[order], membership[order][:, ::-1], kind="cosine")
    c = embedding_similarity(vectors[:-1], membership[:-1], kind="cosine")
    for other in (b, c):
        assert other.difference == pytest.approx(a.difference, rel=1e-12)
        assert other.difference_se == pytest.approx(a.difference_se, rel=1e-10)
        assert other.z == pytest.approx(a.z, rel=1e-10)


def test_lengths_matter_for_the_dot_product_only():
    vectors, membership = vocabulary(2)
    longer = vectors * np.linspace(1, 5, len(vectors))[:, None]
    cosine = [embedding_similarity(v, membership, kind="cosine").same for v in (vectors, longer)]
    dot = [embedding_similarity(v, membership, kind="dot").same for v in (vectors, longer)]
    assert cosine[0] == pytest.approx(cosine[1], rel=1e-12)
    assert dot[1] > 2 * dot[0]


def test_half_precision_is_computed_in_float64():
    vectors, membership = vocabulary(3)
    half = vectors.astype(np.float16)
    found, wide = (embedding_similarity(v, membership, kind="dot") for v in (half, half.astype(np.float64)))
    np.testing.assert_equal(asdict(found), asdict(wide))


# The permutation test


def slow_difference(vectors, membership):
    products = vectors @ vectors.T
    share = membership.astype(float) @ membership.T.astype(float) > 0
    upper = np.triu(np.ones_like(share), 1)
    return products[upper & share].mean() - products[upper & ~share].mean()


@pytest.mark.parametrize(
    "membership",
    [
        single_topics([0, 0, 1, 1, 2, 2], 3),
        single_topics([0, 0, 0, 1, 1], 2),
        np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=bool),
        single_topics([0, 0, 1], 2),  # no two pairs are disjoint
        single_topics([0, 1, 1, 1], 2),
    ],
)
def test_z_equals_the_moments_over_all_permutations(membership):
    vectors = np.random.default_rng(4).normal(0.5, 1, size=(len(membership), 3))
    every = np.array([slow_difference(vectors, membership[list(p)]) for p in permutations(range(len(membership)))])
    found = embedding_similarity(vectors, membership, kind="dot")
    assert every.mean() == pytest.approx(0, abs=1e-12)
    assert found.z == pytest.approx(slow_difference(vectors, membership) / every.std(), rel=1e-9)
    assert found.p_value == pytest.approx(erfc(abs(found.z) / 2**0.5))


@pytest.mark.parametrize("overlap", [False, True])
def test_z_agrees_with_explicit_shuffles(overlap):
    vectors, membership = vocabulary(5, words=80, overlap=overlap)
    vectors, membership = vectors[:-1], membership[:-1]
    rng = np.random.default_rng(6)
    shuffled = [slow_difference(vectors, membership[rng.permutation(len(vectors))]) for _ in range(3000)]
    found = embedding_similarity(vectors, membership, kind="dot")
    sd = found.difference / found.z
    assert abs(np.mean(shuffled)) < 4 * sd / 3000**0.5
    assert sd == pytest.approx(np.std(shuffled), rel=0.05)


def test_real_topics_stand_out():
    assert embedding_similarity(*vocabulary(5, words=80), kind="dot").z > 5


def test_shuffled_topics_are_not_significant_more_often_than_promised():
    rng = np.random.default_rng(7)
    vectors, membership = vocabulary(7, words=150, d=8)
    z = np.array([embedding_similarity(vectors, rng.permutation(membership), kind="cosine").z for _ in range(1000)])
    assert abs(z.mean()) < 0.12
    assert z.std() == pytest.approx(1, abs=0.07)
    assert 0.03 <= (np.abs(z) > 1.96).mean() <= 0.08


# Coverage of the standard errors


def test_jackknife_intervals_cover_the_truth_and_independent_pairs_do_not():
    """New words of fixed topics: S and D are known exactly. Negative control: pairs taken as independent."""
    rng = np.random.default_rng(8)
    num_topics, d, words, runs = 5, 6, 120, 600
    means = 0.5 + 0.5 * rng.normal(size=(num_topics, d))
    products = means @ means.T
    true_same, true_different = np.diag(products).mean(), products[~np.eye(num_topics, dtype=bool)].mean()
    truth = np.array([true_same, true_different, true_same - true_different, true_same / true_different])
    hits, naive_hits = np.zeros(4), np.zeros(2)
    for _ in range(runs):
        topic = rng.integers(0, num_topics, size=words)
        vectors = means[topic] + rng.normal(size=(words, d))
        found = embedding_similarity(vectors, single_topics(topic, num_topics), kind="dot")
        value = np.array([found.same, found.different, found.difference, found.ratio])
        error = np.array([found.same_se, found.different_se, found.difference_se, found.ratio_se])
        hits += np.abs(value - truth) <= 1.98 * error
        gram = vectors @ vectors.T
        share = topic[:, None] == topic
        upper = np.triu(np.ones_like(share), 1)
        naive = np.array([gram[upper & mask].std() / (upper & mask).sum() ** 0.5 for mask in (share, ~share)])
        naive_hits += np.abs(value[:2] - truth[:2]) <= 1.98 * naive
    assert ((hits / runs >= 0.92) & (hits / runs <= 0.98)).all(), hits / runs
    assert (naive_hits / runs < 0.70).all(), naive_hits / runs


# What cannot be computed


def test_ratio_is_withheld_where_the_denominator_may_be_zero():
    rng = np.random.default_rng(9)
    vectors = np.repeat(np.eye(4), 25, axis=0) + 0.3 * rng.normal(size=(100, 4))
    membership = single_topics(np.repeat(np.arange(4), 25), 4)
    around_zero = embedding_similarity(vectors, membership, kind="dot")
    assert abs(around_zero.different) <= 2 * around_zero.different_se
    assert isnan(around_zero.ratio)
    assert isnan(around_zero.ratio_se)
    assert "within two standard errors" in (around_zero.ratio_withheld or "")
    assert around_zero.difference > 10 * around_zero.difference_se  # the difference still speaks
    shifted = embedding_similarity(vectors + 1, membership, kind="dot")
    assert shifted.ratio_withheld is None
    assert shifted.ratio == shifted.same / shifted.different


def test_ratio_is_given_from_two_standard_errors_on():
    vectors = np.repeat(np.eye(4), 25, axis=0) + 0.3 * np.random.default_rng(9).normal(size=(100, 4))
    membership = single_topics(np.repeat(np.arange(4), 25), 4)
    seen = set()
    for shift in np.linspace(0, 0.2, 101):
        found = embedding_similarity(vectors + shift, membership, kind="dot")
        errors = abs(found.different) / found.different_se
        seen.add(int(errors))
        assert isnan(found.ratio) == (errors <= 2)
    assert {0, 1, 2} <= seen


@pytest.mark.parametrize(
    ("topic", "reason", "defined"),
    [
        ([0, 1, 2], "no two words share a topic", "different"),
        ([0, 0, 0], "all words share a topic", "same"),
        ([0, -1, -1], "1 words have a topic", None),
        ([-1, -1, -1], "0 words have a topic", None),
    ],
)
def test_a_class_without_pairs_is_nan_with_the_reason(topic, reason, defined):
    found = embedding_similarity(np.eye(3) + 1, single_topics(topic, 3), kind="cosine")
    assert reason in (found.reason or "")
    assert found.ratio_withheld == found.reason
    assert all(isnan(v) for v in (found.difference, found.difference_se, found.ratio, found.z, found.p_value))
    assert [name for name in ("same", "different") if not isnan(getattr(found, name))] == ([defined] if defined else [])


def test_a_word_in_all_pairs_of_a_class_leaves_the_error_unknown():
    vectors = np.array([[1.0, 2], [2, 1], [1, 1], [3, 1]])
    found = embedding_similarity(vectors, single_topics([0, 0, 0, 1], 2), kind="dot")  # word 3 is in every D pair
    assert isnan(found.different_se)
    assert not isnan(found.difference)
    assert "one word is in all its pairs" in (found.ratio_withheld or "")


def test_equal_vectors_have_no_permutation_spread():
    found = embedding_similarity(np.full((6, 3), 0.1), single_topics([0, 0, 1, 1, 2, 2], 3), kind="dot")
    assert isnan(found.z)
    assert found.ratio == pytest.approx(1)


def test_zero_vectors_have_no_cosine_and_are_counted():
    vectors, membership = vocabulary(10)
    with_zero = np.vstack([vectors, np.zeros((2, 6))])
    with_member = np.vstack([membership, membership[:1], np.zeros((1, 4), dtype=bool)])
    found = embedding_similarity(with_zero, with_member, kind="cosine")
    plain = embedding_similarity(vectors, membership, kind="cosine")
    assert (found.zero_vectors, plain.zero_vectors, found.num_words) == (1, 0, plain.num_words)
    assert (found.same, found.pairs_same) == (plain.same, plain.pairs_same)
    assert embedding_similarity(with_zero, with_member, kind="dot").num_words == plain.num_words + 1


@pytest.mark.parametrize("bad", [nan, np.inf])
def test_nan_is_refused_and_located_unless_the_word_has_no_topic(bad):
    vectors, membership = vocabulary(11)
    vectors[-1] = bad  # without a topic
    embedding_similarity(vectors, membership, kind="dot")
    vectors[[3, 5], 1] = bad
    with pytest.raises(InputError, match=r"2 of 39 words, the first in rows \[3, 5\]"):
        embedding_similarity(vectors, membership, kind="cosine")


def test_rows_must_match():
    with pytest.raises(InputError, match="3 vectors, 2 rows"):
        embedding_similarity(np.eye(3), single_topics([0, 1], 2), kind="dot")


# Within frequency bands, and the baseline of anisotropy


def test_z_within_bands_agrees_with_shuffles_within_bands_only():
    """Topics follow frequency, and so does similarity: within bands nothing is left of it."""
    rng = np.random.default_rng(11)
    words, topics = 120, 4
    rank = rng.permutation(words)
    band = rank * 6 // words  # 120 words make six bands of 20
    topic = np.where(rng.random(words) < 0.7, band * topics // 6, rng.integers(0, topics, words))
    membership = single_topics(topic, topics)
    vectors = rng.normal(size=(6, 5))[band] + rng.normal(size=(words, 5))
    found = embedding_similarity(vectors, membership, kind="dot", frequencies=rank.astype(float))
    assert found.bands == 6
    shuffled = []
    for _ in range(3000):
        order = np.arange(words)
        for b in range(6):
            order[band == b] = rng.permutation(order[band == b])
        shuffled.append(slow_difference(vectors, membership[order]))
    mean_, sd = np.mean(shuffled), np.std(shuffled)
    assert found.z_banded == pytest.approx((found.difference - mean_) / sd, abs=0.2)
    assert found.z > 5  # the unbanded test takes frequency for topic
    assert abs(found.z_banded) < 3
    assert found.p_value_banded == pytest.approx(erfc(abs(found.z_banded) / 2**0.5))


def test_real_topics_stand_out_within_bands_and_few_words_make_one_band():
    vectors, membership = vocabulary(5, words=80)
    counts = np.arange(80.0)
    assert embedding_similarity(vectors, membership, kind="cosine", frequencies=counts).z_banded > 5
    few = embedding_similarity(vectors[:30], membership[:30], kind="cosine", frequencies=counts[:30])
    assert (few.bands, few.z_banded, few.p_value_banded) == (1, few.z, few.p_value)
    unknown = embedding_similarity(vectors[:30], membership[:30], kind="cosine")
    assert (unknown.bands, isnan(unknown.z_banded), isnan(unknown.p_value_banded)) == (0, True, True)
    assert few.z == unknown.z


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_mean_similarity_is_that_of_all_pairs(kind):
    vectors = np.random.default_rng(12).normal(0.3, 1, size=(25, 4))
    pairs = slow_pairs(vectors, np.ones((25, 1), dtype=bool), kind)
    assert mean_similarity(vectors, kind=kind) == pytest.approx(mean(p[0] for p in pairs), rel=1e-12)
    assert mean_similarity(np.vstack([vectors, np.zeros((2, 4))]), kind="cosine") == mean_similarity(
        vectors, kind="cosine"
    )
    assert isnan(mean_similarity(vectors[:1], kind=kind))
