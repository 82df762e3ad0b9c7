"""Similarity of same-topic and different-topic word embeddings, over all pairs, exactly, in O(V d).

No pair is ever visited: sums over pairs are squares of sums. Words are grouped by their set of topics (signature g);
with S_g = Σ_{i∈g} e_i and T_g = Σ_h [g ∩ h ≠ ∅] S_h, the similarities of word i to all words of its topics sum to
e_i·T_g - ‖e_i‖², and to all words e_i·ΣS - ‖e_i‖². From these per-word sums follow the means, their leave-one-word-out
values and the moments of the permutation test. A pair that shares two topics counts once.
"""

from dataclasses import dataclass
from math import erfc, isfinite, nan, sqrt
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.errors import InputError
from topicscope.probing.statistics import WordPairs, frequency_bands, jackknife

_BLOCK = 1024  # signatures compared at once, so that tens of thousands of them need no square matrix


@dataclass(frozen=True)
class EmbeddingSimilarity:
    """S and D, the mean similarity of same-topic and different-topic pairs of distinct words, with their errors.

    kind: "cosine" or "dot" (in squared units of the embedding).
    same (S), different (D), difference (S - D), ratio (S/D) and `*_se`: leave-one-word-out jackknife errors. They speak
        of other words of these topics, not of other topics. NaN where a class has no pair (`reason` says which).
    ratio_withheld: why `ratio` and `ratio_se` are NaN; a ratio whose denominator is within 2 standard errors of 0 (or
        whose error is unknown) means nothing.
    pairs_same, pairs_different: unordered pairs. num_words: words that took part, num_topics: topics that they have.
    zero_vectors: words with a topic that were left out because the cosine of a zero vector is undefined.
    z, p_value: S - D in standard deviations of its permutation distribution (the topics shuffled among the words), and
        its two-sided normal probability. An order of magnitude, not an exact p: the distribution is right-skewed.
    z_banded, p_value_banded: the same with the topics shuffled only among words of one frequency band (Mantel's moments
        by strata, `WordPairs`), of which there are `bands`: one where there are fewer than 40 words, so that the
        tests are one; NaN and 0 where frequencies are unknown.
    """

    kind: Literal["cosine", "dot"]
    same: float
    different: float
    difference: float
    ratio: float
    same_se: float
    different_se: float
    difference_se: float
    ratio_se: float
    ratio_withheld: str | None
    pairs_same: int
    pairs_different: int
    num_words: int
    num_topics: int
    zero_vectors: int
    z: float
    p_value: float
    z_banded: float
    p_value_banded: float
    bands: int
    reason: str | None


def embedding_similarity(
    vectors: Float[np.ndarray, "word d"],
    membership: Bool[np.ndarray, "row topic"],
    *,
    kind: Literal["cosine", "dot"],
    frequencies: Float[np.ndarray, "row"] | None = None,
) -> EmbeddingSimilarity:
    """Mean cosine or dot product of same-topic and of different-topic pairs of distinct words (Knowl 8's Table).

        S = Σ_{i<j, same} e_i·e_j / P_s,   D = Σ_{i<j, different} e_i·e_j / P_d,   cosine: e_i of norm 1

    vectors [word, d]: one row for each distinct word, any float type (computed in float64).
    membership [word, topic]: two words are same-topic when their sets of topics intersect. Words without a topic are
        left out of every pair.
    frequencies [word]: how often each word occurs, for the permutation test within bands (see `frequency_bands`).

    Raises:
        InputError: rows do not match, or a word that has a topic has a NaN or infinite vector.
    """
    if len(vectors) != len(membership):
        raise InputError(
            "vectors and membership speak of different words",
            received=f"{len(vectors)} vectors, {len(membership)} rows of membership",
            expected="one row each for every word",
        )
    chosen = np.flatnonzero(membership.any(1))
    e = vectors[chosen].astype(np.float64, copy=False)
    squared = _rowdot(e, e)
    _require_finite(squared, chosen)
    zero_vectors = 0
    if kind == "cosine":
        kept = squared > 0
        if not kept.all():
            zero_vectors = int((~kept).sum())
            chosen, e, squared = chosen[kept], e[kept], squared[kept]
        e = e / np.sqrt(squared)[:, None]
        squared = _rowdot(e, e)
    topics = membership[chosen]
    pairs = _PairSums.of(e, squared, topics)
    same, different = pairs.means()
    reason = _why_undefined(pairs)
    # Without word i the sums lose its pairs: the jackknife needs no second pass over pairs.
    same_without, different_without = pairs.means_without_each_word()
    different_se = jackknife(different_without)
    ratio_withheld = reason or _why_no_ratio(different, different_se)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_se = jackknife(same_without / different_without)
    z = _permutation_z(pairs, e, squared) if reason is None else nan
    bands = None if frequencies is None else frequency_bands(frequencies[chosen].astype(np.float64))
    z_banded = nan if frequencies is None else z
    if reason is None and bands is not None:
        z_banded = float(WordPairs(topics, bands).contrast(e[None], e[None]).z_banded[0])
    return EmbeddingSimilarity(
        kind=kind,
        same=same,
        different=different,
        difference=same - different,
        ratio=nan if ratio_withheld else same / different,
        same_se=jackknife(same_without),
        different_se=different_se,
        difference_se=jackknife(same_without - different_without),
        ratio_se=nan if ratio_withheld else ratio_se,
        ratio_withheld=ratio_withheld,
        pairs_same=int(pairs.partners_same.sum()) // 2,
        pairs_different=int(pairs.partners_different.sum()) // 2,
        num_words=len(e),
        num_topics=int(topics.any(0).sum()),
        zero_vectors=zero_vectors,
        z=z,
        p_value=erfc(abs(z) / sqrt(2)),
        z_banded=z_banded,
        p_value_banded=erfc(abs(z_banded) / sqrt(2)),
        bands=0 if frequencies is None else 1 if bands is None else int(bands.max()) + 1,
        reason=reason,
    )


