"""What a query meets in its document: the counts that a topic-wise attention column depends on, exact at any length.

A query shows a word of an active topic, a word of an inactive one, or [MASK]. For the first two, each *context* fixes
n_t, the tokens of the query's topic, and n_w, those equal to its word (itself among both); the remaining N - n_t tokens
enter through conditional moments. None of this depends on (α, β), so it is computed once for a whole landscape.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting

QueryKind = Literal["active", "inactive", "mask"]
_NEGLIGIBLE = 1e-18  # contexts rarer than this are left out; all of them together weigh less than 1e-13
_MOST_WORK = 2e9


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of one kind of query; every field is an array [context], counts in units of tokens.

    | field | meaning |
    | --- | --- |
    | probability | of the context; sums to 1 |
    | same_word | n_w, the query included |
    | same_topic | n_o = n_t - n_w, other words of the query's topic |
    | other_squares | E Σ n_i² over those other words |
    | rest | R = N - n_t, tokens outside the query's topic, [MASK] among them |
    | mask, mask_squared | E n_0, E n_0² |
    | active | expected tokens of the active topics, the query's own left out |
    | topic_squares | E Σ n_s² over the topics other than the query's |
    | word_squares | E Σ n_i² over the words of those topics |

    At N = ∞ there is one context and counts are shares of the document.
    """

    probability: np.ndarray
    same_word: np.ndarray
    same_topic: np.ndarray
    other_squares: np.ndarray
    rest: np.ndarray
    mask: np.ndarray
    mask_squared: np.ndarray
    active: np.ndarray
    topic_squares: np.ndarray
    word_squares: np.ndarray


def query_contexts(setting: Setting, kind: QueryKind) -> Contexts:
    """Every context of a selected query of this kind, weighted as the loss weights it.

    Raises:
        InputError: a per-document weighting of documents too long for the exact sum.
    """
    if setting.document_length is None:
        return _infinite_contexts(setting, kind)
    return _with_words(setting, _topic_contexts(setting, kind), kind)


def _infinite_contexts(setting: Setting, kind: QueryKind) -> Contexts:
    v, V, m = setting.words_per_topic, setting.vocabulary_size, setting.m
    f1, f2 = setting.a / (setting.topics_per_document * v) + setting.r / V, setting.r / V
    f = {"active": f1, "inactive": f2, "mask": 0.0}[kind]
    active, inactive = _other_topics(setting, kind)
    return Contexts(
        *[
            np.array([float(x)])
            for x in (
                1.0,
                f,
                (v - 1) * f,
                (v - 1) * f * f,
                1 - v * f,
                m,
                m * m,
                active * v * f1,
                active * (v * f1) ** 2 + inactive * (v * f2) ** 2,
                v * (active * f1**2 + inactive * f2**2),
            )
        ]
    )


def _other_topics(setting: Setting, kind: QueryKind) -> tuple[int, int]:
    """(active, inactive) topics other than the query's own."""
    tau, T = setting.topics_per_document, setting.num_topics
    return {"active": (tau - 1, T - tau), "inactive": (tau, T - tau - 1), "mask": (tau, T - tau)}[kind]


@dataclass(frozen=True)
class _Source:
    """Tokens drawn independently: share of [MASK], of each active word, of each inactive word, of the query's topic."""

    mask: float
    active: float
    inactive: float
    own_topic: float

    def outside(self) -> tuple[float, float, float]:
        """The three shares given that a token lies outside the query's topic."""
        left = 1 - self.own_topic
        return (self.mask / left, self.active / left, self.inactive / left) if left > 1e-12 else (0.0, 0.0, 0.0)


def _sources(setting: Setting, kind: QueryKind) -> tuple[_Source, _Source, _Source]:
    """(not selected, selected, either) tokens."""
    v, V, tau = setting.words_per_topic, setting.vocabulary_size, setting.topics_per_document

    def source(own: float, random: float, mask: float) -> _Source:
        f1, f2 = own / (tau * v) + random / V, random / V
        return _Source(mask, f1, f2, min(1.0, v * {"active": f1, "inactive": f2, "mask": 0.0}[kind]))

    return (
        source(1.0, 0.0, 0.0),
        source(setting.p_correct, setting.p_random, setting.p_mask_token),
        source(setting.a, setting.r, setting.m),
    )


