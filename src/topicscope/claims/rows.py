"""Rows of a claim: what was measured beside theory and the paper, with its error."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import stdtrit

from topicscope.lab import block_means
from topicscope.records import RunRecord
from topicscope.topics import TopicModel


def measured_row(
    criterion: str | None,
    quantity: str,
    values: Iterable[float],
    *,
    theory: float | None = None,
    paper: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The mean over seeds, with the half-width t₀.₉₇₅ s/√n of Student's 95 % interval."""
    numbers = np.array(list(values), dtype=np.float64)
    n = len(numbers)
    error = float(stdtrit(n - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return _row(criterion, quantity, paper, theory, float(numbers.mean()), error, n) | more


def exact_row(
    criterion: str | None,
    quantity: str,
    value: float,
    *,
    theory: float | None = None,
    paper: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A number without sampling error: computed, or counted over everything there is."""
    return _row(criterion, quantity, paper, theory, float(value), 0.0, None) | more


def not_run_row(
    quantity: str, reason: str, *, criterion: str | None = None, paper: float | None = None, **more: Any
) -> dict[str, Any]:
    """A number that could not be measured, with the reason; never a guess. criterion: what would have judged it."""
    return _row(criterion, quantity, paper, None, None, None, None) | {"reason": reason} | more


def _row(
    criterion: str | None,
    quantity: str,
    paper: float | None,
    theory: float | None,
    measured: float | None,
    error: float | None,
    seeds: int | None,
) -> dict[str, Any]:
    return {
        "criterion": criterion,
        "quantity": quantity,
        "paper": paper,
        "theory": theory,
        "measured": measured,
        "error": error,
        "seeds": seeds,
    }


def entry_means(record: RunRecord, name: str = "W_V") -> dict[str, list[float]]:
    """Means of the final weights' [MASK] column and of different-topic, same-topic and diagonal entries, by seed.

    name: "W_V", or "E" for the Gram matrix W_Eᵀ W_E. Taken from the weights, not from what the run says of itself.
    """
    W = record.weights
    matrices = W["W_E"].transpose(0, 2, 1).astype(np.float64) @ W["W_E"] if name == "E" else W[name]
    data = record.config["data"]
    topics = TopicModel.disjoint(data["num_topics"], data["words_per_topic"])
    rows = [block_means(matrix, topics) for matrix in matrices]
    return {part: [row[part] for row in rows] for part in rows[0]}
