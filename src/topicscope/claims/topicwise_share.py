"""How much of attention the topic-wise form explains: A_qk = c_q · b_class(q, k), c_q free in every row (Knowl 3)."""

from dataclasses import replace

import numpy as np

from topicscope.claims.plain_attention import PairTable
from topicscope.topics import PairClass

_TURNS = 100
_SETTLED = 1e-7
_TINY = 1e-300  # where a category never occurs, or a row shows nothing


def explained_share(attention: np.ndarray, row: np.ndarray, category: np.ndarray) -> np.ndarray:
    """R² [map] = 1 - min_{b,c} Σ (A - c_row b_category)² / Σ (A - mean of its row)², over pairs.

    1 exactly where attention is topic-wise, 0 where the categories say nothing within rows: b = 1 leaves the row's
    mean. attention [pair, map]; row [pair]: the row of attention in which a pair stands; category [pair]: whole
    numbers from 0. NaN for a map that is constant within rows.

    The minimum is found by turns: c given b and b given c are both least squares, so the error never grows.
    """
    row = np.unique(row, return_inverse=True)[1]
    category = np.unique(category, return_inverse=True)[1]
    R, K = row.max(initial=-1) + 1, category.max(initial=-1) + 1
    cell = row * K + category
    count = np.bincount(cell, minlength=R * K).reshape(R, K).astype(np.float64)
    total = np.stack([np.bincount(cell, column, minlength=R * K).reshape(R, K) for column in attention.T])
    squares = (attention**2).sum(axis=0)
    flat = (total.sum(axis=2) ** 2 / count.sum(axis=1)).sum(axis=1)
    rest = squares - flat
    # Below the rounding of the sums there is no variation to explain.
    rest[rest <= 1e-12 * squares] = np.nan
    b = np.ones((len(total), K))
    c, explained = _fitted(total, count, b), flat
    for _ in range(_TURNS):
        b = (c[:, None, :] @ total)[:, 0, :] / np.maximum(c**2 @ count, _TINY)
        c = _fitted(total, count, b)
        before, explained = explained, (c**2 * (b**2 @ count.T)).sum(axis=1)
        if not (explained - before > _SETTLED * rest).any():
            break
    return np.asarray((explained - flat) / rest)


def _fitted(total: np.ndarray, count: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c [map row], the least squares given b [map category]."""
    return np.asarray((total @ b[:, :, None])[:, :, 0] / np.maximum(b**2 @ count.T, _TINY))


def shuffled(category: np.ndarray, row: np.ndarray, seed: int = 0) -> np.ndarray:
    """The categories dealt out anew among the pairs of each row: the control, whose share must be about 0."""
    noise = np.random.default_rng(seed).random(len(row))
    before, after = np.lexsort((np.arange(len(row)), row)), np.lexsort((noise, row))
    dealt = np.empty_like(category)
    dealt[before] = category[after]
    return dealt


def by_word(pairs: PairTable) -> PairTable:
    """Mean attention of every (query word, key word) that occurs, one pair each; its row is the query word."""
    one = _averaged(pairs, pairs.query, pairs.key)
    return replace(one, row=one.query)


def by_topic(pairs: PairTable, topic_of: np.ndarray) -> PairTable:
    """Mean attention of every position on the other words of one topic, one pair each; topic_of [word].

    Its key is the topic and its class same or different topic: what a value matrix that is constant within topics
    lets the loss see of attention.
    """
    one = _averaged(pairs, pairs.row, topic_of[pairs.key])
    own = topic_of[one.query] == topic_of[one.key]
    classes = np.where(own, int(PairClass.same_topic), int(PairClass.different_topic))
    return replace(one, key=topic_of[one.key], pair_class=classes)


def _averaged(pairs: PairTable, first: np.ndarray, second: np.ndarray) -> PairTable:
    """One pair for each combination of two codes that occurs, with the mean of its attention."""
    code = first * (int(second.max(initial=0)) + 1) + second
    _, example, place = np.unique(code, return_index=True, return_inverse=True)
    count = np.bincount(place)
    means = np.stack([np.bincount(place, weights=column) / count for column in pairs.attention.T], axis=1)
    return replace(pairs.only(example), attention=means)
