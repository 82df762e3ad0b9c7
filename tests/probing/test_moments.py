"""Moments against the per-document sums they summarise."""

import math

import numpy as np
import pytest

from topicscope.probing.attention import BINNED, NUM_BAND_PAIRS, NUM_BINS, NUM_CLASSES, PartSums
from topicscope.probing.hf import PartSpec
from topicscope.probing.statistics import DISTINCT, PAIRED, Moments, PartMoments, ratio_of_means
from topicscope.topics import PairClass

LAYERS, HEADS, CONFIGURATIONS = 2, 3, 2


def random_sums(documents: int, seed: int, *, causal: bool = False, near: float = 1.0) -> PartSums:
    """Sums of made-up documents: same-topic pairs stand closer, and close pairs get `near` times the attention."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    sums = PartSums.zeros(PartSpec("encoder", LAYERS, HEADS, causal), documents, CONFIGURATIONS)
    decay = np.exp(-np.arange(NUM_BINS) / 8)
    for k, pair_class in enumerate(BINNED):
        closeness = decay if pair_class != PairClass.different_topic else np.full(NUM_BINS, 0.5)
        counts = rng.poisson(20 * closeness, size=(documents, CONFIGURATIONS, NUM_BINS))
        level = rng.gamma(5, 0.2, size=(documents, 1, 1)) * np.where(np.arange(NUM_BINS) < 8, near, 1.0)
        sums.binned_counts[:, :, k] = counts
        sums.binned[:, :, k] = counts * level
        sums.counts[:, :, pair_class] = counts.sum(-1)
        noise = rng.gamma(20, 0.05, size=(documents, CONFIGURATIONS, LAYERS, HEADS))
        sums.heads[..., pair_class] = sums.binned[:, :, k].sum(-1)[:, :, None, None] * noise
        # Frequent words, in the last bands, get `near` times the attention and are more often of one topic.
        frequent = np.arange(NUM_BAND_PAIRS) >= NUM_BAND_PAIRS / 2
        share = np.where(frequent, 5.0 if pair_class == PairClass.same_topic else 1.0, 2.0)
        sums.banded_counts[:, :, k] = other.poisson(share, size=(documents, CONFIGURATIONS, NUM_BAND_PAIRS))
        scale = other.gamma(5, 0.2, size=(documents, 1, 1)) * np.where(frequent, near, 1.0)
        sums.banded[:, :, k] = sums.banded_counts[:, :, k] * scale
    if sums.corrected is not None:
        sums.corrected += 2 * sums.heads
    return sums


def test_ratio_and_its_error_follow_the_definition() -> None:
    sums = random_sums(40, 1)
    moments = PartMoments.of(sums)
    for c in range(CONFIGURATIONS):
        x, n = sums.heads.mean((2, 3))[:, c], sums.counts[:, c]
        same = list(PAIRED)
        x_same, n_same, x_different, n_different = x[:, same].sum(1), n[:, same].sum(1), x[:, 3], n[:, 3]
        r_same, r_different = x_same.sum() / n_same.sum(), x_different.sum() / n_different.sum()
        e_same = (x_same - r_same * n_same) / n_same.sum()
        e_different = (x_different - r_different * n_different) / n_different.sum()
        effective = min(y.sum() ** 2 / (y**2).sum() for y in (x_same, n_same, x_different, n_different))
        variance = (
            effective / (effective - 1) * ((e_same / r_different - r_same * e_different / r_different**2) ** 2).sum()
        )
        estimate = moments.ratio(c)
        assert estimate.value == pytest.approx(r_same / r_different, rel=1e-12)
        assert estimate.se == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("corrected", [False, True])
def test_every_head_equals_the_pooled_formula_on_that_head_alone(corrected: bool) -> None:
    sums = random_sums(30, 2, causal=True)
    value, error = PartMoments.of(sums).head_ratios(1, DISTINCT, corrected=corrected)
    source = sums.corrected if corrected else sums.heads
    for layer, head in np.ndindex(LAYERS, HEADS):
        vectors = np.concatenate([source[:, 1, layer, head], sums.counts[:, 1]], axis=1)
        moments = Moments.of(vectors)
        want = ratio_of_means(moments, [2], [NUM_CLASSES + 2], [3], [NUM_CLASSES + 3])
        assert value[layer, head] == pytest.approx(want.value, rel=1e-12)
        assert error[layer, head] == pytest.approx(want.se, rel=1e-9)


def test_merging_equals_summing_all_documents_at_once() -> None:
    whole = random_sums(24, 3)
    first, second = random_sums(24, 3), random_sums(24, 3)
    for name in ("heads", "counts", "binned", "binned_counts", "banded", "banded_counts"):
        setattr(first, name, getattr(whole, name)[:10])
        setattr(second, name, getattr(whole, name)[10:])
    merged, once = PartMoments.of(first) + PartMoments.of(second), PartMoments.of(whole)
    assert merged.documents == 24
    assert merged.ratio(0).se == pytest.approx(once.ratio(0).se, rel=1e-12)
    assert merged.ratio(0, matched="distance").value == pytest.approx(
        once.ratio(0, matched="distance").value, rel=1e-12
    )
    np.testing.assert_allclose(merged.head_ratios(0)[1], once.head_ratios(0)[1], rtol=1e-12)


def test_distance_matching_takes_out_an_effect_of_distance_alone() -> None:
    """Attention depends on distance only, and same-topic pairs stand closer: the plain ratio is fooled."""
    moments = PartMoments.of(random_sums(400, 4, near=3.0))
    assert moments.ratio(0).value > 1.2
    low, high = moments.ratio(0, matched="distance").interval()
    assert low < 1.0 < high


def test_frequency_matching_takes_out_an_effect_of_frequency_alone() -> None:
    sums = random_sums(400, 6, near=3.0)
    same, different = (sums.banded[:, 0, k].sum() / sums.banded_counts[:, 0, k].sum() for k in (1, 2))
    assert same / different > 1.2
    low, high = PartMoments.of(sums).ratio(0, DISTINCT, matched="frequency").interval()
    assert low < 1.0 < high


def test_arrays_give_back_the_same_moments() -> None:
    moments = PartMoments.of(random_sums(12, 5))
    again = PartMoments.from_arrays(moments.arrays("encoder"), "encoder")
    assert again.documents == 12
    assert again.ratio(1) == moments.ratio(1)
    np.testing.assert_array_equal(again.heads_outer, moments.heads_outer)
