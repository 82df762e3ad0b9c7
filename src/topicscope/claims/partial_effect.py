"""Partial effects on pairs of words: what one property of a pair adds once others are in the model.

    y_qk = β x_qk + Σ_m γ_m z_mqk + a_q + b_k + error,   q ≠ k

Every word has its own level as query (a) and as key (b), so that nothing about single words, such as how frequent they
are, can pass for an effect of pairs; log co-occurrence and pointwise mutual information are then the same control. β is
found by Frisch-Waugh: x̃ is x without levels and controls, β = x̃·y / x̃·x̃.

Pairs that share a word are not independent. The standard error counts them as one cluster for each word (dyadic
clustering; Aronow, Samii & Assenova 2015): with s_d the sum of x̃ times residual over both orders of the dyad d and S_w
the sum of s_d over the dyads of word w,

    Var β = (Σ_w S_w² - Σ_d s_d²) / (x̃·x̃)²    (each two dyads with a word in common once)

never taken below Σ_d s_d² / (x̃·x̃)², the variance without clusters, and widened by n/(n - parameters) · W/(W - 1).
Intervals are Student's with W - 1 degrees of freedom, W the number of words. Several runs (seeds of training, fits of
the topics) are put together by Rubin's rules (1987), as draws of what is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from topicscope.claims.claim import exact_row

_ROUNDS = 500
# Less than this share of the square of x beside levels and controls is rounding: they cannot be told apart.
_NOTHING_LEFT = 1e-9


@dataclass(frozen=True)
class Effect:
    """A number, such as β, and its standard error; NaN where x cannot be told apart from controls and levels.

    clusters: what the error counts as independent (words, or articles).
    """

    value: float
    se: float
    pairs: int
    clusters: int

    @property
    def error(self) -> float:
        """Half-width of the 95 % interval."""
        return float(stdtrit(self.clusters - 1, 0.975)) * self.se

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval; False where the effect is unknown."""
        return abs(self.value) > self.error


