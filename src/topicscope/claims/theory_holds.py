"""Theorems 1 to 4 in random settings, inside their assumptions and outside."""

import numpy as np
from scipy.special import betaincinv

from topicscope.claims.claim import Claim, Criterion, Row
from topicscope.claims.context import Context
from topicscope.claims.errata import errata_rows
from topicscope.claims.rows import exact_row
from topicscope.progress import tracked
from topicscope.synthetic import Setting
from topicscope.theory import THEOREMS, Theorem

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
            rows += [_row(theorem, inside, "inside"), _row(theorem, outside, None)]
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


def _row(theorem: Theorem, holds: list[bool], criterion: str | None) -> Row:
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
