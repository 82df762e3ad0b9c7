"""What sharding a probe costs: per shard, in merging, in the driver's memory, and with several workers on Ray.

    python benchmarks/scale.py [--shards 10000] [--documents 10000] [--workers 1 2] [--json]

- overhead: CPU time of what a shard adds to reading it (its state written, read back and counted in), over the time
  of reading `--documents` articles, and 4,096 sentences, with the embedded model.
- merge: CPU time and memory of counting in `--shards` shards of made-up moments, of some 50 KB each and of the size of
  the embedded model's with three thresholds.
- tokenising: CPU time of the driver for a million tokens of Wikipedia, alone and with workers that tokenise; with Ray
  only. What is left to the driver bounds what any number of workers can gain.
- efficiency: the time of one worker over workers times that of several, on as many shards; with Ray only. A machine
  with fewer free cores than workers cannot show more than that share.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.probing.results import load_state, pack_state
from topicscope.probing.statistics import DocumentSums, PartMoments
from topicscope.progress import SilentProgress

FILES = 20  # of made-up shards, read again and again: what is measured is not the disk
SIZES = {"50 KB": (65, 1, (1, 4)), "embedded model": (543, 3, (6, 12))}


def made_up(features: int, configurations: int, heads: tuple[int, int], seed: int) -> DocumentSums:
    """Moments of 1,000 documents."""
    rng = np.random.default_rng(seed)
    z = rng.random((50, features))
    total, outer = (np.stack([of] * configurations) for of in (z.sum(0), z.T @ z))
    shape = (configurations, *heads, 15)
    part = PartMoments(1000, total, outer, rng.random(shape), rng.random((*shape, 15)), np.zeros(3))
    return DocumentSums(1000, {"encoder": part})


def merged(folder: Path, size: str, shards: int) -> dict[str, float]:
    """CPU seconds of counting in so many shards, bytes of one, and by how much the memory grew after the first ten."""
    folder.mkdir()
    expected = np.zeros(SIZES[size][0])
    for number in range(FILES):
        sums = made_up(*SIZES[size], seed=number)
        (folder / f"{number}").write_bytes(pack_state(sums.arrays("shard")))
        expected += sums.moments["encoder"].pooled_total[0] * (shards / FILES)
    total, started, memory = DocumentSums(), time.process_time(), 0
    for number in range(shards):
        total.merge(DocumentSums.from_arrays(load_state(folder / f"{number % FILES}"), "shard"))
        if number == 9:
            memory = peak_bytes()
    seconds = time.process_time() - started
    assert total.documents == 1000 * shards
    assert np.allclose(total.moments["encoder"].pooled_total[0], expected, rtol=1e-9)
    return {
        "seconds": seconds,
        "ms_per_shard": 1e3 * seconds / shards,
        "bytes_of_a_shard": float((folder / "0").stat().st_size),
        "megabytes_grown": (peak_bytes() - memory) / 1e6,
        "megabytes_peak": peak_bytes() / 1e6,
    }


class Clock(SilentProgress):
    """Times the task that reads: seconds of the clock, and of this process's processors."""

    def start(self, task: str, total: float | None, unit: str) -> None:
        if task == "reading":
            self.started = time.monotonic(), time.process_time()

    def finish(self, task: str) -> None:
        if task == "reading":
            self.seconds, self.cpu = time.monotonic() - self.started[0], time.process_time() - self.started[1]


def probed(out: Path | None, units: int, **more: Any) -> tuple[Clock, dict[str, Any]]:
    """Times of reading so many sentences of Wikipedia with the embedded model, and what was counted."""
    import topicscope
    from topicscope.demo import minilm_folder

    clock = Clock()
    options: dict[str, Any] = {"topics": 10, "sweeps": 5, "controls": 0, "permutations": 0, "profile": 0}
    result = topicscope.probe(str(minilm_folder()), out=out, max_units=units, progress=clock, **options | more)
    return clock, dict(result.coverage["text"])


def overhead(folder: Path, documents: int) -> dict[str, float]:
    """The share of its time that a shard spends on being a shard: of 4,096 sentences, and of so many documents."""
    units = 512
    clock, text = probed(None, units)
    sums = made_up(*SIZES["embedded model"], seed=0)
    folder.mkdir()
    started = time.process_time()
    for _ in range(10):
        (folder / "shard").write_bytes(pack_state(sums.arrays("shard")))
        DocumentSums().merge(DocumentSums.from_arrays(load_state(folder / "shard"), "shard"))
    cost, unit = (time.process_time() - started) / 10, clock.cpu / units
    document = unit * text["units"] / text["documents"]
    return {
        "ms_of_overhead": 1e3 * cost,
        "ms_of_a_sentence": 1e3 * unit,
        "share_of_4096_sentences": cost / (4096 * unit),
        f"share_of_{documents}_documents": cost / (document * documents),
    }


def tokenising() -> dict[str, float]:
    """CPU seconds of the driver for a million tokens, when it tokenises itself and when workers do, and the ratio."""
    from transformers import AutoTokenizer

    from topicscope.demo import minilm_folder
    from topicscope.distributed import Cluster
    from topicscope.probing import ProbeConfig
    from topicscope.probing.tokens import Aligner, TokenCache, build_tokens
    from topicscope.text import open_corpus, split_words

    tokenizer, corpus = AutoTokenizer.from_pretrained(minilm_folder()), open_corpus("wikipedia-sample")

    def seconds(aligner: Aligner | None) -> float:
        with tempfile.TemporaryDirectory(prefix="topicscope-") as name:
            started = time.process_time()
            build_tokens(Path(name), tokenizer, corpus, ProbeConfig(), 256, split_words, SilentProgress(), aligner)
            spent = time.process_time() - started
            tokens = TokenCache(Path(name)).coverage.tokens
        return 1e6 * spent / float(tokens)

    alone = seconds(None)
    with Cluster("local", workers=1) as cluster:
        seconds(cluster)  # the worker starts
        driver = seconds(cluster)
    return {"alone_seconds": alone, "driver_seconds": driver, "at_most_times_faster": alone / driver}


def efficiency(folder: Path, workers: Sequence[int]) -> dict[str, float]:
    """Seconds of reading with each number of workers, once they have the model, and their share of perfect scaling."""
    from topicscope.distributed import Cluster

    folder.mkdir()
    found = {}
    for number in workers:
        with Cluster("local", workers=number) as cluster:
            clock, _ = probed(folder / str(number), 2000, cluster=cluster, shard_units=125)
        found[f"seconds_with_{number}"] = clock.seconds
    first = workers[0]
    for number in workers[1:]:
        ideal = found[f"seconds_with_{first}"] * first / number
        found[f"efficiency_with_{number}"] = ideal / found[f"seconds_with_{number}"]
    return found


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="none: without Ray")
    parser.add_argument("--json", action="store_true", help="one line of JSON at the end")
    chosen = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="topicscope-") as name:
        folder = Path(name)
        for size in SIZES:
            found[f"merge of {chosen.shards} shards, {size}"] = merged(folder / size, size, chosen.shards)
        found[f"overhead at {chosen.documents} documents"] = overhead(folder / "overhead", chosen.documents)
        if chosen.workers:
            found["tokenising a million tokens"] = tokenising()
            found["workers"] = efficiency(folder / "workers", chosen.workers)
    for what, figures in found.items():
        print(what)
        for figure, value in figures.items():
            print(f"  {figure:20} {value:.4g}")
    if chosen.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
