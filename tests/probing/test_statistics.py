"""Delta-method errors against explicit jackknives over documents, and their coverage."""

from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest
from scipy.stats import t as student

from topicscope.probing.statistics import Moments, delta_method, effective_documents, jackknife, ratio_of_means
from topicscope.probing.statistics.ratios import matched_ratio

A, B = 1.5, 1.0  # the classes' true mean attention


def corpus(rng, documents=60, bins=1, spread=0.4):
    """Clustered documents: features [x_a (bins), n_a (bins), x_b (bins), n_b (bins)], a random level per document."""
    length = rng.integers(1, 8, size=(documents, 1))
    far = np.arange(1, bins + 1)
    n_a = rng.poisson(12 * length / far, size=(documents, bins)).astype(float)
    n_b = rng.poisson(40 * length * far / bins, size=(documents, bins)).astype(float)
    level_a, level_b = (np.exp(rng.normal(-(spread**2) / 2, spread, size=(documents, 1))) for _ in range(2))
    noise = rng.normal(size=(2, documents, bins))
    x_a = n_a * A / far * level_a + 0.5 * np.sqrt(n_a) * noise[0]
    x_b = n_b * B / far * level_b + 0.5 * np.sqrt(n_b) * noise[1]
    return np.hstack([x_a, n_a, x_b, n_b])


def moments_of(z):
    return Moments.of(z)


def columns(bins):
    return tuple(np.arange(bins) + i * bins for i in range(4))


def slow_matched(total, bins):
    """The definition: weights, weighted means, their ratio."""
    xa, na, xb, nb = (total[c] for c in columns(bins))
    top = bottom = 0.0
    for k in range(bins):
        if na[k] > 0 and nb[k] > 0:
            w = na[k] * nb[k] / (na[k] + nb[k])
            top += w * xa[k] / na[k]
            bottom += w * xb[k] / nb[k]
    return top / bottom


def slow_effective(z, features):
    """(Σ y)² / Σ y² over documents, y the sum of the features."""
    y = z[:, features].sum(1)
    return y.sum() ** 2 / (y**2).sum()


def slow_jackknife(z, function):
    values = [function(np.delete(z, i, axis=0).sum(0)) for i in range(len(z))]
    n = len(z)
    mean = sum(values) / n
    return ((n - 1) / n * sum((v - mean) ** 2 for v in values)) ** 0.5


def test_ratio_of_means_and_its_error_agree_with_the_jackknife():
    z = corpus(np.random.default_rng(1), documents=400)
    estimate = ratio_of_means(moments_of(z), [0], [1], [2], [3])
    t = z.sum(0)
    assert estimate.value == pytest.approx(t[0] / t[1] / (t[2] / t[3]), rel=1e-14)
    assert estimate.se == pytest.approx(slow_jackknife(z, lambda s: s[0] / s[1] / (s[2] / s[3])), rel=0.02)
    assert estimate.documents == 400


def test_index_sets_are_summed():
    rng = np.random.default_rng(2)
    z = np.hstack([corpus(rng), corpus(rng)])  # two parts, as same_word and same_topic
    merged = z[:, :4] + z[:, 4:]
    both = ratio_of_means(moments_of(z), [0, 4], [1, 5], [2, 6], [3, 7])
    assert both.value == pytest.approx(ratio_of_means(moments_of(merged), [0], [1], [2], [3]).value, rel=1e-13)
    assert both.se == pytest.approx(ratio_of_means(moments_of(merged), [0], [1], [2], [3]).se, rel=1e-11)
    parts = [np.array([[i, i + 4]]) for i in range(4)]
    assert matched_ratio(moments_of(z), *parts).se == pytest.approx(both.se, rel=1e-12)


def test_a_class_that_is_in_both_means_is_allowed():
    z = corpus(np.random.default_rng(3))
    same = ratio_of_means(moments_of(z), [0], [1], [0], [1])
    assert (same.value, same.se) == (pytest.approx(1), pytest.approx(0, abs=1e-9))