def _topic_contexts(setting: Setting, kind: QueryKind) -> Float[np.ndarray, "7 count"]:
    """Rows: P(n_t' = c) and the conditional E n_0, E n_0², active, topic squares, word squares, and c itself.

    n_t' counts the *other* tokens of the query's topic, c = 0 … N-1.
    """
    N = setting.document_length
    assert N is not None
    plain, selected, either = _sources(setting, kind)
    sums = np.zeros((6, N))
    if setting.weighting == "token":
        own = binomial_pmf(N - 1, either.own_topic)
        counts = np.arange(N)
        sums[:] = own * np.stack(_rest_moments(setting, kind, [(either, N - 1 - counts)]))
    else:
        some = binomial_pmf(N, setting.p_mask)
        some[0] = 0.0
        some /= some.sum()
        ks = np.flatnonzero(some > _NEGLIGIBLE)
        if len(ks) * float(N) * len(ks) > _MOST_WORK:
            raise InputError(
                "documents too long for the exact per-document weighting",
                received=f"document_length = {N}",
                expected="at most a few thousand tokens",
                advice="use weighting = 'token', which differs by O(1/N), or an infinite document",
            )
        for k in ks.tolist():
            from_plain, from_selected = binomial_pmf(N - k, plain.own_topic), binomial_pmf(k - 1, selected.own_topic)
            i, j = np.flatnonzero(from_plain > _NEGLIGIBLE), np.flatnonzero(from_selected > _NEGLIGIBLE)
            joint = some[k] * np.outer(from_plain[i], from_selected[j])
            left = [(plain, (N - k - i)[:, None]), (selected, (k - 1 - j)[None, :])]
            counts = np.add.outer(i, j).ravel()
            for row, value in enumerate(_rest_moments(setting, kind, left)):
                weights = np.broadcast_to(joint * value, joint.shape).ravel()
                sums[row] += np.bincount(counts, weights=weights, minlength=N)
    met = np.flatnonzero(sums[0] > _NEGLIGIBLE)
    sums = sums[:, met]
    sums[1:] /= sums[0]
    return np.vstack([sums, met])


def _rest_moments(setting: Setting, kind: QueryKind, left: list[tuple[_Source, np.ndarray]]) -> list[np.ndarray]:
    """1, E n_0, E n_0², active, topic squares, word squares of independent groups of `left` tokens outside the
    topic."""
    v = setting.words_per_topic
    active, inactive = _other_topics(setting, kind)
    shares = [source.outside() for source, _ in left]
    sizes = [size for _, size in left]
    masks, ones, twos = ([share[i] for share in shares] for i in range(3))
    topics_one, topics_two = [v * p for p in ones], [v * p for p in twos]
    return [
        np.ones_like(_mean(sizes, masks)),
        _mean(sizes, masks),
        _square(sizes, masks),
        active * _mean(sizes, topics_one),
        active * _square(sizes, topics_one) + inactive * _square(sizes, topics_two),
        v * (active * _square(sizes, ones) + inactive * _square(sizes, twos)),
    ]


def _mean(sizes: list[np.ndarray], shares: list[float]) -> np.ndarray:
    """E of a sum of independent binomials Bin(size, share)."""
    return np.asarray(sum(n * p for n, p in zip(sizes, shares, strict=True)))


def _square(sizes: list[np.ndarray], shares: list[float]) -> np.ndarray:
    """E of the square of that sum."""
    return np.asarray(_mean(sizes, shares) ** 2 + sum(n * p * (1 - p) for n, p in zip(sizes, shares, strict=True)))


def _with_words(setting: Setting, topics: Float[np.ndarray, "7 count"], kind: QueryKind) -> Contexts:
    """Split each n_t' by n_w' | n_t' ~ Bin(n_t', 1/v); a [MASK] query has no topic and counts as one more [MASK]."""
    N, v = setting.document_length, setting.words_per_topic
    assert N is not None
    probability, mask, mask_squared, active, topic_squares, word_squares, counts = topics
    if kind == "mask":
        none = np.zeros_like(mask)
        mask_squared = mask_squared + 2 * mask + 1
        return Contexts(
            probability, none, none, none, none + N, mask + 1, mask_squared, active, topic_squares, word_squares
        )
    rows, words, weights = [], [], []
    for row, count in enumerate(counts.astype(int).tolist()):
        pmf = probability[row] * binomial_pmf(count, 1 / v)
        kept = np.flatnonzero(pmf > _NEGLIGIBLE)
        rows.append(np.full(len(kept), row))
        words.append(kept)
        weights.append(pmf[kept])
    at = np.concatenate(rows)
    same_word = np.concatenate(words) + 1.0
    same_topic = counts[at] + 1 - same_word
    squares = same_topic + same_topic * (same_topic - 1) / max(v - 1, 1)
    rest = N - 1 - counts[at]
    of = [values[at] for values in (mask, mask_squared, active, topic_squares, word_squares)]
    return Contexts(np.concatenate(weights), same_word, same_topic, squares, rest, *of)


def binomial_pmf(n: int, p: float) -> Float[np.ndarray, "count"]:
    """P(Bin(n, p) = 0 … n), by ratios from the mode so that the relative error stays near rounding."""
    if p <= 0 or p >= 1 or n == 0:
        return np.asarray(np.eye(1, n + 1, n if p >= 1 else 0)[0])
    mode = min(n, int((n + 1) * p))
    up = np.arange(mode, n)
    down = np.arange(mode, 0, -1)
    odds = p / (1 - p)
    above = np.cumprod((n - up) / (up + 1) * odds)
    below = np.cumprod(down / (n - down + 1) / odds)
    pmf = np.concatenate([below[::-1], [1.0], above])
    return np.asarray(pmf / pmf.sum())
