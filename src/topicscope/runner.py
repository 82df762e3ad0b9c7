"""Independent pieces of work, and who does them: this process one after another, or a `distributed.Cluster`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from topicscope.errors import InputError


@dataclass(frozen=True)
class Job:
    """One piece of work: `arguments` of the function that does it, under a name of its own."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Finished:
    """A job that was done, by its name, and what its function returned."""

    name: Any
    value: Any


@dataclass(frozen=True)
class Failed:
    """A job that was not done, after as many tries as its runner gives it."""

    name: Any
    reason: str


@runtime_checkable
class Runner(Protocol):
    """Who does jobs."""

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        """Every job once, as `work(*job.arguments)`, in the order in which they end.

        work: a function of a module, so that it can be named elsewhere; arguments and values must be plain data. An
        `InputError` ends the whole (nothing is gained by trying bad input again); any other error fails its job only.
        """


class Here:
    """This process, one job after another, in their order."""

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