@pytest.mark.parametrize("bins", [1, 4, 9])
def test_matched_ratio_and_its_error_agree_with_the_jackknife(bins):
    z = corpus(np.random.default_rng(bins), documents=400, bins=bins)
    estimate = matched_ratio(moments_of(z), *columns(bins))
    assert estimate.value == pytest.approx(slow_matched(z.sum(0), bins), rel=1e-13)
    assert estimate.se == pytest.approx(slow_jackknife(z, lambda s: slow_matched(s, bins)), rel=0.03)


def test_matching_removes_what_distance_alone_explains():
    # Without document noise the mean at distance k is exactly A/k and B/k; class a lies nearer.
    z = corpus(np.random.default_rng(5), documents=100, bins=6, spread=0.0)
    x_a, n_a, x_b, n_b = columns(6)
    far = np.arange(1, 7)
    z[:, x_a], z[:, x_b] = z[:, n_a] * A / far, z[:, n_b] * B / far
    moments = moments_of(z)
    assert matched_ratio(moments, x_a, n_a, x_b, n_b).value == pytest.approx(A / B, rel=1e-12)
    assert matched_ratio(moments, x_a, n_a, x_b, n_b).se == pytest.approx(0, abs=1e-7)
    assert ratio_of_means(moments, x_a, n_a, x_b, n_b).value > 1.3 * A / B  # the confounded ratio


def test_bins_of_one_class_only_are_left_out():
    z = corpus(np.random.default_rng(6), bins=4)
    x_a, n_a, x_b, n_b = columns(4)
    z[:, [x_a[3], n_a[3], x_b[0], n_b[0]]] = 0
    estimate = matched_ratio(moments_of(z), x_a, n_a, x_b, n_b)
    kept = matched_ratio(moments_of(z), x_a[1:3], n_a[1:3], x_b[1:3], n_b[1:3])
    assert (estimate.value, estimate.se) == (pytest.approx(kept.value), pytest.approx(kept.se))


def test_a_bin_that_one_document_fills_still_agrees_with_the_jackknife():
    z = corpus(np.random.default_rng(7), documents=500, bins=3)
    x_a, n_a, _, _ = columns(3)
    z[1:, [x_a[2], n_a[2]]] = 0
    estimate = matched_ratio(moments_of(z), *columns(3))
    assert estimate.se == pytest.approx(slow_jackknife(z, lambda s: slow_matched(s, 3)), rel=0.03)


def test_gradient_by_finite_differences():
    z = corpus(np.random.default_rng(8), bins=3)
    t = z.sum(0)
    numeric = np.array(
        [(slow_matched(t + h, 3) - slow_matched(t - h, 3)) / (2 * h.sum()) for h in np.diag(np.maximum(t, 1.0) * 1e-6)]
    )
    effective = min(slow_effective(z, c) for c in columns(3))
    expected = (numeric @ (z.T @ z) @ numeric * effective / (effective - 1)) ** 0.5
    assert matched_ratio(moments_of(z), *columns(3)).se == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("z", "reason"),
    [
        ([[0, 0, 3, 2], [0, 0, 2, 1]], "the numerator's class has no pair"),
        ([[3, 2, 0, 0], [2, 1, 0, 0]], "the denominator's class has no pair"),
        ([[3, 2, 0, 2], [2, 1, 0, 1]], "the denominator's mean is 0"),
    ],
)
def test_undefined_ratios_are_nan_with_the_reason(z, reason):
    estimate = ratio_of_means(moments_of(np.array(z, dtype=float)), [0], [1], [2], [3])
    assert isnan(estimate.value)
    assert isnan(estimate.se)
    assert estimate.reason == reason
    assert all(isnan(limit) for limit in estimate.interval())


