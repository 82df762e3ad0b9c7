"""Standard errors of ratios of sums over documents by the delta method, and intervals pooled over topic models.

Pairs of one document share its words, its length and its subject, so they are not independent; documents (source
articles) are. Every statistic here is a function f(t) of the totals t = Σ_d z_d of one vector per document, homogeneous
of degree 0 (f(c·t) = f(t): means, and ratios of means). Only D, Σ z_d and Σ z_d z_dᵀ are ever kept.

Several topic models of one text (`--topic-seeds`) are pooled into one interval: errors within, and spread between,
models. With m topic models, each with an estimate R_s and its document-clustered error e_s (Rubin 1987, multiple
imputation):

    R = mean R_s,  W = mean e_s²,  B = Σ (R_s - R)² / (m - 1),  total variance = W + (1 + 1/m) B

The models share the text, so W does not fall with m; B + B/m is how far a further topic model may lie from R. The
interval is R ± t·√total with Barnard and Rubin's (1999) degrees of freedom ν, D the effective number of documents:

    r = (1 + 1/m) B / total,  1/ν = r² / (m - 1) + (D + 2) / (D (D - 1) (1 - r))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan, sqrt
from statistics import fmean, variance

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

Indices = Int[np.ndarray, "..."] | Sequence[int]


@dataclass(frozen=True, eq=False)
class Moments:
    """D, Σ_d z_d and Σ_d z_d z_dᵀ over documents: all that the delta method needs.

    documents: how many there are.
    total [feature], outer [feature, feature]: float64, in the units of the features and their products.
    """

    documents: int
    total: Float[np.ndarray, "feature"]
    outer: Float[np.ndarray, "feature feature"]

    @classmethod
    def of(cls, vectors: Float[np.ndarray, "document feature"]) -> "Moments":
        """Of one row of `vectors` for each whole document."""
        rows = vectors.astype(np.float64, copy=False)
        return cls(len(rows), rows.sum(0), rows.T @ rows)


@dataclass(frozen=True)
class Estimate:
    """A statistic, its standard error, and why either is NaN (`reason`; None when both are known).

    effective: how many documents of one size would tell as much (`effective_documents`); NaN: as many as there are.
    """

    value: float
    se: float
    documents: int
    reason: str | None = None
    effective: float = nan

    def interval(self) -> tuple[float, float]:
        """95 %: value ± t·se, t the Student quantile with `effective` - 1 degrees of freedom, at least 1; NaN where se
        is.

        How often intervals cover the truth, with few documents and with documents of very different sizes, is measured
        in the tests and stands in docs/how-sure.md.
        """
        if self.documents < 2:
            return nan, nan
        effective = self.documents if isnan(self.effective) else self.effective
        half = float(stdtrit(max(effective - 1, 1), 0.975)) * self.se
        return self.value - half, self.value + half


def effective_documents(moments: Moments, *features: Indices) -> float:
    """How many documents of one size would tell as much: D* = min over sets of features of (Σ_d y_d)² / Σ_d y_d².

    y_d is the sum of one set of features (the pairs of a class, or their attention) in document d; 1 ≤ D* ≤ D where
    they are not negative, and D* = D where all documents are alike (Kish 1965). Pairs grow with the square of a text's
    length, so a few long articles can hold most of them.
    """
    found = [float(moments.documents)]
    for each in features:
        index = np.unique(np.ravel(np.asarray(each)))
        squares = float(moments.outer[np.ix_(index, index)].sum())
        if squares > 0:
            found.append(max(float(moments.total[index].sum()) ** 2 / squares, 1.0))
    return min(found)


def delta_method(
    moments: Moments,
    function_value: float,
    gradient: Float[np.ndarray, "feature"],
    *,
    effective: float = nan,
) -> Estimate:
    """Standard error of f(Σ_d z_d), f homogeneous of degree 0:

        se² = D*/(D*-1) · gᵀ (Σ_d z_d z_dᵀ) g,   g = ∇f(Σ_d z_d) [feature].

    This is the linearised jackknife over documents. By Euler gᵀΣz = 0, so the influences gᵀz_d have mean 0 and need no
    centring; a gradient that breaks this is a programming error (asserted). D* is `effective` (see
    `effective_documents`), else D: a document with a share w of the pairs pulls the statistic to itself, which makes
    the sum of squares too small by about w. With one document the value stands and se is NaN, likewise where one holds
    everything.
    """
    if not isfinite(function_value):
        return Estimate(nan, nan, moments.documents, "the statistic is not finite")
    if moments.documents < 2:
        return Estimate(function_value, nan, moments.documents, "one document has no spread between documents")
    effective = moments.documents if isnan(effective) else effective
    if effective - 1 < 1e-9:
        return Estimate(function_value, nan, moments.documents, "one document holds all pairs of a class")
    scale = np.abs(gradient) @ np.abs(moments.total)
    assert abs(gradient @ moments.total) <= 1e-8 * scale, "f is not homogeneous of degree 0"
    used = np.flatnonzero(gradient)
    slope = gradient[used]
    squared = slope @ moments.outer[np.ix_(used, used)] @ slope * effective / (effective - 1)
    return Estimate(function_value, sqrt(max(float(squared), 0.0)), moments.documents, effective=effective)


def ratio_of_means(moments: Moments, x_a: Indices, n_a: Indices, x_b: Indices, n_b: Indices) -> Estimate:
    """R = (Σx_a/Σn_a) / (Σx_b/Σn_b), the ratio of two pooled means, with its delta-method error.

    Each argument holds the indices of features that are summed (x: sums of attention, n: counts of pairs). An index may
    appear in several arguments. NaN with a reason when a class has no pair or the denominator's mean is 0.
    """
    return matched_ratio(moments, *(np.atleast_2d(i) for i in (x_a, n_a, x_b, n_b)))


def matched_ratio(moments: Moments, x_a: Indices, n_a: Indices, x_b: Indices, n_b: Indices) -> Estimate:
    """Ratio of two classes' means, both reweighted to one common distribution over bins (of distance |i-j|):

        R = Σ_k w_k x_ak/n_ak / Σ_k w_k x_bk/n_bk,   w_k = n_ak n_bk / (n_ak + n_bk)
          = Σ_k x_ak n_bk/n_k / Σ_k x_bk n_ak/n_k,   n_k = n_ak + n_bk

    (the Mantel-Haenszel ratio: the harmonic weights minimise the variance when both means are as noisy per pair).

    x_a, n_a, x_b, n_b [bin] or [bin, part]: feature indices; the parts of a bin are summed. With one bin this is
    `ratio_of_means`. A bin where either class has no pair has weight 0. The weights are functions of the counts and the
    gradient follows them, so the error includes their sampling noise.
    """
    index = [np.reshape(np.asarray(i), (len(i), -1)) for i in (x_a, n_a, x_b, n_b)]
    xa, na, xb, nb = (moments.total[i].sum(1) for i in index)
    n = na + nb
    shared = (na > 0) & (nb > 0)
    # Where a class has no pair every document's features are 0 there, so a gradient of 0 is exact.
    pa, pb = (np.divide(c, n, out=np.zeros_like(n), where=shared) for c in (na, nb))
    over_n = np.divide(1.0, n, out=np.zeros_like(n), where=shared)
    top, bottom = float(xa @ pb), float(xb @ pa)
    reason = None
    if na.sum() <= 0:
        reason = "the numerator's class has no pair"
    elif nb.sum() <= 0:
        reason = "the denominator's class has no pair"
    elif not shared.any():
        reason = "no bin holds pairs of both classes"
    elif bottom == 0:
        reason = "the denominator's mean is 0"
    if reason is not None:
        return Estimate(nan, nan, moments.documents, reason)
    ratio = top / bottom
    # d top / d(xa, na, nb) = pb, -xa pb/n, xa pa/n; d bottom / d(xb, na, nb) = pa, xb pb/n, -xb pa/n.
    slopes = (
        pb,
        -(xa + ratio * xb) * pb * over_n,
        -ratio * pa,
        (xa + ratio * xb) * pa * over_n,
    )
    gradient = np.zeros_like(moments.total)
    for where, slope in zip(index, slopes, strict=True):
        np.add.at(gradient, where, np.broadcast_to(slope[:, None] / bottom, where.shape))
    effective = effective_documents(moments, *(i[shared] for i in index))
    return delta_method(moments, ratio, gradient, effective=effective)


def jackknife(leave_one_out: Float[np.ndarray, "unit"]) -> float:
    """Jackknife standard error from the statistic's values with each unit left out: √((n-1)/n Σ(θ_(i) - θ̄)²)."""
    n = len(leave_one_out)
    if n < 2 or not np.isfinite(leave_one_out).all():
        return nan
    return sqrt((n - 1) / n * float(((leave_one_out - leave_one_out.mean()) ** 2).sum()))


