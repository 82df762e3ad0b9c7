"""A cluster: it reads the shards of a probe (`probing.execution.executor.Elsewhere`) and does jobs
(`runner.Runner`)."""

import math
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from topicscope.distributed.connection import connected
from topicscope.distributed.pool import TRIES, Pool
from topicscope.distributed.preflight import check_gpus, check_nodes
from topicscope.distributed.tasks import run_tasks
from topicscope.distributed.tokenizing import aligned_blocks
from topicscope.distributed.worker import Worker
from topicscope.errors import InputError
from topicscope.probing import ProbeOptions
from topicscope.probing.execution import ModelSource, PassSpec, Shard, ShardLost, ShardRead
from topicscope.probing.tokens import AlignedUnit, Coverage, TokenCache
from topicscope.runner import Failed, Finished, Job
from topicscope.text import Unit


class Cluster:
    """Workers of a Ray cluster; a context manager, to be handed to `topicscope.probe(…, cluster=…)` and the like.

    address: "local" for processes of this machine, "auto" for the cluster that this machine belongs to, or
    "ray://HOST:PORT". workers: how many models are held at once; as many as there is room for unless given.
    gpus_per_worker: 0 to compute on CPUs, one core each; else GPUs of each, which may be a fraction of one.

    Raises:
        InputError: on entering: Ray is missing, the cluster cannot be reached, or no machine has the GPUs.
    """

    def __init__(self, address: str = "local", *, workers: int | None = None, gpus_per_worker: float | int = 0) -> None:
        if workers is not None and workers < 1:
            raise InputError("bad option --workers", received=workers, expected="a number of at least 1")
        if not 0 <= gpus_per_worker < math.inf or (gpus_per_worker > 1 and gpus_per_worker % 1):
            raise InputError(
                "bad option --gpus-per-worker", received=gpus_per_worker, expected="0, a share of 1, or a whole number"
            )
        self.address, self.workers, self.gpus_per_worker = address, workers, float(gpus_per_worker)
        self.device = "cuda" if gpus_per_worker else "cpu"
        self._ray: Any = None
        self._pool: Pool | None = None
        self._end = ExitStack()

    def __enter__(self) -> "Cluster":
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self.address, self.workers))
            check_gpus(self._ray, self.gpus_per_worker)
            self._end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool = None
        self._end.close()

    def check(self, folder: Path) -> None:
        """Make sure that every machine has the versions of this one and can write to `folder`.

        Raises:
            InputError: names the machine.
        """
        assert self._ray is not None, "a cluster is used inside its with-block"
        check_nodes(self._ray, folder)

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        """See `runner.Runner.run`; at most `workers` at once, each job at most `TRIES` times."""
        assert self._ray is not None, "a cluster is used inside its with-block"
        return run_tasks(self._ray, work, jobs, at_once=self.workers or self._room(), gpus=self.gpus_per_worker)

    def align(
        self,
        tokenizer: PreTrainedTokenizerBase,
        blocks: Iterator[Sequence[Unit]],
        *,
        max_length: int,
        pieces: Literal["skip", "merge"],
    ) -> Iterator[tuple[list[AlignedUnit], Coverage]]:
        """What `align_units` gives for each block of units, in their order, done by as many tasks as there is room for.

        Raises:
            InputError: as `align_units`.
            RunError: a block was tried several times in vain.
        """
        room = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        at_once = min(self.workers or room, room)
        return aligned_blocks(self._ray, tokenizer, blocks, max_length=max_length, pieces=pieces, at_once=at_once)

    def open(self, source: ModelSource, tokens: TokenCache, options: ProbeOptions) -> None:
        """Start the workers with the model, and wait for the first of them.

        Raises:
            InputError: a worker cannot load the model, or finds other weights.
            RunError: no worker starts.
        """
        remote = self._ray.remote(num_cpus=1, num_gpus=self.gpus_per_worker, max_restarts=0)(_worker_class())
        arguments = (source, self.device, str(tokens.folder), options)
        self._pool = Pool(self._ray, lambda: remote.remote(*arguments), self.workers or self._room())
        self._pool.start()

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard], folder: Path
    ) -> Iterator[ShardRead | ShardLost]:
        """Every shard once, in the order in which workers finish them.

        A shard whose reading fails, or whose worker dies, is tried again after all others, `TRIES` times altogether.
        """
        assert self._pool is not None
        pool, name, sent = self._pool, secrets.token_hex(8), [self._ray.put(spec)]
        waiting, tries = deque(shards), Counter[int]()
        if waiting:
            pool.start()
        try:
            while waiting or pool.doing:
                while waiting:
                    shard = waiting[0]
                    place = folder / f"shard-{shard.number:05}.{secrets.token_hex(4)}"
                    if not pool.give((shard, place), name, sent, weights_seed, shard, str(place)):
                        break
                    waiting.popleft()
                for (shard, place), outcome, failure in pool.done(timeout=1.0):
                    if failure is None:
                        yield ShardRead(shard, place, *outcome)
                        continue
                    tries[shard.number] += 1
                    if tries[shard.number] < TRIES:
                        waiting.append(shard)
                    else:
                        yield ShardLost(shard, f"{failure} (tried {TRIES} times)")
        finally:
            pool.stop(busy_only=True)

    def _room(self) -> int:
        resources = self._ray.cluster_resources()
        if self.gpus_per_worker:
            return max(1, int(resources.get("GPU", 0) / self.gpus_per_worker))
        return max(1, int(resources.get("CPU", 1)))


def _worker_class() -> Any:

    return Worker
