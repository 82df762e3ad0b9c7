"""A recipe that trains in milliseconds, sweeps of it, and runners that do jobs in odd ways."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from topicscope.experiments import SweepResult
from topicscope.runner import Failed, Finished, Job

TINY = """
name = "tiny"
description = "as small as a recipe can be"
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
[references]
W_V = "finite-n"
"""
SWEEP = """
recipe = "tiny.toml"
seeds = 2
[grid]
"training.learning_rate" = [0.01, 0.1]
"model.attention" = ["uniform", "trained"]
"""


def write(folder: Path, sweep: str = SWEEP, recipe: str = TINY) -> Path:
    """The sweep file, with its recipe beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny.toml").write_text(recipe)
    (folder / "sweep.toml").write_text(sweep)
    return folder / "sweep.toml"


def rows(result: SweepResult) -> list[dict[str, Any]]:
    """All that must not depend on who trained, or when."""
    return [
        {name: point[name] for name in ("id", "values", "status", "reason", "measurements")} for point in result.points
    ]


class Shuffled:
    """Does jobs in another order, and loses those of `losing`."""

    def __init__(self, seed: int = 0, losing: Sequence[int] = ()) -> None:
        self.seed, self.losing = seed, losing

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        order = list(range(len(jobs)))
        random.Random(self.seed).shuffle(order)
        for i in order:
            yield (
                Failed(jobs[i].name, "its worker died")
                if i in self.losing
                else Finished(jobs[i].name, work(*jobs[i].arguments))
            )


class Stopped:
    """Ctrl-C after `after` jobs; counts those that were begun."""

    def __init__(self, after: int) -> None:
        self.after, self.begun = after, 0

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        for job in jobs:
            if self.begun == self.after:
                raise KeyboardInterrupt
            self.begun += 1
            yield Finished(job.name, work(*job.arguments))
