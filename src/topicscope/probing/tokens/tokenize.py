"""Tokenise a corpus block by block, here or by others, into the arrays of a `TokenCache`."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from transformers import PreTrainedTokenizerBase

from topicscope.probing.config import ProbeOptions
from topicscope.probing.tokens.alignment import AlignedUnit, Coverage, align_units
from topicscope.probing.tokens.arrays import Columns, open_array
from topicscope.progress import Progress
from topicscope.records import write_json
from topicscope.text import Corpus, Unit, UnitReader, WordSplitter, split_words

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
