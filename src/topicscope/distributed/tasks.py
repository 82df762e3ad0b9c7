"""Independent jobs on a cluster (`runner.Runner`): one Ray task each, few at once, tried again where one fails."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from topicscope.distributed.pool import PATIENCE_S, TRIES, first_line
from topicscope.errors import InputError, RunError
from topicscope.runner import Failed, Finished, Job


def run_tasks(
    ray: Any, work: Callable[..., Any], jobs: Sequence[Job], *, at_once: int, gpus: float
) -> Iterator[Finished | Failed]:
    """See `runner.Runner.run`. A job that raises, or whose worker or machine dies, is tried again after all others.

    at_once: tasks handed to Ray at a time, so that thousands of jobs lie neither in its queue nor in memory.
    gpus: of each task, which takes one processor as well.

    Raises:
        InputError: raised by a job; whatever still runs is ended, as by any other way out of the loop.
        RunError: for ten minutes no machine had a processor (and GPU) for a job.
    """
    assert "<" not in work.__qualname__, "only a function of a module can be named on another machine"
    assert len({job.name for job in jobs}) == len(jobs), "jobs are told apart by their names"
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(call)
    waiting, tries, running = deque(jobs), Counter[str](), dict[Any, Job]()
    room = time.monotonic()  # when there last was any
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.popleft()
                running[task.remote(work, job.arguments)] = job
            finished, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            if finished or _has_room(ray, gpus):
                room = time.monotonic()
            elif time.monotonic() - room > PATIENCE_S:
                raise RunError(
                    "the cluster has no room for a job any more",
                    received=f"no machine with a processor (and GPU) for {PATIENCE_S:.0f} s",
                    advice="see `ray status`; what was finished is kept for --resume",
                )
            for reference in finished:
                job = running.pop(reference)
                try:
                    value = ray.get(reference)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None)
                    if isinstance(cause, InputError):
                        raise cause from error
                    failure = first_line(error)
                else:
                    yield Finished(job.name, value)
                    continue
                tries[job.name] += 1
                if tries[job.name] < TRIES:
                    waiting.append(job)
                else:
                    yield Failed(job.name, f"{failure} (tried {TRIES} times)")
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _has_room(ray: Any, gpus: float) -> bool:
    """Whether some machine could do a job, were it idle."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return any(node.get("CPU", 0.0) >= 1 and node.get("GPU", 0.0) >= gpus for node in nodes)


def call(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a task does: the job, with one thread, so that its numbers do not depend on the machine's processors."""
    import torch

    torch.set_num_threads(1)
    return work(*arguments)
