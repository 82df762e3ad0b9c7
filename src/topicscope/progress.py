"""Progress reports that any package can send without knowing who shows them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Receives the state of long work. The command line draws it; the library's default ignores it."""

    def start(self, task: str, total: int | float | None, unit: str) -> None:
        """Work named `task` begins; `total` is None while unknown."""

    def update(self, task: str, done: int | float) -> None:
        """`done` units of the task are finished so far."""

    def finish(self, task: str) -> None:
        """The task is over (also after an error)."""


@runtime_checkable
class Annotated(Protocol):
    """A receiver that shows figures beside the state of a task as well."""

    def note(self, task: str, figures: Mapping[str, float]) -> None:
        """What is known of the task now, by name: rates, failures."""


def note(progress: Progress, task: str, figures: Mapping[str, float]) -> None:
    """Hand figures to a receiver that shows them."""
    if isinstance(progress, Annotated):
        progress.note(task, figures)


class SilentProgress:
    """The default: nobody is watching."""

    def start(self, task: str, total: int | float | None, unit: str) -> None:
        """Ignore."""

    def update(self, task: str, done: int | float) -> None:
        """Ignore."""

    def finish(self, task: str) -> None:
        """Ignore."""


@contextmanager
def tracked(progress: Progress, task: str, total: int | float | None, unit: str = "") -> Iterator[None]:
    """Open and surely close one task."""
    progress.start(task, total, unit)
    try:
        yield
    finally:
        progress.finish(task)