class Pairs:
    """Ordered pairs of distinct words, each at most once, and what is left of a column when levels are taken out.

    query, key: int [pair], any numbers that name words.
    """

    def __init__(self, query: np.ndarray, key: np.ndarray) -> None:
        assert len(query) == len(key)
        assert not (query == key).any()
        self.names, places = np.unique(np.concatenate([query, key]), return_inverse=True)
        self.query, self.key = places[: len(query)], places[len(query) :]
        times = [np.bincount(side, minlength=len(self.names)) for side in (self.query, self.key)]
        self._counts = [np.maximum(number, 1) for number in times]
        self.levels = int(sum(np.count_nonzero(number) for number in times)) - 1
        dyad = np.minimum(self.query, self.key) * len(self.names) + np.maximum(self.query, self.key)
        self._dyads, self._dyad_of = np.unique(dyad, return_inverse=True)

    def without_levels(self, column: np.ndarray) -> np.ndarray:
        """The column less the least-squares level of each query and each key, by turns until nothing moves."""
        left = np.array(column, dtype=np.float64)
        scale = float(np.abs(left).max(initial=0.0))
        for _ in range(_ROUNDS):
            moved = 0.0
            for side, counts in zip((self.query, self.key), self._counts, strict=True):
                level = np.bincount(side, left, len(self.names)) / counts
                left -= level[side]
                moved = float(np.abs(level).max(initial=0.0))
            if moved <= 1e-9 * scale:
                break
        return left

    def clustered(self, scores: np.ndarray) -> float:
        """Σ_w S_w² - Σ_d s_d² of scores [pair], or Σ_d s_d² where that is more."""
        W, sums = len(self.names), np.bincount(self._dyad_of, scores)
        of_word = np.bincount(self._dyads // W, sums, W) + np.bincount(self._dyads % W, sums, W)
        own = float(sums @ sums)
        return max(float(of_word @ of_word) - own, own)

    def effect(self, response: np.ndarray, variable: np.ndarray, controls: Sequence[np.ndarray] = ()) -> Effect:
        """β of `variable` on `response` [pair], with `controls` [pair] and the words' levels in the model."""
        return self.partial(response, controls).of(variable)

    def partial(self, response: np.ndarray, controls: Sequence[np.ndarray] = ()) -> "Partial":
        """The same for many variables: response and controls are prepared once."""
        cleared = [self.without_levels(control) for control in controls]
        basis = np.linalg.qr(np.column_stack(cleared))[0] if cleared else np.zeros((len(self.query), 0))
        left = self.without_levels(response)
        return Partial(self, left - basis @ (basis.T @ left), basis)


@dataclass(frozen=True, eq=False)
class Partial:
    """response [pair] without levels and controls; basis [pair, control]: orthonormal, of the cleared controls."""

    pairs: Pairs
    response: np.ndarray
    basis: np.ndarray

    def of(self, variable: np.ndarray) -> Effect:
        """β of a further variable [pair]."""
        pairs, W, n = self.pairs, len(self.pairs.names), len(self.response)
        x = pairs.without_levels(variable)
        before = float(x @ x)
        x = x - self.basis @ (self.basis.T @ x)
        square = float(x @ x)
        free = n - 1 - self.basis.shape[1] - pairs.levels
        if not square > _NOTHING_LEFT * max(before, 1e-300) or before < _NOTHING_LEFT * n or free < 1:
            return Effect(np.nan, np.nan, n, W)
        value = float(x @ self.response) / square
        clustered = pairs.clustered(x * (self.response - value * x))
        variance = clustered / square**2 * n / free * W / (W - 1)
        return Effect(value, float(np.sqrt(variance)), n, W)


def shares_any(membership: np.ndarray, pairs: Pairs) -> np.ndarray:
    """float64 [pair]: 1 where the two words have a topic in common; membership bool [word, topic], a row a name."""
    member = membership.astype(np.float32)
    return np.asarray((member @ member.T > 0)[pairs.query, pairs.key], dtype=np.float64)


def shuffled_effects(partial: Partial, membership: np.ndarray, times: int, seed: int) -> list[Effect]:
    """Effects of same-topic when the topics are dealt out anew among the words, `times` times: the negative control."""
    rng = np.random.default_rng(seed)
    return [partial.of(shares_any(membership[rng.permutation(len(membership))], partial.pairs)) for _ in range(times)]


def effect_row(criterion: str | None, quantity: str, effects: Sequence[Effect], **more: Any) -> dict[str, Any]:
    """The mean effect of m runs with its 95 % interval by Rubin's rules.

    Variance T = mean of se² + (1 + 1/m) B, B the variance of the m effects; Student's t with ν degrees of freedom,
    1/ν = 1/ν_m + 1/(clusters - 1), ν_m = (m - 1) (T / ((1 + 1/m) B))².
    """
    m, values = len(effects), np.array([effect.value for effect in effects])
    between = (1 + 1 / m) * float(values.var(ddof=1)) if m > 1 else 0.0
    total = float(np.mean([effect.se**2 for effect in effects])) + between
    slack = 1 / (effects[0].clusters - 1) + (between / total) ** 2 / max(m - 1, 1)
    error = float(stdtrit(1 / slack, 0.975) * np.sqrt(total))
    counts = {"seeds": m, "pairs": effects[0].pairs, "clusters": effects[0].clusters}
    return exact_row(criterion, quantity, float(values.mean()), error=error, **counts | more)


def coverage_row(criterion: str, quantity: str, effects: Sequence[Effect]) -> dict[str, Any]:
    """The share of (shuffled) effects whose interval holds 0; for intervals of 95 % about .95."""
    share = float(np.mean([effect.value == effect.value and not effect.excludes_zero for effect in effects]))
    return exact_row(criterion, quantity, share, shuffles=len(effects))
