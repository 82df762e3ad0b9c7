"""How often 95 % intervals of a ratio of means cover the truth, over simulated corpora.

A document has a length L, lognormal with the standard deviation `spread` of log L; its pairs grow with L. A document's
pairs share its level of attention, and each class within it a level of its own: both lognormal with mean 1. Within a
document single pairs are exponential-like (standard deviation = mean).
"""

from dataclasses import dataclass

import numpy as np

from topicscope.probing.statistics import Moments, ratio_of_means

RATIO = 1.5
SIZES = (8, 15, 30, 60, 120, 500)
SPREADS = {"documents of like length": 0.3, "lengths as of articles": 0.7, "a few very long ones": 1.2}
DOCUMENT, CLASS = 0.3, 0.2  # standard deviations of the logarithms of the levels
FEW = 30  # documents, below which the promise is weaker
PAIRS = (60, 240)  # of the same topic, and of different ones, in a document of length 1


@dataclass(frozen=True)
class Coverage:
    """Shares of corpora whose interval holds the truth, nominally 95 %.

    clustered: the interval that topicscope gives; plain: by documents, with D in the place of the effective number and
    the normal quantile; independent: the same pairs taken for independent observations.
    """

    documents: int
    effective: float
    clustered: float
    plain: float
    independent: float


def corpora(rng: np.random.Generator, number: int, documents: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Features [corpus, document, (x same, n same, x different, n different)] and Σ a² [corpus, document, 2]."""
    size = (number, documents)
    length = np.exp(rng.normal(0, spread, size))
    level = np.exp(rng.normal(-(DOCUMENT**2) / 2, DOCUMENT, size))
    features, squares = [], []
    for pairs, mean in zip(PAIRS, (RATIO, 1.0), strict=True):
        n = 1 + rng.poisson(pairs * length)
        m = mean * level * np.exp(rng.normal(-(CLASS**2) / 2, CLASS, size))
        features += [rng.gamma(n, m), n]
        squares.append(2 * n * m**2)
    return np.stack(features, -1).astype(float), np.stack(squares, -1)


def number_of_corpora(documents: int) -> int:
    """2,000 show a true 95 % as 94 to 96 %; small ones cost little, so that limits can be held to half of that."""
    return 10_000 if documents < FEW else 2_000


def measure(documents: int, spread: float, *, seed: int = 0) -> Coverage:
    """Coverage over `number_of_corpora` of so many documents."""
    number = number_of_corpora(documents)
    features, squares = corpora(np.random.default_rng([seed, documents]), number, documents, spread)
    hits, effective = np.zeros(3), 0.0
    for z, q in zip(features, squares, strict=True):
        estimate = ratio_of_means(Moments.of(z), [0], [1], [2], [3])
        low, high = estimate.interval()
        xa, na, xb, nb = z.sum(0)
        star = estimate.effective
        plain = estimate.se * ((star - 1) / star * documents / (documents - 1)) ** 0.5
        # The variance of a mean of independent pairs, each class by itself.
        relative = [
            (s / n - (x / n) ** 2) / n / (x / n) ** 2 for s, x, n in zip(q.sum(0), (xa, xb), (na, nb), strict=True)
        ]
        independent = estimate.value * sum(relative) ** 0.5
        error = abs(estimate.value - RATIO)
        hits += low <= RATIO <= high, error <= 1.96 * plain, error <= 1.96 * independent
        effective += star
    return Coverage(documents, effective / number, *(hits / number).tolist())
