"""Theorems 1 to 4 in random settings, inside their assumptions and outside.

Numbers behind the slips in the paper's printed statements: each row shows one, and says what holds instead.
"""

import numpy as np
from scipy.special import betaincinv

from topicscope.claims.claim import Claim, Context, Criterion, Row, exact_row
from topicscope.progress import tracked
from topicscope.synthetic import Setting
from topicscope.theory import (
    THEOREMS,
    Theorem,
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
    conditions = embedding_conditions(_USUAL, inverted_optimum(_USUAL))
    assert conditions.residual < 1e-12
    least = 5
    theorem = next(theorem for theorem in THEOREMS if theorem.id == "value-matrix")
    report = theorem.check(Setting(10, 10, 10, 0.15, 0.1, 0.1))
    one = topicwise_attention_optimum(Setting(10, 10, 1, 0.15, 0.1, 0.1), "block")
    dense = Setting(44396, 23, 30557, 0.498, 0.434, 0.434)
    bare = diagonal_value_matrix(_RICH).copy()
    bare[:, 0] = 0.0
    wide = Setting(10345, 154, 2927, 0.492, 0.222, 0.222)
    upper_few, upper_wide = (diagonal_bounds(s)[1] for s in (Setting(10, 4, 2, 0.15, 0.1, 0.1), wide))
    assert upper_few is not None
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
        _row(
            "c1 at T = 6, v = 3, p = (.5, .05, .9)",
            _RICH.p_random / (_RICH.p_mask_token * _RICH.a * _RICH.vocabulary_size),
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
        _row(
            "γ* with one topic a document",
            float(one.gamma),
            "Theorem 3",
            "the average weight inside a topic is above 1",
            "τ ≥ 2 is needed",
        ),
        _row(
            f"γ* at τ/T = {dense.topics_per_document / dense.num_topics:.2f}; the lower bound says",
            topicwise_attention_optimum(dense, "block").gamma,
            "Theorem 3",
            "τ = o(T), an assumption about a limit",
            "it cannot be dropped: here γ* lies below the lower bound",
            paper=block_bounds(dense)[0],
        ),
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


def _row(quantity: str, value: float, where: str, printed: str, holds: str, *, paper: float | None = None) -> Row:
    erratum = {"where": where, "printed": printed, "holds": holds}
    return exact_row(None, quantity, value, paper=paper, erratum=erratum)


def inverted_optimum(s: Setting) -> np.ndarray:
    """A positive semidefinite Gram matrix that meets Theorem 1's conditions with u = 0.

    It has 2/a on the diagonal, and between distinct words of a topic less than between words of different topics.
    """
    v = s.words_per_topic
    other = (1 / s.a - 2 / s.a) / (v - 1)
    block = np.full((v, v), other) + (2 / s.a - other) * np.eye(v)
    return np.pad(np.kron(np.eye(s.num_topics), block), ((1, 0), (1, 0)))


PAPER = ("embedding", "value-matrix", "block-attention", "diagonal-attention")
FULL, QUICK, LEAST = 125, 25, 20
_LARGEST_MATRIX = 200  # words: beyond, the checks that build matrices take seconds each


def measure(context: Context) -> list[Row]:
    """The share of random settings in which each theorem holds, as many inside its assumptions as outside; errata."""
    theorems = [theorem for theorem in THEOREMS if theorem.id in PAPER]
    count = QUICK if context.quick else FULL
    rows = []
    with tracked(context.progress, "theory-holds", 2 * count * len(theorems), "settings"):
        for number, theorem in enumerate(theorems):
            inside, outside = share_holding(theorem, count, np.random.default_rng(number))
            rows += [_check_row(theorem, inside, "inside"), _check_row(theorem, outside, None)]
            context.progress.update("theory-holds", 2 * count * (number + 1))
    return [*rows, *errata_rows()]


def share_holding(theorem: Theorem, count: int, rng: np.random.Generator) -> tuple[list[bool], list[bool]]:
    """Whether the theorem holds, in `count` settings that meet its assumptions and in `count` that do not."""
    found: tuple[list[bool], list[bool]] = ([], [])
    while min(map(len, found)) < count:
        setting = random_setting(rng, matrices=theorem.kind == "minimiser")
        broken = any(not assumption.holds(setting) for assumption in theorem.assumptions)
        if len(found[broken]) < count:
            found[broken].append(theorem.check(setting).holds)
    return found


def random_setting(rng: np.random.Generator, *, matrices: bool) -> Setting:
    """A random setting: T, v and τ log-uniform, half of them with p_c = p_r, a fifth with finite documents.

    matrices: keep V ≤ 200, for checks that build (V+1) × (V+1) matrices.
    """
    T = int(np.exp(rng.uniform(np.log(2), np.log(40 if matrices else 3000))))
    v = int(np.exp(rng.uniform(0, np.log(_LARGEST_MATRIX / T if matrices else 60))))
    tau = int(np.exp(rng.uniform(0, np.log(T + 1))))
    p_correct = rng.uniform(0.01, 0.49)
    p_random = p_correct if rng.random() < 0.5 else rng.uniform(0.01, 0.98 - p_correct)
    length = int(rng.integers(2, 40)) if rng.random() < 0.2 else None
    return Setting(T, max(v, 1), min(max(tau, 1), T), rng.uniform(0.02, 0.8), p_correct, p_random, length, "token")


def _check_row(theorem: Theorem, holds: list[bool], criterion: str | None) -> Row:
    n, k = len(holds), sum(holds)
    lower = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    side = "inside" if criterion else "outside"
    return exact_row(
        criterion,
        f"{theorem.reference}: share that holds {side} its assumptions",
        k / n,
        theory=1.0 if criterion else None,
        settings=n,
        lowest_share=lower,
    )


CLAIM = Claim(
    id="theory-holds",
    title="The theorems hold wherever their assumptions do",
    where="Theorems 1-4 (Knowls 1-4)",
    assertion="Theorems 1 to 4 state optima, or bounds on optima, of embeddings, value matrix and attention.",
    recipes=(),
    theory=("THEOREMS",),
    criteria=(
        Criterion(
            "inside",
            f"holds in every random setting that meets its assumptions, at least {LEAST} of them",
            lambda row: row["measured"] == 1 and row["settings"] >= LEAST,
        ),
    ),
    measure=measure,
)
