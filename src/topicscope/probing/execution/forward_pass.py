"""One pass of a model over the aligned units, shard by shard, that can be stopped and gone on with.

A shard is a run of whole documents; its units alone decide its batches. So it does not matter who reads it: this
process, one shard after another, or others (`ShardExecutor`), in any order. The sums are the same to the last bit where
the hardware computes the same.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from topicscope.errors import RunError
from topicscope.probing.attention import WordPairs
from topicscope.probing.execution.state import (
    PassSpec,
    PassState,
    Shard,
    ShardReading,
    plan_shards,
)
from topicscope.probing.hf import ModelView
from topicscope.probing.results import DocumentTable, pack_state, packed_rows
from topicscope.probing.statistics import PartMoments
from topicscope.probing.tokens import Aligner, TokenCache, TokenWindows
from topicscope.progress import Progress, SilentProgress, note, tracked

# Units are read in chunks of this many: enough to sort by length, little enough to lose.
UNITS_PER_CHUNK = 256
# At most so much work is lost by a kill, and a chunk; on a cluster, the shards under way.
SECONDS_PER_SHARD = 60.0
# So many shards that could not be read, and none that could, are no bad luck.
GIVE_UP = 10
# Least units of a shard: some ten seconds to minutes of work.
CPU_UNITS, DEVICE_UNITS = 4_096, 65_536

# Units, and the document of the unit after them in the shard.
Chunk = tuple[TokenWindows, str | None]


class ModelSource(NamedTuple):
    """Where a model comes from: the arguments of `load_model`, and the hash of the weights that must be found."""

    name: str
    dtype: str | None
    revision: str | None
    trust_remote_code: str | None
    weights_hash: str


class ShardRead(NamedTuple):
    """A shard that was read, as `read_shard` gives it: its content, and the numbers of its documents and tokens."""

    shard: Shard
    data: bytes
    documents: int
    tokens: int


class ShardLost(NamedTuple):
    """A shard that could not be read."""

    shard: Shard
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Documents that a pass could not read, and why."""

    task: str
    reason: str
    documents: tuple[str, ...]

    def warning(self, documents: int) -> str:
        """One line, of a text of so many documents, with the first of the ids that were left out."""
        some = ", ".join(self.documents[:5]) + (", …" if len(self.documents) > 5 else "")
        return (
            f"{self.task}: {len(self.documents)} of {documents} documents were left out ({some}): {self.reason}; "
            "--resume tries them again"
        )


@runtime_checkable
class ShardExecutor(Aligner, Protocol):
    """Who tokenizes text and reads shards in place of this process; `device`: where the model computes there."""

    device: str

    def open(self, source: ModelSource, view: ModelView, tokens: TokenCache) -> None:
        """Get ready to read these tokens with this model, which `view` holds here."""

    def read(
        self, spec: PassSpec, weights_seed: int | None, shards: Sequence[Shard]
    ) -> Iterator[ShardRead | ShardLost]:
        """Every shard once, in any order.

        weights_seed: the seed of the random initialisation that reads; None: the model itself.
        """


