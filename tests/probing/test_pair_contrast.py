"""The contrast of a bilinear form against brute force over V × V, and its z against all permutations."""

from itertools import permutations, product

import numpy as np
import pytest

from topicscope.probing.statistics import WordPairs


def factors(heads=2, words=30, k=4, seed=0):
    rng = np.random.default_rng(seed)
    shift = rng.normal(size=(1, 1, k))
    return rng.normal(size=(heads, words, k)) + shift, rng.normal(size=(heads, words, k)) - 2 * shift


def single(words, topics, seed=1):
    """Every word in one topic, topics of unequal sizes."""
    rng = np.random.default_rng(seed)
    return np.eye(topics, dtype=bool)[rng.permutation(np.minimum(np.arange(words) % (topics + 2), topics - 1))]


def several(words, topics, seed=1):
    member = single(words, topics, seed)
    return member | (np.random.default_rng(seed).random(member.shape) < 0.15)


def brute(form, member):
    """(S, D, S - D) over ordered pairs i ≠ j of one form [word word]."""
    off = ~np.eye(len(form), dtype=bool)
    together = (member.astype(int) @ member.T.astype(int) > 0) & off
    s, d = form[together].mean(), form[off & ~together].mean()
    return s, d, s - d


@pytest.mark.parametrize("membership", [single, several])
@pytest.mark.parametrize("k", [3, 50])
def test_equals_brute_force(membership, k):
    left, right = factors(k=k)
    member = membership(30, 5)
    found = WordPairs(member, None).contrast(left, right)
    off = ~np.eye(30, dtype=bool)
    for head, form in enumerate(left @ right.swapaxes(1, 2)):
        assert np.allclose([found.same[head], found.different[head], found.difference[head]], brute(form, member))
        assert found.diagonal[head] == pytest.approx(np.diag(form).mean())
        assert found.sd[head] == pytest.approx(form[off].std())
        without = [brute(np.delete(np.delete(form, i, 0), i, 1), np.delete(member, i, 0))[2] for i in range(30)]
        assert found.difference_se[head] == pytest.approx(np.sqrt(29 * np.var(without)))


def shuffled(form, member, orders):
    return np.array([brute(form, member[list(order)])[2] for order in orders])


@pytest.mark.parametrize("membership", [single, several])
def test_z_over_all_permutations(membership):
    left, right = factors(words=7)
    member = membership(7, 3)
    z = WordPairs(member, None).contrast(left, right).z
    for head, form in enumerate(left @ right.swapaxes(1, 2)):
        null = shuffled(form, member, permutations(range(7)))
        assert z[head] == pytest.approx((brute(form, member)[2] - null.mean()) / null.std(), rel=1e-9)


@pytest.mark.parametrize("sizes", [(4, 3), (2, 2, 3), (5, 1, 2), (1, 6)])
@pytest.mark.parametrize("membership", [single, several])
def test_banded_z_over_all_permutations_within_bands(sizes, membership):
    bands = np.repeat(np.arange(len(sizes)), sizes)
    words = len(bands)
    bands = np.random.default_rng(3).permutation(bands)
    places = [np.flatnonzero(bands == band) for band in range(len(sizes))]
    orders = []
    for parts in product(*(permutations(place) for place in places)):
        order = np.empty(words, dtype=int)
        for place, part in zip(places, parts, strict=True):
            order[place] = part
        orders.append(order)
    left, right = factors(words=words, seed=5)
    member = membership(words, 3)
    z = WordPairs(member, bands).contrast(left, right).z_banded
    for head, form in enumerate(left @ right.swapaxes(1, 2)):
        null = shuffled(form, member, orders)
        assert z[head] == pytest.approx((brute(form, member)[2] - null.mean()) / null.std(), rel=1e-9)


def test_bands_remove_what_frequency_explains():
    """Topics that are frequency bands in disguise: a form of frequencies alone has a large z, but not within bands."""
    rng = np.random.default_rng(0)
    frequency = np.repeat([0.0, 1.0, 2.0], 40)
    member = np.eye(6, dtype=bool)[2 * frequency.astype(int) + rng.integers(2, size=120)]
    noise = 0.3 * rng.normal(size=(1, 120, 6))
    left = np.concatenate([np.stack([frequency - 1, (frequency - 1) ** 2], 1)[None], noise], 2)
    found = WordPairs(member, frequency.astype(int)).contrast(left, left)
    assert found.z[0] > 5
    assert abs(found.z_banded[0]) < 3


def test_equal_entries_have_no_z():
    ones = np.ones((1, 12, 3))
    found = WordPairs(single(12, 3), np.arange(12) % 2).contrast(ones, ones)
    assert np.isnan(found.z[0])
    assert np.isnan(found.z_banded[0])
    assert found.difference[0] == pytest.approx(0, abs=1e-12)


def test_turned_z_over_random_rotations():
    """Mean 0 and the stated variance over rotations; and a head that only passes on topics has no large value."""
    left, right = factors(heads=1, words=40, k=6)
    pairs = WordPairs(single(40, 5), None)
    rng = np.random.default_rng(2)
    turns = np.stack([np.linalg.qr(rng.normal(size=(6, 6)))[0] * rng.choice([-1, 1], 6) for _ in range(3000)])
    null = pairs.contrast(np.broadcast_to(left, (3000, 40, 6)), right @ turns).difference
    found = pairs.contrast(left, right)
    assert abs(null.mean()) < 4 * null.std() / np.sqrt(len(null))
    assert found.z_turned[0] == pytest.approx(found.difference[0] / null.std(), rel=0.06)


def test_topics_of_the_vectors_are_told_from_those_of_a_head():
    """Vectors with topics give a random head a large z; turned against each other, only an aligned head stands out."""
    rng = np.random.default_rng(0)
    member = single(200, 5)
    x = 2 * member @ rng.normal(size=(5, 32)) + rng.normal(size=(200, 32))
    heads = np.stack([np.eye(32), *(np.linalg.qr(rng.normal(size=(32, 32)))[0] for _ in range(20))])
    found = WordPairs(member, None).contrast(np.broadcast_to(x, (21, 200, 32)), x @ heads)
    assert np.mean(np.abs(found.z[1:]) > 4) > 0.5
    assert found.z_turned[0] > 6
    assert (np.abs(found.z_turned[1:]) < 4).all()