def mean_similarity(vectors: Float[np.ndarray, "word d"], *, kind: Literal["cosine", "dot"]) -> float:
    """Mean similarity of all pairs of distinct rows, exactly: (‖Σ e_i‖² - Σ ‖e_i‖²) / (n (n-1)).

    Over words taken at random it is the baseline of anisotropy (Ethayarajh 2019): the similarity that any two words
    have. Rows that are zero or not finite are left out, as the cosine of one is undefined; NaN with fewer than 2 rows.
    """
    e = vectors.astype(np.float64, copy=False)
    squared = _rowdot(e, e)
    kept = np.isfinite(squared) & (squared > 0)
    e, squared = e[kept], squared[kept]
    if len(e) < 2:
        return nan
    if kind == "cosine":
        e, squared = e / np.sqrt(squared)[:, None], np.ones(len(e))
    total = e.sum(0)
    return float(total @ total - squared.sum()) / (len(e) * (len(e) - 1))


@dataclass(frozen=True, eq=False)
class _PairSums:
    """For each word, its similarities to the words that share a topic, to those that do not, and their numbers."""

    sum_same: Float[np.ndarray, "word"]
    sum_different: Float[np.ndarray, "word"]
    partners_same: Int[np.ndarray, "word"]
    partners_different: Int[np.ndarray, "word"]

    @classmethod
    def of(
        cls, e: Float[np.ndarray, "word d"], squared: Float[np.ndarray, "word"], topics: Bool[np.ndarray, "word topic"]
    ) -> "_PairSums":
        """From vectors [word, d], their squared norms [word] and topics [word, topic] of words that have a topic."""
        group, first = _signatures(topics)
        order = np.argsort(group, kind="stable")
        size = np.bincount(group, minlength=len(first))
        starts = np.cumsum(size) - size
        S = np.add.reduceat(e[order], starts, axis=0) if len(e) else np.zeros((0, e.shape[1]))
        signature = topics[first].astype(np.float32)  # [group, topic]
        T, partners = np.empty_like(S), np.empty(len(first), dtype=np.int64)
        for block in (slice(b, b + _BLOCK) for b in range(0, len(first), _BLOCK)):
            intersects = (signature[block] @ signature.T > 0).astype(np.float64)
            T[block] = intersects @ S
            partners[block] = (intersects @ size).astype(np.int64)
        sum_same = _rowdot(e, T[group]) - squared
        sum_different = e @ S.sum(0) - squared - sum_same
        partners_same = partners[group] - 1
        return cls(sum_same, sum_different, partners_same, len(e) - 1 - partners_same)

    def means(self) -> tuple[float, float]:
        """S and D; NaN where there is no pair."""
        ps, pd = int(self.partners_same.sum()), int(self.partners_different.sum())
        return (
            float(self.sum_same.sum()) / ps if ps else nan,
            float(self.sum_different.sum()) / pd if pd else nan,
        )

    def means_without_each_word(self) -> tuple[Float[np.ndarray, "word"], Float[np.ndarray, "word"]]:
        """S and D with word i left out, each [word]; NaN where no pair is left."""
        return (
            _without_each(self.sum_same, self.partners_same),
            _without_each(self.sum_different, self.partners_different),
        )


def _without_each(sums: Float[np.ndarray, "word"], partners: Int[np.ndarray, "word"]) -> Float[np.ndarray, "word"]:
    # Every pair is in two words' sums, so the total over pairs is half; word i takes its own sum away.
    pairs_left = partners.sum() // 2 - partners
    means: np.ndarray = np.full(len(sums), nan)
    np.divide(sums.sum() / 2 - sums, pairs_left, out=means, where=pairs_left > 0)
    return means