@dataclass(frozen=True)
class PassResult:
    """What a pass found in `documents` of `documents_planned` documents.

    moments: by part. word_pairs, document_table: by part, and by document; empty unless asked for.
    """

    documents: int
    documents_planned: int
    moments: dict[str, PartMoments]
    word_pairs: dict[str, WordPairs]
    document_table: DocumentTable
    interrupted: bool
    left_out: list[LeftOut]

    def whole(self) -> "PassResult":
        """This result; raises KeyboardInterrupt if Ctrl-C ended the pass."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self


def attention_pass(
    view: ModelView,
    tokens: TokenCache,
    spec: PassSpec,
    progress: Progress,
    *,
    folder: Path | None = None,
    executor: ShardExecutor | None = None,
    weights_seed: int | None = None,
) -> PassResult:
    """Read every unit of the text once.

    Ctrl-C keeps the finished chunks (the document under way counts with what was read of it); before the first one it
    is raised. folder: where the state is kept; a pass goes on from the state found there, to the same numbers.
    executor: who reads instead; shards that could not be read are `left_out`, and tried again when the pass goes on.
    weights_seed: with `executor`, the seed of the random initialisation that `view` is.

    Raises:
        InputError: the state in `folder` is damaged.
        RunError: the executor could not read a single shard.
    """
    device = view.device if executor is None else executor.device
    least = spec.options.shard_units or (CPU_UNITS if device == "cpu" else DEVICE_UNITS)
    plan = plan_shards(tokens.document_ends, least)
    state = PassState(view, folder, document_rows=spec.document_rows)
    left_out: list[LeftOut] = []
    interrupted = False
    if state.reading.units and (executor is not None or state.shards in state.ready):
        state.drop()
    with tracked(progress, spec.task, len(tokens), "units"):
        try:
            if executor is None:
                saved = time.monotonic()
                for shard in plan[state.shards :]:
                    if shard.number in state.ready:
                        state.fold_kept(state.ready[shard.number], number=shard.number)
                        progress.update(spec.task, shard.stop)
                        continue
                    for chunk, more_of in shard_chunks(tokens, shard, state.reading.units):
                        done = shard.start + state.reading.units
                        state.reading.read(chunk, more_of, view, spec, state.rows, progress, done)
                        if time.monotonic() - saved >= SECONDS_PER_SHARD:
                            state.save()
                            saved = time.monotonic()
                    state.fold()
                state.save()
            else:
                _read_elsewhere(tokens, spec, progress, state, plan, executor, weights_seed, left_out)
        except KeyboardInterrupt:
            if not state.shards and not state.reading.units:
                raise
            interrupted = True
            state.reading.close(state.rows, spec.lookup)
            state.fold()
    return PassResult(
        documents=state.total.documents,
        documents_planned=tokens.documents,
        moments=state.total.moments,
        word_pairs=state.total.word_pairs,
        document_table=DocumentTable([]) if state.rows is None else state.rows.table(),
        interrupted=interrupted,
        left_out=left_out,
    )


def shard_chunks(tokens: TokenCache, shard: Shard, read: int = 0) -> Iterator[Chunk]:
    """The chunks of a shard after its first `read` units."""
    for start in range(shard.start + read, shard.stop, UNITS_PER_CHUNK):
        end = min(start + UNITS_PER_CHUNK, shard.stop)
        yield tokens[start:end], tokens[end].document_id if end < shard.stop else None


def read_shard(view: ModelView, spec: PassSpec, chunks: Iterable[Chunk]) -> tuple[bytes, int, int]:
    """Read one shard: its content for `PassState.keep`, and the numbers of its documents and tokens.

    The content of a file: its sums, its rows, and how its batches were read.
    """
    view.paths.update(dict.fromkeys(view.paths, 0))
    reading, rows, tokens = ShardReading(), list[pd.DataFrame](), 0
    for chunk, more_of in chunks:
        reading.read(chunk, more_of, view, spec, rows if spec.document_rows else None, SilentProgress(), 0)
        tokens += int(chunk.lengths.sum())
    arrays = reading.arrays("reading") | {f"paths/{way}": np.array(batches) for way, batches in view.paths.items()}
    if rows:
        arrays["documents"] = packed_rows(rows)
    return pack_state(arrays), reading.sums.documents, tokens


def _read_elsewhere(
    tokens: TokenCache,
    spec: PassSpec,
    progress: Progress,
    state: PassState,
    plan: Sequence[Shard],
    executor: ShardExecutor,
    weights_seed: int | None,
    left_out: list[LeftOut],
) -> None:
    """Keep shards as they come, and count them in as soon as all before them are; a shard that is lost holds up those
    after it to the end."""
    started = saved = time.monotonic()
    ready = state.ready
    missing = [shard for shard in plan[state.shards :] if shard.number not in ready]
    done = len(tokens) - sum(shard.stop - shard.start for shard in missing)
    documents = read_tokens = 0

    def count_in() -> None:
        while state.shards in ready:
            state.fold_kept(ready.pop(state.shards), number=state.shards)

    try:
        for outcome in executor.read(spec, weights_seed, missing):
            if isinstance(outcome, ShardLost):
                ids = tuple(dict.fromkeys(tokens[outcome.shard.start : outcome.shard.stop].document_ids))
                left_out.append(LeftOut(spec.task, outcome.reason, ids))
                if not done and len(left_out) == min(len(missing), GIVE_UP):
                    raise RunError(
                        "not one shard of the text could be read",
                        received=outcome.reason,
                        where=spec.task,
                        advice="see whether workers have the model, the same versions and enough memory, then --resume",
                    )
            else:
                ready[outcome.shard.number] = state.keep(outcome.shard.number, outcome.data)
                done += outcome.shard.stop - outcome.shard.start
                documents, read_tokens = documents + outcome.documents, read_tokens + outcome.tokens
            seconds = max(time.monotonic() - started, 1e-3)
            rates = {"documents/s": documents / seconds, "tokens/s": read_tokens / seconds}
            note(progress, spec.task, rates | {"failed shards": float(len(left_out))})
            progress.update(spec.task, done)
            count_in()
            if time.monotonic() - saved >= SECONDS_PER_SHARD:
                state.save()
                saved = time.monotonic()
    finally:
        count_in()
        state.save()
        # Beyond a gap: counted in this result only, and kept where it is for a run that fills the gap.
        for number in sorted(ready):
            state.fold_kept(ready[number], number=number)
