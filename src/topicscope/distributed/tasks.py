"""Tasks on Ray: few at a time, tried again where their worker dies, sent again where what was sent is lost."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from topicscope.distributed import worker
from topicscope.errors import InputError, RunError
from topicscope.runner import Failed, Finished

# A task is begun so often again when its worker or machine dies, and sent so often again when its blocks are lost.
RETRIES = 3
# Blocks with Ray for each worker: those of the task that it is at, and of the next one.
BLOCKS_PER_WORKER = 2
# How long to wait for a machine that can do anything: some may be on their way.
PATIENCE_S = 600.0


class Shared:
    """What many tasks need: put when the first of them is sent, and again once it was lost."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._reference = make, None

    def reference(self, ray: Any) -> list[Any]:
        """Its reference, in a list, so that Ray does not fetch it for every task (see `worker`)."""
        if self._reference is None:
            self._reference = ray.put(self._make())
        return [self._reference]

    def forget(self) -> None:
        """It was lost."""
        self._reference = None


def _no_blocks(_: Any) -> Sequence[Any]:
    return ()


class Task(NamedTuple):
    """`work(*shared, *arguments, *blocks(item))`, of which the blocks, which may be large, are put one by one.

    work: a function of a module, so that it can be named on another machine.
    """

    item: Any
    work: Callable[..., Any]
    arguments: Sequence[Any]
    shared: Sequence[Shared] = ()
    blocks: Callable[[Any], Sequence[Any]] = _no_blocks


class _Sent(NamedTuple):
    number: int
    task: Task
    arguments: Sequence[Any]
    blocks: Sequence[Any]


class Tasks:
    """Runs tasks of one kind.

    at_once: that run at the same time; `BLOCKS_PER_WORKER` blocks for each of them are with Ray, so that thousands of
    tasks lie neither in its memory nor in its queue. gpus: of each task, which takes one processor as well.
    """

    def __init__(self, ray: Any, at_once: int, gpus: float) -> None:
        self._ray, self._at_once, self._gpus = ray, at_once, gpus
        # A process keeps its model for the next task, also on a GPU, for which Ray would end it.
        options = {"num_cpus": 1, "num_gpus": gpus, "max_calls": 0, "max_retries": RETRIES}
        self._remote = ray.remote(**options)(worker.call)
        self._ready, self._running = deque[_Sent](), dict[Any, _Sent]()
        self._ended = dict[int, Finished | Failed]()
        self._losses = Counter[int]()
        self._room = time.monotonic()  # when there last was any

    def outcomes(self, tasks: Iterable[Task], *, in_order: bool = False) -> Iterator[Finished | Failed]:
        """How each task ended, under the name of its item, as they end or in their order.

        Those that still run are ended with the loop.

        Raises:
            InputError: raised by a task.
            RunError: the cluster is gone, or for ten minutes no machine had a processor (and GPU) for a task.
        """
        given, remaining = 0, ((number, task, task.blocks(task.item)) for number, task in enumerate(tasks))
        following = next(remaining, None)
        try:
            while following is not None or self._held:
                if following is not None and self._fits(following[2]):
                    self._send(*following)
                    following = next(remaining, None)
                    continue
                self._wait()
                while self._ended and (not in_order or given in self._ended):
                    yield self._ended.pop(given if in_order else next(iter(self._ended)))
                    given += 1
        except ConnectionError as error:
            raise RunError(
                "the cluster is gone",
                received=first_line(error),
                advice="what was finished is kept: the same command with --resume goes on, on a cluster or without one",
            ) from error
        finally:
            for reference in self._running:
                with suppress(ConnectionError):
                    self._ray.cancel(reference, force=True)

    @property
    def _held(self) -> int:
        """Blocks with Ray, and outcomes that wait for those before them."""
        sent = (*self._ready, *self._running.values())
        return sum(max(1, len(one.blocks)) for one in sent) + len(self._ended)

    def _fits(self, blocks: Sequence[Any]) -> bool:
        return not self._held or self._held + max(1, len(blocks)) <= BLOCKS_PER_WORKER * self._at_once

    def _send(self, number: int, task: Task, blocks: Sequence[Any]) -> None:
        arguments = [*(shared.reference(self._ray) for shared in task.shared), *task.arguments]
        self._ready.append(_Sent(number, task, arguments, [self._ray.put(block) for block in blocks]))
        self._begin()

    def _begin(self) -> None:
        while self._ready and len(self._running) < self._at_once:
            sent = self._ready.popleft()
            work = (worker.versions(), self._gpus > 0, sent.task.work)
            self._running[self._remote.remote(*work, *sent.arguments, *sent.blocks)] = sent

    def _wait(self) -> None:
        """Until a task ends, or a second."""
        finished, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
        if finished or room(self._ray, self._gpus):
            self._room = time.monotonic()
        elif time.monotonic() - self._room > PATIENCE_S:
            raise RunError(
                "the cluster has no room for a task any more",
                received=f"no machine with a processor (and GPU) for {PATIENCE_S:.0f} s",
                advice="see `ray status`; what was finished is kept for --resume",
            )
        for reference in finished:
            sent = self._running.pop(reference)
            try:
                self._ended[sent.number] = Finished(sent.task.item, self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                self._failed(sent, error)
        self._begin()

    def _failed(self, sent: _Sent, error: Exception) -> None:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, InputError):
            raise cause from error
        self._losses[sent.number] += 1
        if isinstance(cause, self._ray.exceptions.ObjectLostError) and self._losses[sent.number] <= RETRIES:
            for shared in sent.task.shared:
                shared.forget()
            self._send(sent.number, sent.task, sent.task.blocks(sent.task.item))
        else:
            again = "" if isinstance(error, self._ray.exceptions.RayTaskError) else f" (tried {RETRIES + 1} times)"
            self._ended[sent.number] = Failed(sent.task.item, first_line(cause) + again)


def room(ray: Any, gpus: float) -> int:
    """How many tasks the machines of a cluster could do at once, were they idle."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = ((machine.get("CPU", 0.0), machine.get("GPU", 0.0)) for machine in machines)
    return sum(int(min(cpu, gpu / gpus) if gpus else cpu) for cpu, gpu in each)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