def test_no_common_bin_is_nan_with_the_reason():
    z = np.array([[1.0, 0, 2, 0, 0, 3, 0, 4]] * 2)
    estimate = matched_ratio(moments_of(z), *columns(2))
    assert isnan(estimate.value)
    assert estimate.reason == "no bin holds pairs of both classes"


def test_one_document_has_a_value_without_an_error():
    estimate = ratio_of_means(moments_of(np.array([[3.0, 2, 1, 1]])), [0], [1], [2], [3])
    assert estimate.value == 1.5
    assert isnan(estimate.se)
    assert "one document" in (estimate.reason or "")
    assert isnan(estimate.interval()[0])


def test_no_documents_have_no_statistic():
    assert isnan(delta_method(Moments.of(np.zeros((0, 2))), nan, np.zeros(2)).value)


def test_a_statistic_of_another_degree_is_refused():
    moments = moments_of(corpus(np.random.default_rng(9)))
    with pytest.raises(AssertionError, match="degree 0"):
        delta_method(moments, float(moments.total[0]), np.array([1.0, 0, 0, 0]))


def test_matched_intervals_cover_the_truth():
    rng = np.random.default_rng(11)
    runs = 1000
    hits = 0
    for _ in range(runs):
        low, high = matched_ratio(moments_of(corpus(rng, documents=120, bins=4)), *columns(4)).interval()
        hits += low <= A / B <= high
    assert 0.93 <= hits / runs <= 0.97


def test_the_interval_is_students_with_the_effective_number_of_documents():
    estimate = ratio_of_means(moments_of(corpus(np.random.default_rng(12))), [0], [1], [2], [3])
    low, high = estimate.interval()
    assert (low + high) / 2 == pytest.approx(estimate.value)
    assert estimate.effective < 60
    assert (high - low) / 2 == pytest.approx(student(estimate.effective - 1).ppf(0.975) * estimate.se, rel=1e-9)
    alike = ratio_of_means(moments_of(np.tile([3.0, 2, 2, 2], (60, 1))), [0], [1], [2], [3])
    assert alike.effective == pytest.approx(60)
    low, high = replace(alike, se=1.0).interval()
    assert (high - low) / 2 == pytest.approx(2.00100, rel=1e-5)  # Student, 59 degrees of freedom


def test_effective_documents_by_the_definition():
    z = corpus(np.random.default_rng(14), bins=3)
    x_a, n_a, x_b, n_b = columns(3)
    expected = min(slow_effective(z, c) for c in columns(3))
    assert effective_documents(moments_of(z), x_a, n_a, x_b, n_b) == pytest.approx(expected, rel=1e-12)
    assert 1 < expected < len(z)
    assert effective_documents(moments_of(np.ones((7, 2))), [0], [1]) == pytest.approx(7)
    one = np.array([[5.0, 4], [0, 0], [0, 0]])
    assert effective_documents(moments_of(one), [0], [1]) == pytest.approx(1)


def test_where_one_document_holds_everything_nothing_is_known_of_the_spread():
    z = np.array([[3.0, 2, 1, 1], [0, 0, 0, 0]])
    estimate = ratio_of_means(moments_of(z), [0], [1], [2], [3])
    assert estimate.value == 1.5
    assert isnan(estimate.se)
    assert estimate.reason == "one document holds all pairs of a class"


def test_float32_documents_are_summed_in_float64():
    z = np.full((1000, 1), 0.1, dtype=np.float32)
    assert moments_of(z).total[0] == pytest.approx(1000 * float(np.float32(0.1)), rel=1e-14)


def test_jackknife_of_the_mean_is_the_standard_error():
    x = np.random.default_rng(13).normal(size=50)
    left_out = (x.sum() - x) / 49
    assert jackknife(left_out) == pytest.approx(x.std(ddof=1) / 50**0.5, rel=1e-12)
    assert isnan(jackknife(np.array([1.0, nan])))
    assert isnan(jackknife(np.array([1.0])))
