"""One interval from several topic models of one text (`--topic-seeds`): errors within, and spread between, models.

With m topic models, each with an estimate R_s and its document-clustered error e_s (Rubin 1987, multiple imputation):

    R = mean R_s,  W = mean e_s²,  B = Σ (R_s - R)² / (m - 1),  total variance = W + (1 + 1/m) B

The models share the text, so W does not fall with m; B + B/m is how far a further topic model may lie from R. The
interval is R ± t·√total with Barnard and Rubin's (1999) degrees of freedom ν, D the effective number of documents:

    r = (1 + 1/m) B / total,  1/ν = r² / (m - 1) + (D + 2) / (D (D - 1) (1 - r))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan, sqrt
from statistics import fmean, variance

from scipy.special import stdtrit

from topicscope.probing.statistics.ratios import Estimate


@dataclass(frozen=True)
class OverTopicSeeds:
    """value: R. se: mean e_s, the document error alone. sd: √B, NaN with one model. low, high: 95 % interval."""

    value: float
    se: float
    sd: float
    low: float
    high: float


def over_topic_seeds(estimates: Sequence[Estimate], confidence: float = 0.95) -> OverTopicSeeds:
    """Combine the estimates of one statistic, one for each topic model; NaN where one of them is."""
    values, m = [e.value for e in estimates], len(estimates)
    documents = max(2.0, fmean(e.documents if isnan(e.effective) else e.effective for e in estimates))
    value, se = fmean(values), fmean(e.se for e in estimates)
    if m == 1:
        return OverTopicSeeds(value, se, nan, *estimates[0].interval(confidence))
    if not isfinite(se) or not isfinite(value):
        return OverTopicSeeds(value, se, nan, nan, nan)
    within, between = fmean(e.se**2 for e in estimates), variance(values)
    total = within + (1 + 1 / m) * between
    if between == 0 or total == 0:
        low, high = Estimate(value, sqrt(within), estimates[0].documents, effective=documents).interval(confidence)
        return OverTopicSeeds(value, se, 0.0, low, high)
    share = (1 + 1 / m) * between / total
    freedom = share**2 / (m - 1)
    if share < 1:
        freedom += (documents + 2) / (documents * (documents - 1) * (1 - share))
    half = float(stdtrit(1 / freedom, (1 + confidence) / 2)) * sqrt(total)
    return OverTopicSeeds(value, se, sqrt(between), value - half, value + half)
