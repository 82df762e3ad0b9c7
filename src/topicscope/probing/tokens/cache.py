"""Tokenise once: the aligned windows of a corpus as plain arrays on disk, of which a pass maps what it reads.

A folder holds

    input_ids.npy   uint32 [token]     the windows one after another
    words.npy       int32 [token]      index into words.json, -1 where the token is no word
    ends.npy        int64 [window]     where each window ends in the two
    unit.npy, window.npy  int64, int32 [window]  as in `AlignedUnit`
    run.npy         int64 [window]     the run of rows with one document id that the window belongs to
    order.npy       int64 [window]     the windows with those of one document together, wherever its rows stood
    ids.npy, id_ends.npy  uint8 [byte], int64 [run]  the document ids in UTF-8
    document_ends.npy  int64 [document]  where the windows of each document end in that order
    words.json, header.json            the vocabulary; counts and what the cache was made of

Nothing of it is held in memory but the vocabulary. A cache is kept between runs, under a name that holds everything it
was made of, where making it took a while; the least recently used ones go when all together are too large.

Arrays on disk that grow: what a `TokenCache` is written with, in plain .npy files.

Tokenise a corpus block by block, here or by others, into the arrays of a `TokenCache`.
"""

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, overload, runtime_checkable

import numpy as np
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError, RunError
from topicscope.probing.config import ProbeOptions
from topicscope.probing.tokens.alignment import AlignedUnit, Coverage, align_units
from topicscope.progress import Progress
from topicscope.records import NUMBERS_VERSION, TOKENS, TemporaryFolder, cache_folder, read_json, write_json
from topicscope.text import Corpus, Unit, UnitCounts, UnitReader, WordSplitter, split_words

NO_WORD = -1


def open_array(path: Path) -> np.ndarray:
    """The array of an .npy file, mapped from disk where there is anything to map."""
    # An empty file cannot be mapped.
    array: np.ndarray = np.load(path, mmap_mode="r" if path.stat().st_size > 4096 else None, allow_pickle=False)
    return array


class Columns:
    """The arrays of a cache while they grow."""

    def __init__(self, folder: Path) -> None:
        kinds = {"input_ids": "uint32", "words": "int32", "ends": "int64", "unit": "int64", "window": "int32"}
        kinds |= {"run": "int64", "ids": "uint8", "id_ends": "int64", "digests": "S16"}
        self._files = {name: _GrowingArray(folder / f"{name}.npy", np.dtype(kind)) for name, kind in kinds.items()}
        self._tokens, self._id_bytes, self._runs = 0, 0, 0
        self._document_id: str | None = None

    def __enter__(self) -> "Columns":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def run_of(self, unit: Unit) -> int:
        """The number of the unit's run of rows; a new one where the id differs from that of the unit before."""
        if unit.document_id != self._document_id:
            self._document_id, self._runs = unit.document_id, self._runs + 1
            name = unit.document_id.encode("utf-8")
            self._id_bytes += len(name)
            self._files["ids"].append(np.frombuffer(name, np.uint8))
            self._files["id_ends"].append([self._id_bytes])
            self._files["digests"].append([hashlib.blake2b(name, digest_size=16).digest()])
        return self._runs - 1

    def append(
        self, aligned: Sequence[AlignedUnit], first_unit: int, runs: Sequence[int], vocabulary: dict[str, int]
    ) -> None:
        """Add the windows of one block of units."""
        codes = [
            NO_WORD if word is None else vocabulary.setdefault(word, len(vocabulary))
            for window in aligned
            for word in window.words
        ]
        lengths = [len(window.input_ids) for window in aligned]
        self._files["input_ids"].append([token for window in aligned for token in window.input_ids])
        self._files["words"].append(codes)
        self._files["ends"].append(self._tokens + np.cumsum(lengths, dtype=np.int64))
        self._files["unit"].append([first_unit + window.unit for window in aligned])
        self._files["window"].append([window.window for window in aligned])
        self._files["run"].append([runs[window.unit] for window in aligned])
        self._tokens += sum(lengths)


