"""What a sweep costs beside its trainings, and whether the memory of its driver stays flat.

    python benchmarks/sweep.py [--json] [--points 1000]

A recipe of four words and three steps, one thread, one seed: the CPU time of a point in a sweep minus that of
`train` alone, with whole records and with rows only. Reach: below 30 ms a point, and below 0.1 MB of memory.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import torch

from topicscope.experiments import make_spec, sweep
from topicscope.lab import load_recipe, train

RECIPE = """
name = "tiny"
[data]
num_topics = 2
words_per_topic = 2
topics_per_document = 1
length = 8
[model]
attention = "uniform"
[training]
loss = "squared"
steps = 3
batch_size = 2
[history]
documents = 3
"""
WARM = 20


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def swept(folder: Path, points: int, keep: str) -> tuple[float, float]:
    """CPU milliseconds and megabytes for each point."""
    rate = {"low": 1e-3, "high": 1.0, "log": True}
    document = {"recipe": "tiny.toml", "seeds": 1, "random": {"samples": points, "training.learning_rate": rate}}
    memory, began = peak_mb(), time.process_time()
    sweep(make_spec(document, folder=folder), out=folder / f"{keep}-{points}", keep=keep)
    return 1000 * (time.process_time() - began) / points, (peak_mb() - memory) / points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--points", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.toml").write_text(RECIPE)
        recipe = load_recipe(folder / "tiny.toml")
        swept(folder, WARM, "record")  # imports, and the picture's fonts
        began = time.process_time()
        for _ in range(100):
            train(recipe)
        alone = 1000 * (time.process_time() - began) / 100
        found = {"train_ms": alone}
        for keep in ("record", "summary"):
            each, memory = swept(folder, args.points, keep)
            found |= {f"{keep}_ms": each - alone, f"{keep}_mb": memory}
    print(f"train alone: {alone:.1f} ms of one processor")
    for keep in ("record", "summary"):
        print(f"keep {keep}: {found[f'{keep}_ms']:.1f} ms and {found[f'{keep}_mb']:.3f} MB more a point; reach 30, 0.1")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