@dataclass(frozen=True)
class OverTopicSeeds:
    """value: R. se: mean e_s, the document error alone. sd: √B, NaN with one model. low, high: 95 % interval."""

    value: float
    se: float
    sd: float
    low: float
    high: float


def over_topic_seeds(estimates: Sequence[Estimate]) -> OverTopicSeeds:
    """Combine the estimates of one statistic, one for each topic model; NaN where one of them is."""
    values, m = [e.value for e in estimates], len(estimates)
    documents = max(2.0, fmean(e.documents if isnan(e.effective) else e.effective for e in estimates))
    value, se = fmean(values), fmean(e.se for e in estimates)
    if m == 1:
        return OverTopicSeeds(value, se, nan, *estimates[0].interval())
    if not isfinite(se) or not isfinite(value):
        return OverTopicSeeds(value, se, nan, nan, nan)
    within, between = fmean(e.se**2 for e in estimates), variance(values)
    total = within + (1 + 1 / m) * between
    if between == 0 or total == 0:
        low, high = Estimate(value, sqrt(within), estimates[0].documents, effective=documents).interval()
        return OverTopicSeeds(value, se, 0.0, low, high)
    share = (1 + 1 / m) * between / total
    freedom = share**2 / (m - 1)
    if share < 1:
        freedom += (documents + 2) / (documents * (documents - 1) * (1 - share))
    half = float(stdtrit(1 / freedom, 0.975)) * sqrt(total)
    return OverTopicSeeds(value, se, sqrt(between), value - half, value + half)
