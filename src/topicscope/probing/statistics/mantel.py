"""Same-topic and different-topic means of a bilinear form over all ordered pairs of words, exactly, in O(V k).

The form A_ij = l_i · r_j (i, j words; l, r factors [word, k]) is a head's circuit between words and need not be
symmetric. No pair is ever visited: with S_g the sum of r over the words whose set of topics is g, and T_g the sum of
S_h over all sets h that intersect g, word i's entries with words of its topics sum to l_i · T_g - l_i · r_i.

The relation "shares a topic" is symmetric, so only A's symmetric part Ā = (A + Aᵀ)/2 meets it: every mean, and its
distribution when topics are shuffled among words, is that of Ā. This carries Mantel's moments over to asymmetric A.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

import numpy as np
from jaxtyping import Bool, Float, Int

_BLOCK = 1024  # topic sets compared at once, so that tens of thousands of them need no square matrix

Factors = Float[np.ndarray, "head word k"]
OfHeads = Float[np.ndarray, "head"]
Words = Int[np.ndarray, "word"]
WordSums = Float[np.ndarray, "*head word"]


@dataclass(frozen=True, eq=False)
class PairContrast:
    """What A says of words of one topic and of different topics, each field [head]; i ≠ j everywhere but in `diagonal`.

    same, different, difference: mean of A_ij over ordered same-topic and different-topic pairs, and same - different.
    difference_se: leave-one-word-out jackknife. sd: standard deviation of A_ij over all pairs.
    diagonal: mean of A_ii, a word with itself.
    z: difference in standard deviations of its distribution when the words' topics are shuffled among all words;
    z_banded: the same when they are shuffled among words of one frequency band only (NaN without bands).
    z_turned: difference in standard deviations of its distribution when the right factors are turned at random, A_ij =
        l_i · R r_j with R a random orthogonal k × k matrix: as large as z when the two halves of a head agree about
        topics, small when it is the words' vectors that have topics and the head merely passes them on. With C_kl the
        contrast of l_ik r_jl, difference = tr C, and under R mean 0 and variance ‖C‖²_F / k.
    """

    same: OfHeads
    different: OfHeads
    difference: OfHeads
    difference_se: OfHeads
    sd: OfHeads
    diagonal: OfHeads
    z: OfHeads
    z_banded: OfHeads
    z_turned: OfHeads


class WordPairs:
    """Which of the words share a topic; made once, for any number of forms.

    membership [word, topic]: every word has a topic. bands [word]: number of its frequency band, or None.
    same_pairs, different_pairs: ordered pairs of distinct words. partners [word]: words that share a topic with it.
    """

    def __init__(self, membership: Bool[np.ndarray, "word topic"], bands: Words | None) -> None:
        assert membership.any(1).all(), "a word without a topic is in no pair"
        packed = np.ascontiguousarray(np.packbits(membership, axis=1))
        keys = packed.view(f"V{packed.shape[1]}")[:, 0] if len(packed) else np.zeros(0, dtype="V1")
        _, first, self._group = np.unique(keys, return_index=True, return_inverse=True)
        self._sets = membership[first]
        self.num_words = len(membership)
        self.partners = self._shared(np.ones((1, self.num_words, 1)))[0, :, 0] - 1  # [word]
        self.same_pairs = int(self.partners.sum())
        self.different_pairs = self.num_words * (self.num_words - 1) - self.same_pairs
        self._strata = [np.zeros(self.num_words, dtype=np.int64)]
        if bands is not None and len(np.unique(bands)) > 1:
            self._strata.append(np.unique(bands, return_inverse=True)[1])

    def contrast(self, left: Factors, right: Factors) -> PairContrast:
        """The contrast of A_ij = left_i · right_j of every head; NaN where a class has no pair."""
        left, right = left.astype(np.float64), right.astype(np.float64)
        n, ps, pd = self.num_words, self.same_pairs, self.different_pairs

        # z_turned, from C.
        turned = np.full(len(left), nan)
        if ps and pd:
            diagonal = left.mT @ right
            shared = left.mT @ self._shared(right) - diagonal
            every = left.sum(1, keepdims=True).mT @ right.sum(1, keepdims=True) - diagonal
            C = shared / ps - (every - shared) / pd
            trace, norm = np.trace(C, axis1=1, axis2=2), np.sqrt((C**2).sum((1, 2)))
            known = norm > 1e-12 * np.sqrt((diagonal**2).sum((1, 2)))
            turned = np.where(known, trace * C.shape[1] ** 0.5 / np.where(known, norm, 1), nan)

        # Sums of Ā over the partners of each word, and over all other words, [head word].
        left, right = _narrow(left, right)
        dot = "hwk,hwk->hw"
        own = np.einsum(dot, left, right)
        same = np.einsum(dot, left, self._shared(right)) + np.einsum(dot, right, self._shared(left))
        every = np.einsum(dot, left, right.sum(1, keepdims=True)) + np.einsum(dot, right, left.sum(1, keepdims=True))
        same, every = same / 2 - own, every / 2 - own

        # Means, and the error of S - D from its values without each word.
        gamma, total = same.sum(1), every.sum(1)
        s, d = (gamma / ps if ps else gamma * nan), ((total - gamma) / pd if pd else gamma * nan)
        same_without, different_without = self.without_each_word(same, every - same)
        without = same_without - different_without
        spread = ((without - without.mean(1, keepdims=True)) ** 2).sum(1)

        # S - D is linear in gamma, so they have the same z.
        pairs = max(n * (n - 1), 1)
        squares = np.einsum("hab,hab->h", left.mT @ left, right.mT @ right) - (own**2).sum(1)
        z, z_banded = self._scores(lambda strata: _Blocks.of_form(left, right, own, strata), gamma, squares / pairs)
        return PairContrast(
            same=s,
            different=d,
            difference=s - d,
            difference_se=np.sqrt(max(n - 1, 0) / max(n, 1) * spread),
            sd=np.sqrt(np.maximum(squares / pairs - (total / pairs) ** 2, 0)),
            diagonal=own.mean(1),
            z=z,
            z_banded=z_banded,
            z_turned=turned,
        )

    def similarity(
        self, e: Float[np.ndarray, "word k"]
    ) -> tuple[Float[np.ndarray, "word"], Float[np.ndarray, "word"], float, float]:
        """What e_i · e_j says of words of one topic and of different topics, without what only asymmetric forms have.

        Returns the sums [word] of a word's similarities to the others that share a topic with it, and that do not; z
        and z_banded, see `PairContrast`.
        """
        own = np.einsum("wk,wk->w", e, e)
        same = np.einsum("wk,wk->w", e, self._shared(e[None])[0]) - own
        different = e @ _sums(e[None], self._group, len(self._sets))[0].sum(0) - own - same
        narrow, right = _narrow(e[None], e[None])
        squares = np.einsum("hab,hab->h", narrow.mT @ narrow, right.mT @ right) - (own**2).sum()
        z, z_banded = self._scores(
            lambda strata: _Blocks.of_form(narrow, right, own[None], strata),
            same.sum(keepdims=True),
            squares / max(self.num_words * (self.num_words - 1), 1),
        )
        return same, different, float(z[0]), float(z_banded[0])

    def without_each_word(self, same: WordSums, different: WordSums) -> tuple[WordSums, WordSums]:
        """S and D without each word, from the sums of the words; NaN where no pair is left.

        Every pair is in two words' sums.
        """
        means = []
        for sums, partners in ((same, self.partners), (different, self.num_words - 1 - self.partners)):
            left = partners.sum() - 2 * partners
            without: np.ndarray = np.full_like(sums, nan)  # in their order of memory, in which numpy adds up
            means.append(np.divide(sums.sum(-1, keepdims=True) - 2 * sums, left, out=without, where=left > 0))
        return means[0], means[1]

    def shuffled(
        self, first: Int[np.ndarray, "pair"], second: Int[np.ndarray, "pair"], values: Float[np.ndarray, "head pair"]
    ) -> tuple[OfHeads, OfHeads]:
        """z and z_banded of Σ_same A for a symmetric A of which only some entries are not 0, as in `PairContrast`.

        first, second: the two words of each entry, every unordered pair of distinct words at most once.
        """
        signature = self._sets.astype(np.float32)
        shared = (signature @ signature.T > 0)[self._group[first], self._group[second]]
        gamma = 2 * values @ shared.astype(np.float64)
        mean_square = 2 * (values**2).sum(1) / max(self.num_words * (self.num_words - 1), 1)
        return self._scores(lambda strata: _Blocks.of_entries(first, second, values, strata), gamma, mean_square)

    def _shared(self, x: Factors) -> Factors:
        """For each word, the sum of x over all words that share a topic with it, itself included."""
        sums = _sums(x, self._group, len(self._sets))
        out = np.empty_like(sums)  # sums over all sets of topics that intersect each set
        signature = self._sets.astype(np.float32)
        for block in (slice(b, b + _BLOCK) for b in range(0, len(signature), _BLOCK)):
            out[:, block] = (signature[block] @ signature.T > 0).astype(np.float64) @ sums
        return out[:, self._group]

    def _scores(
        self,
        blocks: Callable[[Words], "_Blocks"],
        gamma: OfHeads,
        mean_square: OfHeads,
    ) -> tuple[OfHeads, OfHeads]:
        """Γ = Σ_{i≠j} A_ij B_ij, B = [i, j share a topic], in standard deviations under shuffles among all words, and
        within bands. NaN where a class has no pair, or without bands. blocks: A by the strata that it is given.
        """
        scores = []
        for strata in self._strata if self.same_pairs and self.different_pairs else ():
            m = int(strata.max()) + 1
            x = np.eye(m)[strata][None]  # [1 word stratum]: B's sums by stratum are those of indicators
            partners = self._shared(x) - x
            B = _Blocks(partners, _sums(partners, strata, m), strata)  # its entries are their own squares
            mean, variance = _permutation_moments(blocks(strata), B, np.bincount(strata, minlength=m))
            known = variance > 1e-13 * mean_square * self.same_pairs  # else rounding in place of 0
            scores.append(np.where(known, (gamma - mean) / np.sqrt(np.where(known, variance, 1)), nan))
        scores += [gamma * nan] * (2 - len(scores))
        return scores[0], scores[1]


@dataclass(frozen=True, eq=False)
class _Blocks:
    """A symmetric form cut into blocks by strata a, b, its diagonal left out.

    words [head word stratum]: sums of a word's entries over each stratum; squares [head a b]: sums of squared entries.
    """

    words: Float[np.ndarray, "head word stratum"]
    squares: Float[np.ndarray, "head a b"]
    strata: Words

    @classmethod
    def of_form(cls, left: Factors, right: Factors, own: Float[np.ndarray, "head word"], strata: Words) -> "_Blocks":
        """Of Ā: Σ Ā² over a block is half of Σ A_ij² and A_ij A_ji in both directions, from k × k matrices."""
        m, n = int(strata.max()) + 1, len(strata)
        L, R = _sums(left, strata, m), _sums(right, strata, m)
        words = (np.einsum("hwk,hbk->hwb", left, R) + np.einsum("hwk,hbk->hwb", right, L)) / 2
        words[:, np.arange(n), strata] -= own
        inside = [strata == a for a in range(m)]
        LL, RR, RL = (
            np.stack([x[:, i].mT @ y[:, i] for i in inside], 1)
            for x, y in ((left, left), (right, right), (right, left))
        )
        flat = (len(left), m, -1)  # one matrix product in place of m² sums over k × k
        straight = LL.reshape(flat) @ RR.reshape(flat).swapaxes(1, 2)
        crossed = RL.reshape(flat) @ RL.swapaxes(2, 3).reshape(flat).swapaxes(1, 2)
        squares = (straight + straight.swapaxes(1, 2) + 2 * crossed) / 4
        squares[:, np.arange(m), np.arange(m)] -= _sums((own**2)[..., None], strata, m)[..., 0]
        return cls(words, squares, strata)

    @classmethod
    def of_entries(
        cls,
        first: Int[np.ndarray, "pair"],
        second: Int[np.ndarray, "pair"],
        values: Float[np.ndarray, "head pair"],
        strata: Words,
    ) -> "_Blocks":
        """Of a symmetric form with these entries in both directions, and zeros elsewhere."""
        n, m = len(strata), int(strata.max()) + 1
        a, b = strata[first], strata[second]
        words = [np.bincount(first * m + b, v, n * m) + np.bincount(second * m + a, v, n * m) for v in values]
        squares = [np.bincount(a * m + b, v**2, m * m) + np.bincount(b * m + a, v**2, m * m) for v in values]
        return cls(np.reshape(words, (-1, n, m)), np.reshape(squares, (-1, m, m)), strata)

    def effects(
        self, size: Int[np.ndarray, "stratum"]
    ) -> tuple[Float[np.ndarray, "head a b"], Float[np.ndarray, "head word b"], Float[np.ndarray, "head a b"]]:
        """Mean of each block, effect of each word in each block of its stratum, and what both leave of the squares.

        Block a ≠ b: A_ij = μ + α_i + β_j + γ_ij. Block a = a: A_ij = μ + α_i + α_j + γ_ij, i ≠ j. Effects sum to 0, and
        so do the rows and columns of γ.
        """
        m = len(size)
        cells = np.outer(size, size) - np.diag(size)
        mean = _sums(self.words, self.strata, m) / np.maximum(cells, 1)
        row = (size - np.eye(m))[self.strata]  # entries of a word's row in each block
        effect = self.words / np.maximum(row, 1) - mean[:, self.strata]
        effect *= np.where(np.eye(m)[self.strata] > 0, (row / np.maximum(row - 1, 1)) * (row > 1), row > 0)
        spread = _sums(effect**2, self.strata, m)  # [head a b]: Σ_{i∈a} α_ib²
        own = np.eye(m, dtype=np.bool_)
        explained = np.where(own, 2 * np.maximum(size - 2, 0) * spread, size * spread + (size * spread).swapaxes(1, 2))
        return mean, effect, np.maximum(self.squares - cells * mean**2 - explained, 0)


def _permutation_moments(A: _Blocks, B: _Blocks, size: Int[np.ndarray, "stratum"]) -> tuple[OfHeads, OfHeads]:
    """Mean and variance of Σ_{i≠j} A_ij B_π(i)π(j) over independent permutations π of every stratum, in closed form.

    In the parts of `_Blocks.effects`, uncorrelated under π, the sum is that of the means (its expectation) and of

        Λ_a = Σ_{i∈a} Σ_b c_ab α^A_ib α^B_π(i)b, c_ab = 2 n_b, c_aa = 2 (n_a - 2): variance ‖Σ_b c α^A α^Bᵀ‖²/(n_a - 1)
        γ in block a:          variance 2 Σγ_A² Σγ_B² / (n_a (n_a - 3))
        γ in blocks ab and ba: variance 4 Σγ_A² Σγ_B² / ((n_a - 1)(n_b - 1))

    With one stratum this is Mantel's (1967) variance. Ours for several; tested against all permutations.
    """
    m = len(size)
    mean_A, effect_A, rest_A = A.effects(size)
    mean_B, effect_B, rest_B = B.effects(size)
    cells = np.outer(size, size) - np.diag(size)
    mean = (cells * mean_A * mean_B).sum((1, 2))
    variance = np.zeros(len(mean))
    for a in range(m):
        i = A.strata == a
        weight = 2.0 * size - 4.0 * (np.arange(m) == a)
        cross = (effect_A[:, i].mT @ effect_A[:, i]) * (effect_B[:, i].mT @ effect_B[:, i])
        if size[a] > 1:
            variance += np.einsum("b,c,hbc->h", weight, weight, cross) / (size[a] - 1)
        if size[a] > 3:
            variance += 2 * rest_A[:, a, a] * rest_B[:, a, a] / (size[a] * (size[a] - 3))
        for b in range(a):
            if size[a] > 1 and size[b] > 1:
                variance += 4 * rest_A[:, a, b] * rest_B[:, a, b] / ((size[a] - 1) * (size[b] - 1))
    return mean, variance


def _narrow(
    left: Factors, right: Factors
) -> tuple[Float[np.ndarray, "head word rank"], Float[np.ndarray, "head word rank"]]:
    """The same form by factors no wider than the number of words."""
    n = left.shape[1]
    if left.shape[2] <= n:
        return left, right
    return left @ right.swapaxes(1, 2), np.broadcast_to(np.eye(n), (len(left), n, n))


def _sums(x: Float[np.ndarray, "head word k"], group: Words, groups: int) -> Float[np.ndarray, "head group k"]:
    """Sums over the words of each group; no group is empty."""
    order = np.argsort(group, kind="stable")
    size = np.bincount(group, minlength=groups)
    return np.asarray(np.add.reduceat(x[:, order], np.cumsum(size) - size, axis=1))
