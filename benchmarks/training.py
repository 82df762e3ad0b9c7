"""Training and data against the slow twin: ratios of CPU time, one thread, A and B interleaved in one process.

    python benchmarks/training.py [--json] [--repeats 15]

Setting: T = 10 topics of v = 10 words, Dirichlet .1, N = 100-150, batches of 40, START and END, cross-entropy, AdamW
.01; fresh masks at every step on both sides, and on ours fresh documents too. Reach: uniform 40, stacked 250 a seed,
attention 25, data 40.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from twin import Twin, text_lines

from topicscope.lab import CountTensors, ModelConfig, ReducedTransformer, start
from topicscope.synthetic import DocumentLaw, FreshDocuments, Masking
from topicscope.topics import TopicModel

TOPICS = TopicModel.disjoint(10, 10, alpha=0.1)
LAW = DocumentLaw(TOPICS, length=(100, 150))
MASKING = Masking(0.15, 0.1, 0.1, specials=True)
STACKED = 8
# Steps to a measurement: what `FreshDocuments` draws at once, so that each one pays for its own documents.
STEPS = 24


class Ours:
    """Steps of the reduced model with documents drawn and masked on the fly, one stream a seed."""

    def __init__(self, attention: str, seeds: int) -> None:
        config = ModelConfig(attention=attention, value="trained" if attention == "uniform" else "identity")
        self.streams = [FreshDocuments(LAW, MASKING, 40, seed) for seed in range(seeds)]
        num_tokens = self.streams[0].num_tokens
        self.model = ReducedTransformer(config, [start(config, num_tokens, TOPICS, seed=s) for s in range(seeds)])
        self.optimiser = torch.optim.AdamW(list(self.model.parameters()), lr=0.01, fused=True)

    def data(self) -> CountTensors:
        assert STEPS % self.streams[0].ahead == 0
        return CountTensors.of([s.next_counts(by_query=self.model.by_query) for s in self.streams])

    def step(self, batch: CountTensors | None = None) -> None:
        loss = self.model.data_loss(self.data() if batch is None else batch, "cross-entropy")
        self.optimiser.zero_grad()
        loss.sum().backward()
        self.optimiser.step()


def cpu(action: Callable[[], object], times: int) -> float:
    """CPU seconds of one call, over `times` calls in a row."""
    begin = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - begin) / times


def interleaved(slow: Callable, fast: Callable, repeats: int, times: int) -> tuple[np.ndarray, np.ndarray]:
    """CPU seconds a call [repeat] of both, A B A B …, after a warm-up of each."""
    cpu(slow, 1), cpu(fast, times)
    pairs = np.array([(cpu(slow, 1), cpu(fast, times)) for _ in range(repeats)])
    return pairs[:, 0], pairs[:, 1]


def report(name: str, slow: np.ndarray, fast: np.ndarray, per: int = 1) -> float:
    """Print median and quartiles of the ratio; per: seeds that share one call of the fast side."""
    ratio = slow / fast * per
    low, median, high = np.quantile(ratio, [0.25, 0.5, 0.75])
    print(
        f"{name:<34} {median:7.1f}x  (quartiles {low:.1f} to {high:.1f});  twin {1 / np.median(slow):8.1f}/s,"
        f" ours {per / np.median(fast):8.0f}/s"
    )
    return round(float(median), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = text_lines(LAW.draw(np.random.default_rng(0), 2000))
    ratios = {}
    for attention in ("uniform", "trained"):
        twin = Twin(lines, attention)
        print(f"twin: {twin.settings}")
        name = "attention" if attention == "trained" else attention
        for seeds in (1, STACKED):
            ours = Ours(attention, seeds)
            key = name if seeds == 1 else f"{name}_stacked"
            slow, fast = interleaved(twin.step, ours.step, args.repeats, STEPS)
            ratios[key] = report(f"{key}, with data", slow, fast, seeds)
            ready, counts = twin.data(), ours.data()
            slow, fast = interleaved(
                lambda t=twin, b=ready: t.step(b), lambda o=ours, c=counts: o.step(c), args.repeats, 20
            )
            report(f"{key}, same batch again", slow, fast, seeds)
    ours = Ours("trained", 1)
    ratios["data"] = report("data, a batch", *interleaved(twin.data, ours.data, args.repeats, STEPS))
    if args.json:
        print(json.dumps({key: ratios[key] for key in ("uniform", "uniform_stacked", "attention", "data")}))


if __name__ == "__main__":
    main()
