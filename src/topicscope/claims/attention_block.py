"""Theorem 3 and Knowl 9: with a block-wise value matrix, words attend to their topic."""

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

# Knowl 9 (Li, Li & Risteski 2023): cross-entropy, Adam .01, uniform-block W_V.
PAPER = {"same_word": 0.00811, "same_topic": 0.0100, "different_topic": 0.00707}
PAPER_ERRORS = {"same_word": 0.000705, "same_topic": 0.000392, "different_topic": 0.000178}


def measure(context: Context) -> list[Row]:
    """Trained attention, then the exact optimum of the topic-wise weights, and how near free attention comes to it."""
    free = free_attention_rows(context, "block")
    return [*trained_rows(context), *optimum_rows(), *free, reported_share(PAPER)]


def trained_rows(context: Context) -> list[Row]:
    """Cross-entropy with a 0-1 block and with Theorem 2's own matrix."""
    steps = 500 if context.quick else 1000
    topic, word, fades = (
        ("same_topic", "different_topic"),
        ("same_word", "different_topic"),
        ("same_topic", "same_word"),
    )
    orders = {"topic": topic, "word": word, "fades": fades}
    length = f"training.steps={steps}"
    how = f"block W_V, step {steps}"
    rows = attention_rows(
        context, "attention-block", length, how=how, paper=PAPER, paper_errors=PAPER_ERRORS, orders=orders
    )
    how = f"Theorem 2's W_V, step {steps}"
    only = {"topic": topic}
    theorem = attention_rows(
        context,
        "attention-theorem-2",
        length,
        how=how,
        paper=PAPER,
        paper_errors=PAPER_ERRORS,
        orders=only,
        printed=False,
    )
    return [*rows, *theorem]


def optimum_rows() -> list[Row]:
    """γ* = ((v-1)α + β)/v at N = ∞ against Theorem 3, and where the ridge breaks at N = 100."""
    best = topicwise_attention_optimum(SETTING, "block")
    finite = topicwise_attention_optimum(replace(SETTING, document_length=100), "block")
    return [
        bound_row("γ* at N = ∞", best.gamma, best.lower_bound, best.upper_bound),
        exact_row("inside", "γ* at N = ∞: weight inside a topic, 1 outside", best.gamma),
        exact_row("inside", "γ* at N = 100", finite.gamma),
        exact_row(None, "α* at N = 100", finite.alpha),
        exact_row(None, "β* at N = 100", finite.beta),
    ]


CLAIM = Claim(
    id="attention-block",
    title="With a block-wise value matrix words attend to their topic",
    where="Theorem 3 (Knowl 3) and the first table of Knowl 9",
    assertion="The optimal average weight inside a topic lies in (λ1(τ-1), λ2 T), so above that of other topics; "
    "trained attention is larger between words of a topic.",
    recipes=("attention-block", "attention-theorem-2", "attention-squared-block"),
    theory=("topicwise_attention_optimum",),
    criteria=(
        above("topic", "log of same-topic over different-topic attention", LARGER),
        BOUNDS,
        above("inside", "the optimal weight inside a topic", 1.0),
        above("word", "log of same-word over different-topic attention", LARGER, decisive=False),
        above("fades", "log of same-topic over same-word attention", LARGER, decisive=False),
        FREE,
        PRINTED,
    ),
    measure=measure,
)
