"""Is the difference one of topics, or one of words? Topics shuffled over words, with the attention left as it is.

Pairs of one word are not independent, however many documents they stand in: a word that attends much does so
everywhere. The null hypothesis here is that words of one frequency band could change their topics among each other. Of
the sums X_e and counts n_e of each entry e (query word, key word, distance bin k; see `WordPairs`), what distance alone
explains is taken out with no look at the topics,

    r_e = X_e - n_e · Σ_k X / Σ_k n        (sums over all entries of e's bin)

which is linear, so that one number for each pair of words is left. The statistic compares different words,

    T = (Σ_same r / Σ_same n - Σ_different r / Σ_different n) / (Σ X / Σ n)

and is computed again for topics shuffled over the words of each band. Where there are several topic models, all topics
of a word move together and T is the mean over the models. As in the distance-matched ratio, no distance counts for
one class more than for the other; unlike there, its weight does not depend on the topics.

Frequency bands: words that occur about equally often, so that frequency cannot pass for topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.probing.attention import TopicLookup, WordPairs
from topicscope.progress import Progress, tracked

MOST_BANDS = 10
BAND_WORDS = 20


def frequency_bands(counts: Float[np.ndarray, "word"]) -> Int[np.ndarray, "word"] | None:
    """Band of each word, 0 the rarest: bands of nearly equal size; None where there are too few words for two.

    counts [word]: occurrences, or anything that orders the words as they do.
    """
    number = min(MOST_BANDS, len(counts) // BAND_WORDS)
    if number < 2:
        return None
    bands = np.empty(len(counts), dtype=np.int64)
    bands[np.argsort(counts, kind="stable")] = np.arange(len(counts)) * number // len(counts)
    return bands


# Of labels compared at a time.
_ENTRIES_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class PermutationTest:
    """What shuffles say. statistic: T; z: its distance from their mean in their standard deviations.

    p_value: two-sided, min(1, 2·min(#{T_π ≥ T} + 1, #{T_π ≤ T} + 1) / (shuffles + 1)); NaN where there is nothing to
    compare. words, bands: how many words were shuffled in how many bands.
    """

    statistic: float
    z: float
    p_value: float
    shuffles: int
    words: int
    bands: int


def permutation_test(
    pairs: WordPairs,
    memberships: Sequence[Bool[np.ndarray, "word topic"]],
    counts: Int[np.ndarray, "word"],
    *,
    shuffles: int,
    seed: int,
) -> PermutationTest:
    """Shuffle the topics of words within bands of their counts.

    pairs: word pairs by number of the word. memberships: topics of every word, one for each topic model.
    counts [word]: occurrences. Words without a topic in any model stay out.
    """
    used = np.flatnonzero(np.any([m.any(1) for m in memberships], axis=0))
    bands = frequency_bands(counts[used].astype(np.float64))
    if bands is None:
        bands = np.zeros(len(used), dtype=np.int64)
    numbers = {"shuffles": shuffles, "words": len(used), "bands": len(np.unique(bands))}
    residuals = _Residuals(pairs, used, len(counts))
    models = [_codes(m[used]) for m in memberships]
    observed = residuals.statistic(models)
    generator = np.random.default_rng([seed, len(used)])
    # Sorting by band, then at random, is a shuffle within bands of places that are sorted by band.
    place = np.argsort(bands, kind="stable")
    drawn = np.empty(shuffles)
    for s in range(shuffles if np.isfinite(observed) else 0):
        order = np.empty_like(place)
        order[place] = np.lexsort((generator.random(len(used)), bands))
        drawn[s] = residuals.statistic([codes[order] for codes in models])
    if not np.isfinite(observed) or not np.isfinite(drawn).any() or not shuffles:
        return PermutationTest(observed, nan, nan, **numbers)
    drawn = drawn[np.isfinite(drawn)]  # a shuffle of few words can leave a class empty
    # What differs by rounding alone is equal.
    slack = 1e-9 * float(np.abs(drawn).max(initial=abs(observed)))
    above, below = (drawn >= observed - slack).sum(), (drawn <= observed + slack).sum()
    p_value = min(1.0, 2.0 * (min(above, below) + 1) / (len(drawn) + 1))
    spread = float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
    z = float(observed - drawn.mean()) / spread if spread > slack else nan
    return PermutationTest(observed, z, p_value, **numbers)


Tests = dict[tuple[str, float | None], PermutationTest]


def shuffled_topics(
    word_pairs: Mapping[str, WordPairs], lookup: TopicLookup, shuffles: int, seed: int, progress: Progress
) -> tuple[Tests, dict[str, Any], list[str]]:
    """The test of each part and threshold over its topic models together, what it rests on, and warnings.

    Nothing after 0 shuffles or Ctrl-C.
    """
    if not shuffles:
        return {}, {}, []
    tests: Tests = {}
    thresholds = list(dict.fromkeys(c.threshold for c in lookup.configurations))
    try:
        with tracked(progress, "shuffling topics", len(word_pairs) * len(thresholds), "tests"):
            for part, pairs in word_pairs.items():
                for threshold in thresholds:
                    both = zip(lookup.configurations, lookup.memberships, strict=True)
                    of = [membership for configuration, membership in both if configuration.threshold == threshold]
                    test = permutation_test(pairs, of, lookup.counts, shuffles=shuffles, seed=seed)
                    tests[part, threshold] = test
                    progress.update("shuffling topics", len(tests))
    except KeyboardInterrupt:
        return {}, {}, ["interrupted: topics were not shuffled"]
    parts = {name: {"word_pairs": len(p), "pairs_left_out": p.left_out} for name, p in word_pairs.items()}
    shuffled = [
        {"part": part, "threshold": threshold, "words": test.words, "bands": test.bands}
        for (part, threshold), test in tests.items()
    ]
    warnings = [
        f"{name}: {p.left_out:,} pairs of words were left out of the shuffles, which keep the first {len(p):,} entries"
        for name, p in word_pairs.items()
        if p.left_out
    ]
    return tests, {"shuffles": shuffles, "parts": parts, "tests": shuffled}, warnings


class _Residuals:
    """For each unordered pair of used words: Σ r and Σ n over directions and distances."""

    def __init__(self, pairs: WordPairs, used: np.ndarray, num_words: int) -> None:
        entries, sums, counts = pairs.entries()
        renumbered = np.full(num_words, -1)
        renumbered[used] = np.arange(len(used))
        query, key = renumbered[entries[:, 0]], renumbered[entries[:, 1]]
        kept = (query >= 0) & (key >= 0)
        query, key, place, sums, counts = (a[kept] for a in (query, key, entries[:, 2], sums, counts))
        total, number = (np.bincount(place, v).astype(float) for v in (sums, counts))
        self._mean = float(sums.sum() / counts.sum()) if counts.sum() else nan
        expected = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
        residual = sums - counts * expected[place]
        unordered = np.minimum(query, key) * len(used) + np.maximum(query, key)
        unique, group = np.unique(unordered, return_inverse=True)
        self._first, self._second = np.divmod(unique, max(1, len(used)))
        values = [np.bincount(group, v, len(unique)).astype(float) for v in (residual, counts)]
        self._values = np.stack(values, 1).reshape(-1, 2)
        self._total = self._values.sum(0)

    def statistic(self, models: Sequence[np.ndarray]) -> float:
        """T, the mean over topic models."""
        return float(np.mean([self._of(codes) for codes in models]))

    def _of(self, codes: np.ndarray) -> float:
        everywhere = bool((codes >= 0).all() if codes.ndim == 1 else codes.any(1).all())
        total = self._total if everywhere else np.zeros(2)
        same = np.zeros(2)
        for start in range(0, len(self._first), _ENTRIES_AT_A_TIME):
            chunk = slice(start, start + _ENTRIES_AT_A_TIME)
            first, second = codes[self._first[chunk]], codes[self._second[chunk]]
            values = self._values[chunk]
            shared = first == second if codes.ndim == 1 else (first & second).any(1)
            if not everywhere:
                both = (first >= 0) & (second >= 0) if codes.ndim == 1 else first.any(1) & second.any(1)
                shared &= both
                total = total + both.astype(float) @ values
            same += shared.astype(float) @ values
        different = total - same
        if same[1] <= 0 or different[1] <= 0:
            return nan
        return float(same[0] / same[1] - different[0] / different[1]) / self._mean


def _codes(membership: np.ndarray) -> np.ndarray:
    """int32 [word], the topic or -1, where no word has several; else bits of topics, uint64 [word, topic / 64]."""
    if membership.sum(1).max(initial=0) <= 1:
        return np.where(membership.any(1), membership.argmax(1), -1).astype(np.int32)
    padded = np.zeros((len(membership), -(-membership.shape[1] // 64) * 64), dtype=bool)
    padded[:, : membership.shape[1]] = membership
    return np.packbits(padded, axis=1).view(np.uint64)