def _permutation_z(pairs: _PairSums, e: Float[np.ndarray, "word d"], squared: Float[np.ndarray, "word"]) -> float:
    """(S - D - mean) / sd under all permutations of the words' topic sets, in closed form (Mantel 1967).

    Under permutation S - D is a linear function of Γ = Σ_{i≠j} A_ij B_ij, with A the similarities less their mean (so
    E Γ = 0 and E[S - D] = 0) and B = [i, j share a topic]. With, for either matrix, 0: Σ_{i≠j} A_ij, 1: Σ_{i≠j} A_ij²,
    2: Σ_i (Σ_{j≠i} A_ij)², E Γ² sums over pairs of pairs that are equal, share one word, or share none:

        2 A₁B₁/n⁽²⁾ + 4 (A₂-A₁)(B₂-B₁)/n⁽³⁾ + (A₀²-4A₂+2A₁)(B₀²-4B₂+2B₁)/n⁽⁴⁾,   n⁽ᵏ⁾ = n(n-1)…(n-k+1).

    A₁ comes from ‖EᵀE‖_F² = Σ_ij (e_i·e_j)²: O(V d²), the only term above O(V d). NaN when all pairs are alike.
    """
    n = len(e)
    row = pairs.sum_same + pairs.sum_different
    mean = float(row.sum()) / (n * (n - 1))
    mean_square = (float((_gram(e) ** 2).sum()) - float((squared**2).sum())) / (n * (n - 1))
    A1 = (mean_square - mean**2) * n * (n - 1)
    A2 = float(((row - mean * (n - 1)) ** 2).sum())
    partners = pairs.partners_same.astype(np.float64)
    B0 = B1 = float(partners.sum())
    B2 = float((partners**2).sum())
    variance = 2 * A1 * B1 / (n * (n - 1))
    if n > 2:
        variance += 4 * (A2 - A1) * (B2 - B1) / (n * (n - 1) * (n - 2))
    if n > 3:
        variance += (2 * A1 - 4 * A2) * (B0**2 - 4 * B2 + 2 * B1) / (n * (n - 1) * (n - 2) * (n - 3))
    # Equal similarities leave rounding noise, of the order 1e-16 of the squares, in place of 0.
    if variance <= 1e-13 * mean_square * B1:
        return nan
    gamma = float(pairs.sum_same.sum()) - mean * B0
    return gamma / sqrt(variance)


def _gram(e: Float[np.ndarray, "word d"]) -> Float[np.ndarray, "side side"]:
    """EᵀE or E Eᵀ, whichever is smaller: both have the same Frobenius norm."""
    gram: np.ndarray = e.T @ e if len(e) > e.shape[1] else e @ e.T
    return gram


def _signatures(topics: Bool[np.ndarray, "word topic"]) -> tuple[Int[np.ndarray, "word"], Int[np.ndarray, "group"]]:
    """Number of each word's topic set, and the first word that has it."""
    packed = np.ascontiguousarray(np.packbits(topics, axis=1))
    keys = packed.view(f"V{packed.shape[1]}")[:, 0] if len(packed) else np.zeros(0, dtype="V1")
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return group, first


def _rowdot(a: Float[np.ndarray, "word d"], b: Float[np.ndarray, "word d"]) -> Float[np.ndarray, "word"]:
    dots: np.ndarray = np.einsum("wd,wd->w", a, b)
    return dots


def _require_finite(squared: Float[np.ndarray, "word"], word: Int[np.ndarray, "word"]) -> None:
    bad = word[~np.isfinite(squared)]
    if len(bad):
        raise InputError(
            "embeddings hold NaN or infinite values",
            received=f"{len(bad)} of {len(word)} words, the first in rows {bad[:10].tolist()}",
            expected="finite numbers whose squared norm is finite",
            advice="load the model in float32, or check its weights: a broken checkpoint or a half-precision overflow",
        )


def _why_undefined(pairs: _PairSums) -> str | None:
    if len(pairs.sum_same) < 2:
        return f"{len(pairs.sum_same)} words have a topic and a vector: there is no pair"
    if not pairs.partners_same.any():
        return "no two words share a topic"
    if not pairs.partners_different.any():
        return "all words share a topic: there is no different-topic pair"
    return None


def _why_no_ratio(different: float, different_se: float) -> str | None:
    if not isfinite(different_se):
        return "the standard error of the different-topic mean is unknown: one word is in all its pairs"
    if abs(different) <= 2 * different_se:
        return f"the different-topic mean {different:.3g} is within two standard errors ({different_se:.2g}) of 0"
    return None
