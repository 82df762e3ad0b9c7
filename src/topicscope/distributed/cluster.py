"""A cluster: it reads the shards of a probe (`probing.execution.ShardExecutor`) and does jobs (`runner.Runner`).

Ray carries everything: models, blocks of tokens and what is asked go out, sums and rows come back as results of tasks.
The driver alone reads and writes files.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from topicscope.distributed import worker
from topicscope.distributed.connection import connected
from topicscope.distributed.tasks import Shared, Task, Tasks, room
from topicscope.errors import InputError, RunError
from topicscope.probing.execution import Chunk, ModelSource, PassSpec, Shard, ShardLost, ShardRead, shard_chunks
from topicscope.probing.hf import ModelView, model_files
from topicscope.probing.tokens import AlignedUnit, Coverage, TokenCache
from topicscope.runner import Failed, Finished, Job
from topicscope.text import Unit

# At 16 bytes each, and some more for documents and words: less than 64 MB.
TOKENS_PER_BLOCK = 3_000_000


class Cluster:
    """Workers of a Ray cluster; a context manager, to be handed to `topicscope.probe(…, cluster=…)` and `sweep`.

    address: "local" for processes of this machine, "auto" for the cluster that this machine belongs to, or
    "ray://HOST:PORT". workers: how many tasks run, and models are held, at once; as many as there is room for unless
    given. gpus_per_worker: 0 to compute on CPUs, one core each; else GPUs of each, which may be a fraction of one.

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
        self._end = ExitStack()

    def __enter__(self) -> "Cluster":
        with ExitStack() as stack:
            self._ray = stack.enter_context(connected(self.address, self.workers))
            if self.gpus_per_worker and not room(self._ray, self.gpus_per_worker):
                raise InputError(
                    "the cluster has no GPU for a worker",
                    received=f"--gpus-per-worker {self.gpus_per_worker:g}",
                    expected="at most the GPUs of one machine of the cluster, and a processor beside them",
                    advice="leave out --gpus-per-worker to compute on CPUs, or add machines with GPUs",
                )
            self._end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()

    def run(self, work: Callable[..., Any], jobs: Sequence[Job]) -> Iterator[Finished | Failed]:
        """See `runner.Runner.run`; a job whose worker or machine dies is begun again."""
        tasks = (Task(job.name, work, job.arguments) for job in jobs)
        return self._tasks(self.gpus_per_worker).outcomes(tasks)

    def align(
        self,
        tokenizer: PreTrainedTokenizerBase,
        blocks: Iterator[Sequence[Unit]],
        *,
        max_length: int,
        pieces: Literal["skip", "merge"],
    ) -> Iterator[tuple[list[AlignedUnit], Coverage]]:
        """What `align_units` gives for each block of units, in their order; few blocks are in memory at a time.

        Raises:
            InputError: as `align_units`.
            RunError: a block could not be done.
        """
        shared = (Shared(lambda: tokenizer),)
        tasks = (Task(units, worker.align, (max_length, pieces), shared, _only) for units in blocks)
        for outcome in self._tasks(gpus=0.0).outcomes(tasks, in_order=True):
            if isinstance(outcome, Failed):
                raise RunError(
                    "text could not be tokenised on the cluster",
                    received=outcome.reason,
                    advice="run without --cluster",
                )
            yield outcome.value

    def open(self, source: ModelSource, view: ModelView, tokens: TokenCache) -> None:
        """See `ShardExecutor.open`; a model folder goes to the cluster once, any other model by its name."""
        folder = Path(source.name)

        def sent() -> worker.SentModel:
            files = model_files(folder, view) if folder.is_dir() else {}
            arrays = {name: np.frombuffer(content, dtype=np.uint8) for name, content in files.items()}
            return worker.SentModel(source, arrays, tokens[:1])

        self._model, self._text = Shared(sent), tokens

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard]
    ) -> Iterator[ShardRead | ShardLost]:
        """See `ShardExecutor.read`; in the order in which workers finish.

        Raises:
            InputError: a worker has no such model, another one under its name, or other versions.
            RunError: the cluster is gone, or has no room.
        """
        shared, arguments = (self._model, Shared(lambda: spec)), (self.device, weights_seed)
        tasks = (Task(shard, worker.read, arguments, shared, self._blocks) for shard in shards)
        for outcome in self._tasks(self.gpus_per_worker).outcomes(tasks):
            if isinstance(outcome, Failed):
                yield ShardLost(outcome.name, outcome.reason)
            else:
                yield ShardRead(outcome.name, *outcome.value)

    def _tasks(self, gpus: float) -> Tasks:
        assert self._ray is not None, "a cluster is used inside its with-block"
        return Tasks(self._ray, self.workers or max(1, room(self._ray, gpus)), gpus)

    def _blocks(self, shard: Shard) -> list[list[Chunk]]:
        return list(blocks_of(shard_chunks(self._text, shard)))


def blocks_of(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """The chunks of a shard in blocks of at most `TOKENS_PER_BLOCK`."""
    block, tokens = list[Chunk](), 0
    for chunk in chunks:
        more = len(chunk[0].input_ids)
        if block and tokens + more > TOKENS_PER_BLOCK:
            yield block
            block, tokens = [], 0
        block.append(chunk)
        tokens += more
    yield block


def _only(block: Any) -> Sequence[Any]:
    return (block,)
