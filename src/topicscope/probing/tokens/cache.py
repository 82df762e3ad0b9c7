"""Tokenise once: the aligned windows of a corpus in one Arrow file on disk, of which a pass reads what it needs.

A folder holds `tokens.arrow`: one row a window, with the columns of `SCHEMA`, those of one document together wherever
its rows stood in the corpus. The metadata of its schema hold the vocabulary with its counts, where documents end, and
what was left out; these alone are held in memory. A file whose writer was killed has no end and is no Arrow file.

A cache is kept between runs, under a name that holds everything it was made of, where making it took a while; the least
recently used ones go when all together are too large.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from itertools import islice, pairwise, tee
from pathlib import Path
from typing import Literal, Protocol, overload, runtime_checkable

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from topicscope.errors import RunError
from topicscope.probing.config import ProbeConfig
from topicscope.probing.tokens.alignment import AlignedUnit, Coverage, align_units
from topicscope.probing.tokens.batches import LATER, NO_WORD, TokenWindows
from topicscope.progress import Progress
from topicscope.records import NUMBERS_VERSION, TOKENS, TemporaryFolder, cache_folder
from topicscope.text import Corpus, Unit, UnitCounts, UnitReader, WordSplitter, split_words

FILE, FORMAT = "tokens.arrow", 2
UNITS_PER_BLOCK = 1024
# Windows of one record batch, all of which are read where one is wanted.
ROWS = 256
KEPT_TOKENS = 500_000  # fewer are tokenised again in seconds
KEPT_BYTES = 20_000_000_000
# words: numbers of the vocabulary, or as in `TokenWindows`.
SCHEMA = pa.schema(
    {
        "document_id": pa.string(),
        "unit": pa.int64(),
        "window": pa.int32(),
        "input_ids": pa.list_(pa.uint32()),
        "words": pa.list_(pa.int32()),
    }
)


@runtime_checkable
class Aligner(Protocol):
    """Who tokenises in place of this process."""

    def align(
        self,
        tokenizer: PreTrainedTokenizerBase,
        blocks: Iterator[Sequence[Unit]],
        *,
        max_length: int,
        pieces: Literal["skip", "merge"],
    ) -> Iterator[tuple[list[AlignedUnit], Coverage]]:
        """What `align_units` gives for each block of units, in their order, with few blocks in memory at a time."""


def build_tokens(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    options: ProbeConfig,
    max_length: int,
    splitter: WordSplitter,
    progress: Progress,
    aligner: Aligner | None,
) -> None:
    """Write the windows of a corpus into `folder`; see `tokens_of` for the errors."""
    reader = UnitReader(corpus, options.unit, options.language, progress, splitter=splitter)
    units = reader.units() if options.max_units is None else iter(reader.sample(options.max_units, options.seed))
    # Blocks are handed out, and kept until what was found in them comes back.
    blocks, kept = tee(iter(lambda: list(islice(units, UNITS_PER_BLOCK)), []))
    if aligner is None or splitter is not split_words:
        found: Iterator[tuple[list[AlignedUnit], Coverage]] = (
            align_units(tokenizer, block, splitter=splitter, max_length=max_length, pieces=options.pieces)
            for block in blocks
        )
    else:
        found = aligner.align(tokenizer, blocks, max_length=max_length, pieces=options.pieces)

    # In the order of the corpus first, where rows of one document may stand apart. Runs of units with one document id
    # are numbered, and of each id as much is remembered as tells it from others.
    unordered = folder / "unordered.arrow"
    coverage, vocabulary, word_counts = Coverage(), dict[str, int](), np.zeros(0, dtype=np.int64)
    document_id, digests, run_of_window = None, bytearray(), [np.zeros(0, dtype=np.int64)]
    starts, first_unit = [0], 0
    with pa.OSFile(str(unordered), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for (aligned, counts), block in zip(found, kept, strict=False):
            windows = TokenWindows.of(aligned)
            numbers = [vocabulary.setdefault(word, len(vocabulary)) for word in windows.vocabulary]
            words = np.array([*numbers, LATER, NO_WORD])[windows.words]
            ends = np.append(0, np.cumsum(windows.lengths)).astype(np.int32)
            columns = [
                pa.array(windows.document_ids, pa.string()),
                pa.array(windows.unit + first_unit, pa.int64()),
                pa.array(windows.window.astype(np.int32)),
                pa.ListArray.from_arrays(ends, windows.input_ids.astype(np.uint32)),
                pa.ListArray.from_arrays(ends, words.astype(np.int32)),
            ]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            occurrences = np.bincount(words[words >= 0], minlength=len(vocabulary))
            occurrences[: len(word_counts)] += word_counts
            word_counts = occurrences
            run_of_unit = []
            for unit in block:
                if unit.document_id != document_id:
                    document_id = unit.document_id
                    digests += hashlib.blake2b(document_id.encode("utf-8"), digest_size=16).digest()
                run_of_unit.append(len(digests) // 16 - 1)
            run_of_window.append(np.array(run_of_unit)[windows.unit])
            starts.append(starts[-1] + len(windows))
            coverage += counts
            first_unit += len(block)

    # Then document by document: each has the number of its first run.
    _, first, inverse = np.unique(np.frombuffer(digests, "S16"), return_index=True, return_inverse=True)
    reader.counts.documents_kept = len(first)
    document = first[inverse][np.concatenate(run_of_window)]
    order = np.argsort(document, kind="stable")
    header = {"unit_counts": asdict(reader.counts), "coverage": asdict(coverage), "words": list(vocabulary)}
    metadata = {
        "header": json.dumps(header).encode(),
        "word_counts": word_counts.tobytes(),
        "document_ends": (np.flatnonzero(np.diff(document[order], append=-1)) + 1).tobytes(),
    }
    schema = SCHEMA.with_metadata(metadata)
    batches = pa.ipc.open_file(pa.OSFile(str(unordered)))
    with pa.OSFile(str(folder / FILE), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
            runs = [_rows(batches, np.array(starts), int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(cuts)]
            writer.write_table(pa.concat_tables(runs).combine_chunks())
    unordered.unlink()


def _rows(batches: pa.ipc.RecordBatchFileReader, starts: np.ndarray, start: int, stop: int) -> pa.Table:
    """Rows `start` to `stop` of an Arrow file, read from disk: nothing is mapped into this process's memory.

    starts [batch]: the first row of each record batch.
    """
    first, last = np.searchsorted(starts, [start, stop - 1], side="right") - 1
    table = pa.Table.from_batches([batches.get_batch(number) for number in range(first, last + 1)])
    return table.slice(start - int(starts[first]), stop - start)


class TokenCache(Sequence[AlignedUnit]):
    """The windows of a corpus, those of one document together; every access reads from disk.

    words: the words of the text that are tokens, in the order of the text; word_counts int64 [word]: how often each.
    document_ends int64 [document]: where the windows of each document end, of those that have any; documents: how many.
    unit_counts, coverage: what was left out.

    Raises:
        ValueError, KeyError, OSError: there is no whole file in the folder.
    """

    def __init__(self, folder: Path, owner: TemporaryFolder | None = None) -> None:
        self.folder, self._owner = folder, owner
        self._batches = pa.ipc.open_file(pa.OSFile(str(folder / FILE)))
        metadata = self._batches.schema.metadata
        header = json.loads(metadata[b"header"])
        self.words: tuple[str, ...] = tuple(header["words"])
        self.unit_counts = UnitCounts(**header["unit_counts"] | {"warnings": tuple(header["unit_counts"]["warnings"])})
        self.coverage = Coverage(**header["coverage"])
        self.word_counts = np.frombuffer(metadata[b"word_counts"], dtype=np.int64)
        self.document_ends = np.frombuffer(metadata[b"document_ends"], dtype=np.int64)
        self.documents = len(self.document_ends)
        self._starts = np.arange(0, len(self), ROWS)
        with suppress(OSError):
            os.utime(folder)  # in use: see `prune`

    def __len__(self) -> int:
        return int(self.document_ends[-1]) if len(self.document_ends) else 0

    @overload
    def __getitem__(self, index: int) -> AlignedUnit: ...
    @overload
    def __getitem__(self, index: slice) -> TokenWindows: ...
    def __getitem__(self, index: int | slice) -> AlignedUnit | TokenWindows:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self[places : places + 1][0]
        assert places.step == 1, "windows are read one after another"
        if not places:
            return TokenWindows.of([])
        table = _rows(self._batches, self._starts, places.start, places.stop).combine_chunks()
        column = {name: table.column(name).chunk(0) for name in table.column_names}
        return TokenWindows(
            input_ids=column["input_ids"].flatten().to_numpy().astype(np.int64),
            words=column["words"].flatten().to_numpy().astype(np.int64),
            lengths=column["words"].value_lengths().to_numpy().astype(np.int64),
            document_ids=tuple(column["document_id"].to_pylist()),
            unit=column["unit"].to_numpy(),
            window=column["window"].to_numpy(),
            vocabulary=self.words,
        )


def tokens_of(
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    options: ProbeConfig,
    *,
    max_length: int,
    splitter: WordSplitter = split_words,
    progress: Progress,
    aligner: Aligner | None = None,
) -> TokenCache:
    """The windows that a model with this tokenizer reads of the corpus: from the cache, or made now.

    aligner: who tokenises instead of this process, unless words are split in a way of one's own.

    Raises:
        InputError: as `UnitReader`, `Corpus` and `align_units`.
        RunError: there is no room for the cache.
    """
    root = cache_folder() / "tokens"
    # A splitter of one's own has no name that says what it does.
    key = cache_key(tokenizer, corpus, options, max_length) if splitter is split_words else None
    kept = root / f"{key}-{FORMAT}" if key is not None else None
    if kept is not None and kept.is_dir():
        try:
            found = TokenCache(kept)
        except (OSError, ValueError, KeyError, TypeError):
            TOKENS.remove(kept)  # damaged
        else:
            found.unit_counts.skipped = dict(corpus.skipped)  # depends on the file, not only on its documents
            return found
    try:
        root.mkdir(parents=True, exist_ok=True)
        owner = TemporaryFolder(root)
    except OSError:  # the place of the cache cannot be written
        owner = TemporaryFolder()
    try:
        build_tokens(owner.path, tokenizer, corpus, options, max_length, splitter, progress, aligner)
    except OSError as error:
        raise RunError(
            "there is no room for the tokens",
            received=str(error),
            where=str(owner.path),
            advice="make room, or name a folder on another disk by the environment variable TOPICSCOPE_CACHE",
        ) from error
    cache = TokenCache(owner.path, owner)
    if kept is not None and cache.coverage.tokens >= KEPT_TOKENS and owner.path.parent == root:
        with suppress(OSError):  # another process has put its own there meanwhile
            owner.renamed(kept)
            prune(root, KEPT_BYTES)
            return TokenCache(kept)
    return cache


def cache_key(tokenizer: PreTrainedTokenizerBase, corpus: Corpus, options: ProbeConfig, max_length: int) -> str:
    """Hexadecimal name of everything that decides the content: tokenizer, text, units and versions."""
    backend = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else ""
    made_of = {
        "tokenizer": [hashlib.sha256(backend.encode()).hexdigest(), type(tokenizer).__name__, tokenizer.unk_token_id],
        "corpus": corpus.fingerprint(),
        "unit": [options.unit, options.language, options.max_units, options.seed if options.max_units else None],
        "pieces": options.pieces,
        "max_length": max_length,
        "numbers_version": NUMBERS_VERSION,
        "libraries": [version(name) for name in ("tokenizers", "sentencex", "regex")],
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]


def prune(root: Path, limit: int, *, unused_s: float = 86_400) -> None:
    """Remove the least recently used caches until at most `limit` bytes are left; one used within `unused_s` stays.

    A folder that holds anything else is no cache.
    """
    caches = [folder for folder in root.iterdir() if folder.is_dir() and not TOKENS.survey(folder).foreign]
    sizes = {folder: sum(f.stat().st_size for f in folder.iterdir()) for folder in caches}
    total, oldest = sum(sizes.values()), time.time() - unused_s
    used = {folder: folder.stat().st_mtime for folder in sizes}
    for folder in sorted(sizes, key=lambda f: used[f]):
        if total <= limit or used[folder] > oldest:
            return
        TOKENS.remove(folder)
        total -= sizes[folder]