class _GrowingArray:
    """A one-dimensional .npy file that is appended to; numpy leaves room in the header for the length to grow."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype, self._length = dtype, 0
        self._stream = open(path, "wb", buffering=1 << 16)  # noqa: SIM115 - closed by `Columns`
        self._write_header()
        self._header = self._stream.tell()

    def append(self, values: Sequence[Any] | np.ndarray) -> None:
        array = np.asarray(values, dtype=self._dtype)
        self._stream.write(array.tobytes())
        self._length += len(array)

    def close(self) -> None:
        self._stream.seek(0)
        self._write_header()
        assert self._stream.tell() == self._header
        self._stream.close()

    def _write_header(self) -> None:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(self._stream, header)


UNITS_PER_BLOCK = 1024


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
    options: ProbeOptions,
    max_length: int,
    splitter: WordSplitter,
    progress: Progress,
    aligner: Aligner | None,
) -> None:
    """Write the windows of a corpus into `folder`; see `token_cache` for the files and `tokens_of` for the errors."""
    reader = UnitReader(corpus, options.unit, options.language, progress, splitter=splitter)
    units = reader.units() if options.max_units is None else iter(reader.sample(options.max_units, options.seed))
    coverage, vocabulary = Coverage(), dict[str, int]()
    waiting = deque[list[Unit]]()

    def blocks() -> Iterator[list[Unit]]:
        while block := list(islice(units, UNITS_PER_BLOCK)):
            waiting.append(block)
            yield block

    with Columns(folder) as columns:
        number = 0
        if aligner is None or splitter is not split_words:
            found: Iterator[tuple[list[AlignedUnit], Coverage]] = (
                align_units(tokenizer, block, splitter=splitter, max_length=max_length, pieces=options.pieces)
                for block in blocks()
            )
        else:
            found = aligner.align(tokenizer, blocks(), max_length=max_length, pieces=options.pieces)
        for aligned, counts in found:
            block = waiting.popleft()
            runs = [columns.run_of(unit) for unit in block]
            coverage += counts
            columns.append(aligned, number, runs, vocabulary)
            number += len(block)
    documents = _group(folder)
    reader.counts.documents_kept = len(np.unique(documents))
    windows = open_array(folder / "run.npy")
    write_json(folder / "words.json", list(vocabulary))
    header = {
        "unit_counts": asdict(reader.counts),
        "coverage": coverage.as_dict(),
        "windows": len(windows),
        "documents": len(np.unique(documents[windows])),
    }
    write_json(folder / "header.json", header)


def _group(folder: Path) -> np.ndarray:
    """Write order.npy and document_ends.npy; returns the document of each run, numbered by first appearance."""
    digests = np.load(folder / "digests.npy")
    _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
    documents = first[inverse]  # the first run of the same id
    runs = open_array(folder / "run.npy")
    order = np.argsort(documents[runs], kind="stable")
    np.save(folder / "order.npy", order)
    grouped = documents[runs][order]
    np.save(folder / "document_ends.npy", np.flatnonzero(np.diff(grouped, append=-1)) + 1)
    (folder / "digests.npy").unlink()
    return np.asarray(documents)


KEPT_TOKENS = 500_000  # fewer are tokenised again in seconds
KEPT_BYTES = 20_000_000_000


class TokenCache(Sequence[AlignedUnit]):
    """The windows of a corpus, those of one document together; every access reads from disk.

    words: the words of the text that are tokens, in the order of the text. unit_counts, coverage: what was left out.
    documents: how many have at least one window.
    """

    def __init__(self, folder: Path, owner: TemporaryFolder | None = None) -> None:
        header = read_json(folder / "header.json")
        self.folder = folder
        self.words: tuple[str, ...] = tuple(read_json(folder / "words.json"))
        self.unit_counts = UnitCounts(**header["unit_counts"] | {"warnings": tuple(header["unit_counts"]["warnings"])})
        self.coverage = Coverage(**header["coverage"])
        self.documents: int = header["documents"]
        self._windows: int = header["windows"]
        self._owner = owner  # a temporary folder lives as long as this object

    def __len__(self) -> int:
        return self._windows

    @overload
    def __getitem__(self, index: int) -> AlignedUnit: ...

    @overload
    def __getitem__(self, index: slice) -> list[AlignedUnit]: ...

    def __getitem__(self, index: int | slice) -> AlignedUnit | list[AlignedUnit]:
        if isinstance(index, slice):
            return self._read(range(*index.indices(len(self))))
        return self._read(range(len(self))[index : index + 1 or None])[0]

    def word_counts(self) -> np.ndarray:
        """How often each of `words` occurs, int64 [word]."""
        counts = np.zeros(len(self.words), dtype=np.int64)
        codes = self._map("words")
        for start in range(0, len(codes), 1 << 20):
            some = np.asarray(codes[start : start + (1 << 20)])
            counts += np.bincount(some[some >= 0], minlength=len(counts))
        return counts

    def document_ends(self) -> np.ndarray:
        """Where the windows of each document end, int64 [document], ascending."""
        return np.asarray(self._map("document_ends"))

    def is_whole(self) -> bool:
        """Whether every array has the length that it should have."""
        tokens = {self.coverage.tokens, *(len(self._map(name)) for name in ("input_ids", "words"))}
        windows = {len(self), *(len(self._map(name)) for name in ("ends", "unit", "window", "run", "order"))}
        whole = len(tokens) == len(windows) == 1 and len(self._map("document_ends")) == self.documents
        return whole and len(self._map("ids")) == int(self._map("id_ends")[-1:].sum())

    def _read(self, places: range) -> list[AlignedUnit]:
        # Mapped anew on each call: pages once touched would otherwise count as this process's memory for good.
        ids, words, ends = self._map("input_ids"), self._map("words"), self._map("ends")
        units, windows, runs = self._map("unit"), self._map("window"), self._map("run")
        id_bytes, id_ends = self._map("ids"), self._map("id_ends")
        with suppress(OSError):
            os.utime(self.folder)  # in use: see `prune`
        found = []
        for w in self._map("order")[places.start : places.stop : places.step].tolist():
            tokens = slice(int(ends[w - 1]) if w else 0, int(ends[w]))
            run = int(runs[w])
            name = id_bytes[int(id_ends[run - 1]) if run else 0 : int(id_ends[run])]
            found.append(
                AlignedUnit(
                    document_id=name.tobytes().decode("utf-8"),
                    unit=int(units[w]),
                    window=int(windows[w]),
                    input_ids=tuple(ids[tokens].tolist()),
                    words=tuple(None if c == NO_WORD else self.words[c] for c in words[tokens].tolist()),
                )
            )
        return found

    def _map(self, name: str) -> np.ndarray:
        return open_array(self.folder / f"{name}.npy")


def tokens_of(
    tokenizer: PreTrainedTokenizerBase,
    corpus: Corpus,
    options: ProbeOptions,
    *,
    max_length: int,
    splitter: WordSplitter = split_words,
    progress: Progress,
    folder: Path | None = None,
    aligner: Aligner | None = None,
) -> TokenCache:
    """The windows that a model with this tokenizer reads of the corpus: from the cache, or made now.

    folder: where they are kept in place of the cache, and taken from if they are there. aligner: who tokenises
    instead of this process, unless words are split in a way of one's own.

    Raises:
        InputError: as `UnitReader`, `Corpus` and `align_units`.
        RunError: there is no room for the cache.
    """
    root = cache_folder() / "tokens" if folder is None else folder.parent
    # A splitter of one's own has no name that says what it does.
    key = cache_key(tokenizer, corpus, options, max_length) if splitter is split_words else None
    kept = folder or (root / key if key is not None else None)
    if kept is not None and kept.is_dir():
        found = _usable(kept)
        if found is not None:
            found.unit_counts.skipped = dict(corpus.skipped)  # depends on the file, not only on its documents
            return found
    owner = _building(root)
    try:
        build_tokens(owner.path, tokenizer, corpus, options, max_length, splitter, progress, aligner)
    except OSError as error:
        raise RunError(
            "there is no room for the tokens",
            received=str(error),
            where=str(owner.path),
            advice="make room, or name a folder on another disk by the environment variable TOPICSCOPE_CACHE",
        ) from error
    if folder is not None:
        owner.renamed(folder)
        return TokenCache(folder)
    cache = TokenCache(owner.path, owner)
    if kept is not None and cache.coverage.tokens >= KEPT_TOKENS and owner.path.parent == root:
        with suppress(OSError):  # another process has put its own there meanwhile
            owner.renamed(kept)
            prune(root, KEPT_BYTES)
            return TokenCache(kept)
    return cache


def _usable(folder: Path) -> TokenCache | None:
    """The cache in a folder; one that is damaged is removed."""
    try:
        cache = TokenCache(folder)
        if cache.is_whole():
            return cache
    except (OSError, ValueError, KeyError, TypeError, InputError):
        pass
    TOKENS.remove(folder)
    return None


def cache_key(tokenizer: PreTrainedTokenizerBase, corpus: Corpus, options: ProbeOptions, max_length: int) -> str:
    """Hexadecimal name of everything that decides the content: tokenizer, text, units and versions."""
    backend = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else ""
    made_of = {
        "tokenizer": [hashlib.sha256(backend.encode()).hexdigest(), type(tokenizer).__name__, tokenizer.unk_token_id],
        "corpus": corpus.fingerprint(),
        "unit": [options.unit, options.language, options.max_units, options.seed if options.max_units else None],
        "pieces": options.pieces,
        "max_length": max_length,
        "numbers_version": NUMBERS_VERSION,
        "libraries": [metadata.version(name) for name in ("tokenizers", "sentencex", "regex")],
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


def _building(root: Path) -> TemporaryFolder:
    """A folder to build in, where the cache is if that can be written."""
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
        return TemporaryFolder(root)
    return TemporaryFolder()
