"""Theorem 4 and Knowl 9: with a diagonal value matrix, words attend to themselves."""

from dataclasses import replace

from topicscope.claims.attention_order import (
    BOUNDS,
    FREE,
    LARGER,
    PRINTED,
    SETTING,
    attention_rows,
    bound_row,
    free_attention_rows,
    reported_share,
)
from topicscope.claims.claim import Claim, Row, above, exact_row
from topicscope.claims.context import Context
from topicscope.theory import topicwise_attention_optimum

# Knowl 9 (Li, Li & Risteski 2023): cross-entropy, Adam .01, diagonal W_V.
PAPER = {"same_word": 0.0918, "same_topic": 0.00182, "different_topic": 0.00256}
PAPER_ERRORS = {"same_word": 0.00244, "same_topic": 0.000474, "different_topic": 0.000109}


def measure(context: Context) -> list[Row]:
    """Trained attention, then the exact optimum of the topic-wise weights, and how near free attention comes to it."""
    free = free_attention_rows(context, "diagonal")
    return [*trained_rows(context), *optimum_rows(), *free, reported_share(PAPER)]


def trained_rows(context: Context) -> list[Row]:
    """Both losses: cross-entropy as the paper says, and the squared loss, which comes nearer to its numbers."""
    steps = 300 if context.quick else 1000
    orders = {"word": ("same_word", "different_topic"), "suppressed": ("different_topic", "same_topic")}
    rows = []
    for loss in ("cross-entropy", "squared"):
        overrides = (f"training.steps={steps}", f"training.loss={loss}")
        how = f"diagonal W_V, {loss}, step {steps}"
        printed = loss == "cross-entropy"
        rows += attention_rows(
            context,
            "attention-diagonal",
            *overrides,
            how=how,
            paper=PAPER,
            paper_errors=PAPER_ERRORS,
            orders=orders,
            printed=printed,
        )
    return rows


def optimum_rows() -> list[Row]:
    """β* and α* at N = ∞ against Theorem 4, and at N = 100."""
    best = topicwise_attention_optimum(SETTING, "diagonal")
    finite = topicwise_attention_optimum(replace(SETTING, document_length=100), "diagonal")
    return [
        bound_row("β* at N = ∞", best.beta, best.lower_bound, best.upper_bound),
        bound_row("α* at N = ∞", best.alpha, float("-inf"), best.alpha_bound),
        exact_row("inside", "β* at N = ∞: weight of the same word, 1 of other topics", best.beta),
        exact_row("inside", "β* at N = 100", finite.beta),
        exact_row(None, "α* at N = 100", finite.alpha),
    ]


CLAIM = Claim(
    id="attention-diagonal",
    title="With a diagonal value matrix words attend to themselves",
    where="Theorem 4 (Knowl 4) and the second table of Knowl 9",
    assertion="λ3 τ < β < λ4 T and α < λ5 β at the optimum; trained attention is largest between equal words, and "
    "between other words of a topic smaller than between topics.",
    recipes=("attention-diagonal", "attention-squared-diagonal"),
    theory=("topicwise_attention_optimum",),
    criteria=(
        above("word", "log of same-word over different-topic attention", LARGER),
        above("suppressed", "log of different-topic over same-topic attention", LARGER),
        BOUNDS,
        above("inside", "the optimal weight of the same word", 1.0),
        FREE,
        PRINTED,
    ),
    measure=measure,
)
