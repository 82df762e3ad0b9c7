"""A number of workers that is kept up: whoever dies is replaced, as long as there is room for one somewhere."""

import time
from collections.abc import Callable
from typing import Any

from topicscope.errors import InputError, RunError

# A piece of work is tried so often, whether it fails or its worker dies, before it is given up.
TRIES = 4
# How long to wait for any worker at all: machines may be on their way.
PATIENCE_S = 600.0
# So many deaths a worker, while they start, are bad luck.
FALLS = 3


class Pool:
    """Workers by the references of what they are doing.

    make: starts one, at once and without waiting for it.
    """

    def __init__(self, ray: Any, make: Callable[[], Any], size: int) -> None:
        self._ray, self._make, self._size = ray, make, size
        self._starting: dict[Any, Any] = {}
        self._busy: dict[Any, tuple[Any, Any]] = {}
        self._idle: list[Any] = []
        self._falls = 0  # of workers that were starting, since the last one that did not
        self._alive = time.monotonic()  # when a worker last gave a sign of life

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    @property
    def doing(self) -> list[Any]:
        """The work that is being done."""
        return [work for _, work in self._busy.values()]

    def start(self) -> None:
        """Start workers until there are enough, and wait for the first; an error in loading the model is raised.

        Raises:
            InputError: as the worker.
            RunError: no worker starts.
        """
        while len(self) + len(self._starting) < self._size:
            worker = self._make()
            self._starting[worker.ready.remote()] = worker
        while not len(self):
            self.done(timeout=1.0)

    def give(self, work: Any, *arguments: Any) -> bool:
        """Have an idle worker do `read(*arguments)`; False where none is idle."""
        if not self._idle:
            return False
        worker = self._idle.pop(0)
        self._busy[worker.read.remote(*arguments)] = (worker, work)
        return True

    def done(self, timeout: float) -> list[tuple[Any, Any, str | None]]:
        """What has ended: (work, its outcome, None) or (work, None, why it failed). Dead workers are replaced.

        timeout: seconds to wait for anything.

        Raises:
            InputError: a new worker cannot load the model.
            RunError: there was no worker for ten minutes.
        """
        errors = self._ray.exceptions
        references = [*self._busy, *self._starting]
        finished, _ = self._ray.wait(references, num_returns=1, timeout=timeout) if references else ([], [])
        if len(finished):
            finished, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        outcomes: list[tuple[Any, Any, str | None]] = []
        for reference in finished:
            worker, work = self._busy.pop(reference, (None, None))
            starting = worker is None
            worker = self._starting.pop(reference) if starting else worker
            try:
                outcome = self._ray.get(reference)
            except errors.RayTaskError as error:  # the worker lives
                if starting:
                    raise _cause(error) from error
                self._idle.append(worker)
                outcomes.append((work, None, first_line(error)))
            except errors.RayError as error:
                self._replace(worker)
                if starting:
                    self._fell_at_start(error)
                else:
                    outcomes.append((work, None, f"its worker died: {type(error).__name__}"))
            else:
                self._alive, self._falls = time.monotonic(), 0
                self._idle.append(worker)
                if not starting:
                    outcomes.append((work, outcome, None))
        if len(self):
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > PATIENCE_S:
            raise RunError(
                "no worker of the cluster starts",
                received=f"{len(self._starting)} workers asked for, none for {PATIENCE_S:.0f} s",
                advice="see `ray status`; what was finished is kept for --resume",
            )
        return outcomes

    def stop(self, *, busy_only: bool = False) -> None:
        """End the workers, or those whose work nobody waits for any more."""
        leaving = [worker for worker, _ in self._busy.values()]
        self._busy = {}
        if not busy_only:
            leaving += [*self._idle, *self._starting.values()]
            self._idle, self._starting = [], {}
        for worker in leaving:
            self._ray.kill(worker)

    def _replace(self, worker: Any) -> None:
        self._ray.kill(worker)
        new = self._make()
        self._starting[new.ready.remote()] = new

    def _fell_at_start(self, error: Exception) -> None:
        """Bad luck once; not again and again."""
        self._falls += 1
        if self._falls > FALLS * self._size:
            raise RunError(
                "workers of the cluster die while they start",
                received=first_line(error),
                advice="the model may not fit into their memory: fewer --workers, or machines with more",
            ) from error


def _cause(error: Any) -> Exception:
    cause = getattr(error, "cause", None)
    return (
        cause if isinstance(cause, (InputError, RunError)) else RunError("a worker failed", received=first_line(error))
    )


def first_line(error: Any) -> str:
    """What a worker's error was, in one line."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0]}"[:300]
