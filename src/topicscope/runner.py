"""Independent pieces of work and who does them: this process, one after another, or a cluster (`cluster.Cluster`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from topicscope.errors import InputError


@dataclass(frozen=True)
class Job:
    """One piece of work: `arguments` of the function that does it, under a name of its own."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Finished:
    """A job that was done, and what its function returned."""

    name: str
    value: Any


@dataclass(frozen=True)
class Failed:
    """A job that was not done, after as many tries as its runner gives it."""

    name: str
    reason: str


@runtime_checkable
class Runner(Protocol):
    """Who does jobs. What a function leaves in a folder must not depend on who calls it, or when."""

    def check(self, folder: Path) -> None:
        """Before any work: make sure that whoever does the jobs can read and write `folder`, which is there.

        Raises:
            InputError: names the machine that cannot, or that has other versions.
        """

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        """Every job once, as `work(*job.arguments)`, in the order in which they end.

        work: a function of a module, so that it can be named elsewhere; arguments and values must be plain data. An
        `InputError` ends the whole (nothing is gained by trying bad input again); any other error fails its job only.
        """


class Here:
    """This process, one job after another, in their order."""

    def check(self, folder: Path) -> None:
        """Nothing: what this process cannot write it says itself."""

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        """See `Runner.run`; a job is tried once, as the same process would fail the same way again."""
        for job in jobs:
            try:
                value = work(*job.arguments)
            except InputError:
                raise
            except Exception as error:
                first = (str(error).strip().splitlines() or [""])[0]
                yield Failed(job.name, f"{type(error).__name__}: {first}"[:300])
            else:
                yield Finished(job.name, value)
