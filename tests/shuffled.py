"""A runner for tests: it stands for a cluster, whose jobs end in any order and some of which fail."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.runner import Failed, Finished, Here, Job


class Shuffled(Here):
    """Does jobs in another order, and those named in `failing` not at all; keeps the names of those it did."""

    def __init__(self, seed: int = 0, failing: Sequence[str] = ()) -> None:
        self.rng, self.failing = np.random.default_rng(seed), failing
        self.done: list[str] = []
        self.checked: list[Path] = []

    def check(self, folder: Path) -> None:
        assert folder.is_dir()
        self.checked.append(folder)

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        for number in self.rng.permutation(len(jobs)):
            job = jobs[number]
            if job.name in self.failing:
                yield Failed(job.name, "its worker died")
                continue
            self.done.append(job.name)
            yield from super().run(work, [job])
