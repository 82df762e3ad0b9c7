"""One pass of a model over the aligned units, shard by shard, that can be stopped and gone on with.

A shard is a run of whole documents; its units alone decide its batches. So it does not matter who reads it: this
process, one shard after another, or others (`ShardExecutor`), in any order. The sums are the same to the last bit where
the hardware computes the same.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from topicscope.errors import RunError
from topicscope.probing.attention import TopicLookup, WordPairs
from topicscope.probing.config import ProbeConfig
from topicscope.probing.execution.executor import LeftOut, ShardExecutor, ShardLost
from topicscope.probing.execution.state import (
    PassSpec,
    PassState,
    Shard,
    ShardReading,
    packed_shard,
    plan_shards,
)
from topicscope.probing.hf import ModelView
from topicscope.probing.results import DocumentTable
from topicscope.probing.statistics import PartMoments
from topicscope.probing.tokens import TokenCache, TokenWindows
from topicscope.progress import Progress, SilentProgress, note, tracked
from topicscope.topics import PairClass

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


@dataclass
class PassResult:
    """What a pass found in `documents` of `documents_planned` documents."""

    state: PassState
    documents_planned: int
    interrupted: bool = False
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """Documents counted."""
        return self.state.total.documents

    @property
    def moments(self) -> dict[str, PartMoments]:
        """Moments by part."""
        return self.state.total.moments

    @property
    def word_pairs(self) -> dict[str, WordPairs]:
        """Word pairs by part; empty unless asked for."""
        return self.state.total.word_pairs

    def whole(self) -> "PassResult":
        """This result; raises KeyboardInterrupt if Ctrl-C ended the pass."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    def document_table(self) -> DocumentTable:
        """Rows per document, where they were asked for."""
        assert self.state.rows is not None
        return self.state.rows.table()

    def pair_counts(self, lookup: TopicLookup) -> list[dict[str, object]]:
        """Pairs of every class, per part and configuration: what the ratios rest on and what they leave out."""
        return [
            {
                "part": name,
                "threshold": configuration.threshold,
                "topic_seed": configuration.topic_seed,
                **{k.name: int(part.counts(c)[k]) for k in PairClass},
                "words_with_topic": len(configuration.assignment.words),
                "words_with_topic_in_text": int(lookup.membership(c).any(1).sum()),
                "ambiguous_words_dropped": configuration.assignment.dropped_ambiguous,
            }
            for name, part in self.moments.items()
            for c, configuration in enumerate(lookup.configurations)
        ]


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
    plan = plan_shards(tokens.document_ends, shard_units(spec.options, device))
    state = PassState(view, folder, document_rows=spec.document_rows)
    result = PassResult(state, tokens.documents)
    ready = state.restore()
    if state.reading.units and (executor is not None or state.shards in ready):
        state.drop()
    with tracked(progress, spec.task, len(tokens), "units"):
        try:
            if executor is None:
                _read_here(view, tokens, spec, progress, state, plan, ready)
            else:
                _read_elsewhere(tokens, spec, progress, result, plan, ready, executor, weights_seed)
        except KeyboardInterrupt:
            if not state.shards and not state.reading.units:
                raise
            result.interrupted = True
            state.reading.close(state.rows, spec.lookup)
            state.fold()
    return result


def shard_units(options: ProbeConfig, device: str) -> int:
    """Least units of a shard on this device unless the user says so."""
    return options.shard_units or (CPU_UNITS if device == "cpu" else DEVICE_UNITS)


def shard_chunks(tokens: TokenCache, shard: Shard, read: int = 0) -> Iterator[Chunk]:
    """The chunks of a shard after its first `read` units."""
    for start in range(shard.start + read, shard.stop, UNITS_PER_CHUNK):
        end = min(start + UNITS_PER_CHUNK, shard.stop)
        yield tokens[start:end], tokens[end].document_id if end < shard.stop else None


def read_shard(view: ModelView, spec: PassSpec, chunks: Iterable[Chunk]) -> tuple[bytes, int, int]:
    """Read one shard: its content for `PassState.keep`, and the numbers of its documents and tokens."""
    view.paths.update(dict.fromkeys(view.paths, 0))
    reading, rows, tokens = ShardReading(), list[pd.DataFrame](), 0
    for chunk, more_of in chunks:
        reading.read(chunk, more_of, view, spec, rows if spec.document_rows else None, SilentProgress(), 0)
        tokens += int(chunk.lengths.sum())
    return packed_shard(view, reading, rows), reading.sums.documents, tokens


def _read_here(
    view: ModelView,
    tokens: TokenCache,
    spec: PassSpec,
    progress: Progress,
    state: PassState,
    plan: Sequence[Shard],
    ready: dict[int, Path],
) -> None:
    saved = time.monotonic()
    for shard in plan[state.shards :]:
        if shard.number in ready:
            state.fold_kept(ready[shard.number], number=shard.number)
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


def _read_elsewhere(
    tokens: TokenCache,
    spec: PassSpec,
    progress: Progress,
    result: PassResult,
    plan: Sequence[Shard],
    ready: dict[int, Path],
    executor: ShardExecutor,
    weights_seed: int | None,
) -> None:
    """Keep shards as they come, and count them in as soon as all before them are; a shard that is lost holds up those
    after it to the end."""
    state, started = result.state, time.monotonic()
    saved = started
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
                result.left_out.append(LeftOut(spec.task, outcome.reason, ids))
                if not done and len(result.left_out) == min(len(missing), GIVE_UP):
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
            note(progress, spec.task, rates | {"failed shards": float(len(result.left_out))})
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
