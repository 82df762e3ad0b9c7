"""Numbers behind the slips in the paper's printed statements: each row shows one, and says what holds instead."""

import numpy as np

from topicscope.claims.claim import Row
from topicscope.claims.rows import exact_row
from topicscope.synthetic import Setting
from topicscope.theory import (
    THEOREMS,
    block_bounds,
    diagonal_bounds,
    diagonal_value_matrix,
    embedding_conditions,
    embedding_optimum,
    topicwise_attention_optimum,
    uniform_attention_loss,
    value_matrix_loss,
)

_USUAL = Setting(10, 10, 2, 0.15, 0.1, 0.1)
_RICH = Setting(6, 3, 2, 0.5, 0.05, 0.9)  # many random words, few kept


def errata_rows() -> list[Row]:
    """Rows that are shown and not judged; `erratum` holds {where, printed, holds}."""
    return [*_embedding_rows(), *_value_rows(), *_block_rows(), *_diagonal_rows()]


def _row(quantity: str, value: float, where: str, printed: str, holds: str, *, paper: float | None = None) -> Row:
    erratum = {"where": where, "printed": printed, "holds": holds}
    return exact_row(None, quantity, value, paper=paper, erratum=erratum)


def _embedding_rows() -> list[Row]:
    conditions = embedding_conditions(_USUAL, inverted_optimum(_USUAL))
    assert conditions.residual < 1e-12
    least = 5
    return [
        _row(
            "distinct words at one optimum of Theorem 1: same - different topic average",
            conditions.distinct_gap,
            "Theorem 1",
            "words of a topic are closer on average",
            "with the pair of a word with itself counted; distinct words may be further apart at an optimum",
        ),
        _row(
            f"same - different topic average at d = {least} < T = {_USUAL.num_topics}; the statement says",
            embedding_optimum(_USUAL, least).gap,
            "Theorem 1",
            "no dimension is named",
            "d ≥ T and τ < T are needed; below, the gap is (d-1)/((T-1) a v)",
            paper=1 / (_USUAL.a * _USUAL.words_per_topic),
        ),
    ]


def inverted_optimum(s: Setting) -> np.ndarray:
    """A positive semidefinite Gram matrix that meets Theorem 1's conditions with u = 0.

    It has 2/a on the diagonal, and between distinct words of a topic less than between words of different topics.
    """
    v = s.words_per_topic
    other = (1 / s.a - 2 / s.a) / (v - 1)
    block = np.full((v, v), other) + (2 / s.a - other) * np.eye(v)
    return np.pad(np.kron(np.eye(s.num_topics), block), ((1, 0), (1, 0)))


def _value_rows() -> list[Row]:
    c1 = _RICH.p_random / (_RICH.p_mask_token * _RICH.a * _RICH.vocabulary_size)
    theorem = next(theorem for theorem in THEOREMS if theorem.id == "value-matrix")
    every = Setting(10, 10, 10, 0.15, 0.1, 0.1)
    report = theorem.check(every)
    return [
        _row(
            "c1 at T = 6, v = 3, p = (.5, .05, .9)",
            c1,
            "Theorem 2",
            "c1 lies in (0, 1)",
            "c1 may exceed 1; the formula holds nevertheless",
        ),
        _row(
            "Theorem 2 with every topic in every document (τ = T): deviation in units of its tolerance",
            report.deviation / report.tolerance,
            "Theorem 2",
            "converges for every τ",
            "τ < T is needed",
        ),
    ]


def _block_rows() -> list[Row]:
    one = topicwise_attention_optimum(Setting(10, 10, 1, 0.15, 0.1, 0.1), "block")
    dense = Setting(44396, 23, 30557, 0.498, 0.434, 0.434)
    gamma = topicwise_attention_optimum(dense, "block").gamma
    return [
        _row(
            "γ* with one topic a document",
            float(one.gamma),
            "Theorem 3",
            "the average weight inside a topic is above 1",
            "τ ≥ 2 is needed",
        ),
        _row(
            f"γ* at τ/T = {dense.topics_per_document / dense.num_topics:.2f}; the lower bound says",
            gamma,
            "Theorem 3",
            "τ = o(T), an assumption about a limit",
            "it cannot be dropped: here γ* lies below the lower bound",
            paper=block_bounds(dense)[0],
        ),
    ]


def _diagonal_rows() -> list[Row]:
    bare = diagonal_value_matrix(_RICH).copy()
    bare[:, 0] = 0.0
    few = Setting(10, 4, 2, 0.15, 0.1, 0.1)
    wide = Setting(10345, 154, 2927, 0.492, 0.222, 0.222)
    upper_few, upper_wide = diagonal_bounds(few)[1], diagonal_bounds(wide)[1]
    assert upper_few is not None
    return [
        _row(
            "excess loss of a diagonal matrix without its [MASK] column",
            uniform_attention_loss(_RICH, bare) - value_matrix_loss(_RICH),
            "Theorem 4",
            "D^V is zero off the diagonal",
            "among words; without a bias its [MASK] column must be -c1",
        ),
        _row(
            "λ4 T at v = 4",
            upper_few,
            "Theorem 4",
            "no condition on v",
            "v > (1+a)² + 1 is needed, or the upper bound is negative",
        ),
        _row(
            f"β* at v = {wide.words_per_topic}, τ/T = {wide.topics_per_document / wide.num_topics:.2f}; the upper "
            "bound says",
            topicwise_attention_optimum(wide, "diagonal").beta,
            "Theorem 4",
            "τ = o(T) at fixed v",
            "τ√v = O(T) is what is needed: β* grows like v, λ4 like √v",
            paper=upper_wide,
        ),
    ]
