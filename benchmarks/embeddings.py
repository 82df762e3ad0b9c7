"""Exact embedding similarity over all pairs against the loops it replaces, on one core.

    python benchmarks/embeddings.py [--json] [--words 30522] [--width 384] [--topics 100]

The twins, on the same vectors and topics: the paper's form, a Python loop over sampled pairs (timed on --sampled-pairs
and scaled to the paper's 1e8; it has no standard errors), and all pairs by blocks of the similarity matrix.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is loaded

import numpy as np  # noqa: E402

from topicscope.probing.embeddings import embedding_similarity  # noqa: E402

PAPER_PAIRS = 100_000_000
REACH_SECONDS = 1.0


def timed(function: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Best time of several runs and the last value."""
    best, value = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        value = function()
        best = min(best, time.perf_counter() - start)
    return best, value


def sampled_loop(unit: np.ndarray, topic: np.ndarray, pairs: int) -> tuple[float, float]:
    """S and D from random pairs, one at a time, kept in lists."""
    draw = random.Random(0)
    same, different = [], []
    for _ in range(pairs):
        i, j = draw.randrange(len(unit)), draw.randrange(len(unit))
        if i != j:
            (same if topic[i] == topic[j] else different).append(float(unit[i] @ unit[j]))
    return sum(same) / len(same), sum(different) / len(different)


def blockwise(unit: np.ndarray, topic: np.ndarray, block: int = 1024) -> tuple[float, float]:
    """S and D from the whole similarity matrix, by blocks of rows."""
    same = total = 0.0
    for start in range(0, len(unit), block):
        gram = unit[start : start + block] @ unit.T
        same += float(gram[topic[start : start + block, None] == topic].sum())
        total += float(gram.sum())
    squares, size = float((unit**2).sum()), np.bincount(topic)
    pairs_same, n = int((size * (size - 1)).sum()), len(unit)
    return (same - squares) / pairs_same, (total - same) / (n * (n - 1) - pairs_same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    parser.add_argument("--words", type=int, default=30_522)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--sampled-pairs", type=int, default=200_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    topic = rng.integers(0, options.topics, size=options.words)
    centres = 0.3 * rng.normal(size=(options.topics, options.width))
    vectors = (0.2 + centres[topic] + rng.normal(size=(options.words, options.width))).astype(np.float32)
    membership = topic[:, None] == np.arange(options.topics)
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)

    embedding_similarity(vectors[:1000], membership[:1000], kind="cosine")
    seconds, exact = timed(lambda: embedding_similarity(vectors, membership, kind="cosine"), 5)
    sampled_seconds, sampled = timed(lambda: sampled_loop(unit, topic, options.sampled_pairs), 1)
    sampled_seconds *= PAPER_PAIRS / options.sampled_pairs
    block_seconds, brute = timed(lambda: blockwise(unit, topic), 1)
    record = {
        "benchmark": "embeddings",
        "words": options.words,
        "width": options.width,
        "topics": options.topics,
        "seconds": round(seconds, 4),
        "reach_seconds": REACH_SECONDS,
        "sampled_loop_seconds_for_1e8_pairs": round(sampled_seconds, 1),
        "sampled_pairs_timed": options.sampled_pairs,
        "times_faster_than_sampled_loop": round(sampled_seconds / seconds),
        "all_pairs_matrix_seconds": round(block_seconds, 2),
        "times_faster_than_all_pairs_matrix": round(block_seconds / seconds, 1),
        "relative_deviation_from_all_pairs": max(abs(exact.same / brute[0] - 1), abs(exact.different / brute[1] - 1)),
        "sampled_same": round(sampled[0], 5),
        "exact_same": round(exact.same, 5),
        "exact_same_se": round(exact.same_se, 5),
        "z": round(exact.z, 1),
    }
    print(json.dumps(record) if options.json else "\n".join(f"{key:40} {value}" for key, value in record.items()))


if __name__ == "__main__":
    main()
