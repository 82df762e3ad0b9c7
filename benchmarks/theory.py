"""Speed of the exact theory on one core, against its targets and against the slow twin that enumerates documents.

    python benchmarks/theory.py [--json]

Exit code 1 when a target is missed. Twin and fast form run on the same small settings, since the twin's cost is
exponential; their values are compared as well, so that a fast wrong answer cannot win.
"""

import argparse
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Callable

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is loaded

import numpy as np  # noqa: E402

from topicscope import theory  # noqa: E402
from topicscope.theory import topicwise_kernel, value_blocks  # noqa: E402

RATES = (0.15, 0.1, 0.1)


def best_time(function: Callable[[], object], repeats: int) -> float:
    """Least CPU seconds of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def peak_megabytes(function: Callable[[], object]) -> float:
    """Largest memory that Python and numpy held during one run."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def targets() -> list[dict[str, object]]:
    """Each target with what was measured."""
    landscape_setting = theory.Setting(10, 10, 2, *RATES, 100)
    axis = np.linspace(0, 20, 41)

    def landscape() -> object:
        return theory.attention_landscape(landscape_setting, axis, axis)

    million_words = theory.Setting(10**5, 10, 2, *RATES)
    million_topics = theory.Setting(10**6, 10, 2, *RATES)
    rows = [
        ("attention_landscape 41×41, T=10 v=10 N=100", "s", 1.0, best_time(landscape, 5)),
        ("attention_landscape, peak memory", "MB", 500.0, peak_megabytes(landscape)),
        (
            "value_matrix_blocks, V=1e6",
            "s",
            0.010,
            best_time(lambda: [theory.value_matrix_blocks(million_words) for _ in range(100)], 5) / 100,
        ),
        (
            "topicwise_attention_optimum block, T=1e6",
            "s",
            0.050,
            best_time(lambda: theory.topicwise_attention_optimum(million_topics, "block"), 20),
        ),
        (
            "topicwise_attention_optimum diagonal, T=1e6",
            "s",
            0.050,
            best_time(lambda: theory.topicwise_attention_optimum(million_topics, "diagonal"), 20),
        ),
    ]
    return [{"what": what, "unit": unit, "target": most, "measured": got} for what, unit, most, got in rows]


def ratios() -> list[dict[str, object]]:
    """How many times faster than the twin, on the same problem."""
    finite, infinite = theory.Setting(3, 2, 2, *RATES, 4), theory.Setting(8, 5, 3, *RATES)
    points = [(0.5, 2.0), (1.0, 1.0), (3.0, 0.5)]
    rng = np.random.default_rng(0)
    W = rng.normal(size=(41, 41))
    cases: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        (
            "topic-wise loss, N=4",
            lambda: [
                theory.enumerated_loss(
                    finite, value_blocks(finite, "block").matrix(finite), kernel=topicwise_kernel(finite, a, b)
                )
                for a, b in points
            ],
            lambda: theory.topicwise_attention_loss(finite, [a for a, _ in points], [b for _, b in points]),
        ),
        (
            "uniform loss, N=∞",
            lambda: theory.enumerated_loss(infinite, W),
            lambda: theory.uniform_attention_loss(infinite, W),
        ),
        ("Bayes loss", lambda: theory.enumerated_bayes_loss(infinite), lambda: theory.bayes_loss(infinite)),
    ]
    rows: list[dict[str, object]] = []
    for what, slow, fast in cases:
        error = float(np.abs(np.asarray(slow()) - np.asarray(fast())).max())
        assert error < 1e-11, (what, error)
        fast_time = best_time(lambda fast=fast: [fast() for _ in range(20)], 5) / 20
        rows.append({"what": what, "ratio": best_time(slow, 1) / fast_time, "largest_difference": error})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    measured, compared = targets(), ratios()
    if arguments.json:
        print(json.dumps({"targets": measured, "against_twin": compared}))
    else:
        for row in measured:
            verdict = "met" if row["measured"] <= row["target"] else "MISSED"
            print(f"{row['what']:46} {row['measured']:10.4g} {row['unit']:2}  target {row['target']:6.4g}  {verdict}")
        for row in compared:
            what, ratio, error = row["what"], row["ratio"], row["largest_difference"]
            print(f"{what:46} {ratio:10.0f} times the twin's speed (differs by {error:.1e})")
    return int(any(row["measured"] > row["target"] for row in measured))


if __name__ == "__main__":
    sys.exit(main())
