"""Theorem 1: trained embeddings encode topics in their Gram matrix E = W_Eᵀ W_E."""

from dataclasses import replace

import numpy as np

from topicscope.claims.claim import (
    Claim,
    Context,
    Row,
    above,
    below,
    entry_means,
    exact_row,
    measured_row,
    near,
    setting_of,
)
from topicscope.theory import embedding_conditions, embedding_loss, embedding_optimum

# The paper's heat maps: both losses, SGD and Adam, three learning rates.
RATES = (0.003, 0.01, 0.03)


def measure(context: Context) -> list[Row]:
    """Theorem 1 in the population by two optimisers, then the paper's grid of losses, optimisers and rates."""
    adam = theorem_rows(context, "Adam .01")
    descent = ("training.optimizer=sgd", "training.learning_rate=1.0", "training.schedule=constant")
    sgd = theorem_rows(context, "SGD 1", *descent, "training.steps=600")
    return [*adam, *sgd, *grid_rows(context)]


def theorem_rows(context: Context, how: str, *overrides: str) -> list[Row]:
    """N = ∞, squared loss, the theorem's bias: conditions, gap and loss of every seed, from the final weights."""
    record = context.train("embeddings", *overrides)
    setting = replace(setting_of(record), document_length=None)
    embeddings = [W_E.astype(np.float64) for W_E in record.weights["W_E"]]
    checks = [embedding_conditions(setting, W_E.T @ W_E) for W_E in embeddings]
    best = embedding_optimum(setting, embeddings[0].shape[0])
    losses = [embedding_loss(setting, W_E) for W_E in embeddings]
    worst = max(check.residual for check in checks) * setting.a
    return [
        measured_row("gap", f"same - different topic, {how}", [check.gap for check in checks], theory=best.gap),
        exact_row("conditions", f"largest violation of the three conditions, in units of 1/a, {how}", worst),
        measured_row("loss", f"squared loss, {how}", losses, theory=best.loss),
        measured_row("distinct", f"same - different topic, distinct words, {how}", [c.distinct_gap for c in checks]),
    ]


def grid_rows(context: Context) -> list[Row]:
    """Distinct same-topic against different-topic words after training on sampled documents, in units of E_ii.

    SGD at the paper's rates moves by η times a gradient far below 1: where it has not left its start after as many
    steps as Adam needs, the row says so by its number; it is shown and not judged.
    """
    steps = 200 if context.quick else 600
    rows = []
    for loss, fast in (("cross-entropy", 1.0), ("squared", 0.3)):  # the squared loss diverges at 1
        for optimizer, rates in (("adam", RATES), ("sgd", (*RATES, fast))):
            for rate in rates[-2:] if context.quick else rates:
                how = (f"training.loss={loss}", f"training.optimizer={optimizer}", f"training.learning_rate={rate}")
                record = context.train("embeddings-cross-entropy", *how, f"training.steps={steps}")
                means = {part: np.array(values) for part, values in entry_means(record, "E").items()}
                share = (means["same"] - means["different"]) / means["diagonal"]
                judged = None if optimizer == "sgd" and rate < fast else "block"
                quantity = f"(E_same - E_different) / E_ii, {loss}, {optimizer} {rate:g}, {steps} steps"
                rows.append(measured_row(judged, quantity, share))
    return rows


CLAIM = Claim(
    id="embedding-block",
    title="Trained embeddings are closer inside a topic",
    where="Theorem 1 (Knowl 1), heat maps of the embeddings' Gram matrix",
    assertion="With uniform attention and W_V = I every optimal Gram matrix has the same topic means in a row, plus "
    "1/(av) at the row's own topic.",
    recipes=("embeddings", "embeddings-cross-entropy"),
    theory=("embedding_optimum", "embedding_conditions"),
    criteria=(
        near("gap", "same-topic minus different-topic average, self-pairs included", 0.02),
        below("conditions", "the theorem's conditions", 0.02),
        near("loss", "the loss reaches the least possible", 1e-4),
        above("block", "distinct words of a topic closer than words of different topics, sampled documents", 0.05),
        above("distinct", "the same at N = ∞, which the theorem does not promise", 0.0, decisive=False),
    ),
    measure=measure,
)
