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
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import overload

import numpy as np
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError, RunError
from topicscope.probing.config import ProbeOptions
from topicscope.probing.tokens.alignment import AlignedUnit, Coverage
from topicscope.probing.tokens.arrays import NO_WORD, open_array
from topicscope.probing.tokens.tokenize import Aligner, build_tokens
from topicscope.progress import Progress
from topicscope.records import NUMBERS_VERSION, TOKENS, TemporaryFolder, cache_folder, read_json
from topicscope.text import Corpus, UnitCounts, WordSplitter, split_words

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
