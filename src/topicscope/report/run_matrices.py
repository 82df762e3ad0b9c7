"""The matrices of a training run by moment, with topics along their sides: from its snapshots, or its final weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from topicscope.records import RunRecord
from topicscope.report.brackets import Bracket, brackets

NAMES: Mapping[str, str] = {
    "W_V": "value matrix W_V, [output, input]",
    "E": "Gram matrix W_Eᵀ W_E of the embeddings",
    "logits": "attention logits, [key, query]",
}


@dataclass(frozen=True, eq=False)
class RunMatrix:
    """One matrix along a run, of the first seed.

    frames [frame bin bin]; steps [frame]; topics: where each topic lies along both sides; none where unknown.
    """

    name: str
    frames: np.ndarray
    steps: np.ndarray
    topics: list[Bracket]


def run_matrices(record: RunRecord) -> dict[str, RunMatrix]:
    """W_V, E and logits, those that the run trained, by name; from older records only the last moment."""
    kept = record.snapshots
    if kept:
        topics = brackets(kept["topic"], kept["edge"])
        return {name: RunMatrix(name, kept[name], kept["step"], topics) for name in NAMES if name in kept}
    data, frozen = record.config.get("data", {}), record.summary.get("frozen", [])
    T, v = data.get("num_topics", 0), data.get("words_per_topic", 0)
    regular = T and v and not any(data.get(name) for name in ("topic_sizes", "shared_words", "phi"))
    last = np.array([record.summary.get("steps", 0)])
    found = {}
    for name, matrix in _final(record).items():
        tokens = 1 + T * v if regular else len(matrix)
        topic = np.concatenate([[-1], np.repeat(np.arange(T), v)]) if regular else np.full(tokens, -1)
        if name not in frozen and tokens <= len(matrix):
            cut = matrix[None, :tokens, :tokens]
            found[name] = RunMatrix(name, cut, last, brackets(topic, np.arange(tokens + 1)))
    return found


def _final(record: RunRecord) -> dict[str, np.ndarray]:
    weights, frozen = record.weights, record.summary.get("frozen", [])
    found = {}
    W_E = weights.get("W_E")
    if W_E is not None and "W_E" not in frozen:
        found["E"] = W_E[0].T @ W_E[0]
    W_V = weights.get("W_V")
    if W_V is not None and (W_E is None or "W_E" in frozen):
        found["W_V"] = W_V[0]
    return found
