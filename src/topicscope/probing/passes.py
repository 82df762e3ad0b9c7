"""One pass of a model over the aligned units, chunk by chunk, that can be stopped and gone on with."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.probing.alignment import AlignedUnit
from topicscope.probing.attention import PartSums, sum_attention
from topicscope.probing.batches import Batch, make_batches, tokens_at_once
from topicscope.probing.lookup import TopicLookup
from topicscope.probing.model import ModelView
from topicscope.probing.moments import PartMoments
from topicscope.probing.options import ProbeOptions
from topicscope.probing.shards import DocumentShards, load_state, save_state
from topicscope.probing.table import document_rows
from topicscope.probing.word_pairs import WordPairs
from topicscope.progress import Progress, tracked
from topicscope.topics.pairs import PairClass

# Units are read in chunks of this many: enough to sort by length, little enough to lose.
UNITS_PER_CHUNK = 256
# At most so much work is lost by a kill, and a chunk.
SECONDS_PER_SHARD = 60.0


@dataclass
class OpenDocument:
    """A document of which a chunk held only the beginning: its sums so far, one row for each part."""

    document_id: str
    units: int
    tokens: int
    sums: list[PartSums]


@dataclass
class PassResult:
    """Moments per part over `documents` documents, `units` units of `documents_planned` documents."""

    documents_planned: int
    documents: int = 0
    units: int = 0
    interrupted: bool = False
    moments: dict[str, PartMoments] = field(default_factory=dict)
    word_pairs: dict[str, WordPairs] = field(default_factory=dict)
    open: OpenDocument | None = None

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

    def add(self, sums: Sequence[PartSums], documents: int) -> None:
        """Count whole documents in."""
        if not documents:
            return
        for part in sums:
            moments, name = PartMoments.of(part), part.part.name
            self.moments[name] = self.moments[name] + moments if name in self.moments else moments
        self.documents += documents


def attention_pass(
    view: ModelView,
    units: Sequence[AlignedUnit],
    documents: int,
    lookup: TopicLookup,
    options: ProbeOptions,
    task: str,
    progress: Progress,
    *,
    shards: DocumentShards | None = None,
    folder: Path | None = None,
    word_pairs: bool = False,
    exclude_sinks: bool = False,
) -> PassResult:
    """Read every unit once; the units of one document stand together in `units`.

    A chunk may end inside a document: its sums wait in `open` for the rest, so that each document enters the moments
    as one cluster. Ctrl-C keeps the finished chunks (the document under way counts with what was read of it); before
    the first one it is raised. shards: where rows per document go. word_pairs: collect these for shuffles.
    exclude_sinks: see `sum_attention`. folder:
    where the state is kept; a pass goes on from the state found there, to the same numbers, since moments are added
    chunk by chunk in one order.

    Raises:
        InputError: the state in `folder` is damaged.
    """
    result = PassResult(documents)
    if folder is not None:
        folder.mkdir(exist_ok=True)
        _restore(result, folder, view, shards)
    saved = time.monotonic()
    with tracked(progress, task, len(units), "units"):
        try:
            while result.units < len(units):
                chunk = units[result.units : result.units + UNITS_PER_CHUNK]
                end = result.units + len(chunk)
                more_of = units[end].document_id if end < len(units) else None
                _read(result, chunk, more_of, view, lookup, options, shards, task, progress, word_pairs, exclude_sinks)
                if folder is not None and (more_of is None or time.monotonic() - saved >= SECONDS_PER_SHARD):
                    _save(result, folder, view, shards)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not result.units:
                raise
            result.interrupted = True
            if result.open is not None:
                _close(result, shards, lookup)
    return result


def _read(
    result: PassResult,
    chunk: Sequence[AlignedUnit],
    more_of: str | None,
    view: ModelView,
    lookup: TopicLookup,
    options: ProbeOptions,
    shards: DocumentShards | None,
    task: str,
    progress: Progress,
    word_pairs: bool,
    exclude_sinks: bool,
) -> None:
    """One chunk; nothing of `result` changes before the whole of it is read. more_of: document of the unit after it."""
    ids = list(dict.fromkeys(unit.document_id for unit in chunk))
    index = {document_id: i for i, document_id in enumerate(ids)}
    document_of = np.array([index[unit.document_id] for unit in chunk])
    most = options.batch_tokens or tokens_at_once(view.device)
    batches = make_batches(chunk, batch_size=options.batch_size, max_tokens=most, pad_side=options.padding)
    reported = _reporting(batches, progress, task, result.units)
    sums = sum_attention(view, reported, chunk, document_of, lookup, word_pairs=word_pairs, exclude_sinks=exclude_sinks)
    units = np.bincount(document_of)
    tokens = np.bincount(document_of, weights=[len(u.input_ids) for u in chunk]).astype(np.int64)
    waiting = result.open
    if waiting is not None:
        assert waiting.document_id == ids[0], "the units of a document stand together"
        for part, begun in zip(sums, waiting.sums, strict=True):
            for name, array in _arrays(part).items():
                array[:1] += _arrays(begun)[name]
        units[0] += waiting.units
        tokens[0] += waiting.tokens
    whole = len(ids) - (more_of == ids[-1])
    result.open = None
    if whole < len(ids):
        begun_sums = [_rows(part, slice(whole, None)) for part in sums]
        result.open = OpenDocument(ids[whole], int(units[whole]), int(tokens[whole]), begun_sums)
    finished = [_rows(part, slice(0, whole)) for part in sums]
    result.add(finished, whole)
    if shards is not None and whole:
        shards.append(
            document_rows(finished, ids[:whole], units[:whole].tolist(), tokens[:whole].tolist(), lookup.configurations)
        )
    for part in sums if word_pairs else ():
        # Not by document, so it does not matter where the chunk ends.
        result.word_pairs.setdefault(part.part.name, WordPairs()).merge(part.word_pairs)
    result.units += len(chunk)


def _close(result: PassResult, shards: DocumentShards | None, lookup: TopicLookup) -> None:
    """Count the document under way with what was read of it."""
    waiting, result.open = result.open, None
    assert waiting is not None
    result.add(waiting.sums, 1)
    if shards is not None:
        ids, units, tokens = [waiting.document_id], [waiting.units], [waiting.tokens]
        shards.append(document_rows(waiting.sums, ids, units, tokens, lookup.configurations))


def _arrays(sums: PartSums) -> dict[str, np.ndarray]:
    """The arrays of sums, whose first axis is the document in all of them."""
    values = {f.name: getattr(sums, f.name) for f in fields(sums)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _rows(sums: PartSums, rows: slice) -> PartSums:
    changes: dict[str, Any] = {name: array[rows] for name, array in _arrays(sums).items()}
    return replace(sums, **changes)


def _save(result: PassResult, folder: Path, view: ModelView, shards: DocumentShards | None) -> None:
    if shards is not None:
        shards.flush()
    arrays = {
        "units": np.array(result.units),
        "documents": np.array(result.documents),
        "rows": np.array([] if shards is None else shards.rows, dtype=np.int64),
        **{f"paths/{way}": np.array(batches) for way, batches in view.paths.items()},
    }
    for name, moments in result.moments.items():
        arrays |= moments.arrays(f"moments/{name}")
    for name, pairs in result.word_pairs.items():
        arrays |= pairs.arrays(f"word_pairs/{name}")
    if result.open is not None:
        arrays["open"] = np.array([result.open.units, result.open.tokens])
        arrays["open_id"] = np.frombuffer(result.open.document_id.encode("utf-8"), dtype=np.uint8)
        for part in result.open.sums:
            arrays |= {f"open/{part.part.name}/{name}": array for name, array in _arrays(part).items()}
    save_state(folder, arrays)


def _restore(result: PassResult, folder: Path, view: ModelView, shards: DocumentShards | None) -> None:
    arrays = load_state(folder)
    if arrays is None:
        return
    result.units, result.documents = int(arrays["units"]), int(arrays["documents"])
    for way in view.paths:
        view.paths[way] = int(arrays[f"paths/{way}"])
    if shards is not None:
        shards.restore(arrays["rows"].tolist())
    for part in view.parts:
        if f"moments/{part.name}/documents" in arrays:
            result.moments[part.name] = PartMoments.from_arrays(arrays, f"moments/{part.name}")
        if f"word_pairs/{part.name}/key" in arrays:
            result.word_pairs[part.name] = WordPairs.from_arrays(arrays, f"word_pairs/{part.name}")
    if "open" in arrays:
        units, tokens = arrays["open"].tolist()
        sums = [_part_sums(arrays, part) for part in view.parts]
        result.open = OpenDocument(arrays["open_id"].tobytes().decode("utf-8"), units, tokens, sums)


def _part_sums(arrays: Mapping[str, np.ndarray], part: Any) -> PartSums:
    prefix = f"open/{part.name}/"
    names = {f.name for f in fields(PartSums)} - {"word_pairs"}
    found: dict[str, Any] = {name: arrays.get(prefix + name) for name in names}
    return PartSums(**found | {"part": part})


def _reporting(batches: Iterable[Batch], progress: Progress, task: str, done: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        done += len(batch.unit_index)
        progress.update(task, done)
