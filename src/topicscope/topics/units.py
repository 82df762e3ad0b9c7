"""Units that a model reads: sentences or passages, and a seeded sample of them in one pass."""

import heapq
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import sentencex

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.topics.text import Corpus, Document
from topicscope.topics.words import WordLengths, WordSplitter, split_words

UnitKind = Literal["sentence", "passage"]

# A unit of fewer words has too few pairs to say anything; headings and stray labels go this way.
MIN_WORDS = {"sentence": 3, "passage": 1}
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Unit:
    """One text the model reads at once; `index` counts the units of its document from 0, dropped ones included."""

    document_id: str
    index: int
    text: str


@dataclass
class UnitCounts:
    """What one pass saw, what it kept, and why the rest was left out.

    dropped: units by reason; skipped: documents and lines by reason, as the corpus counted them.
    warnings: sentences for the user.
    """

    documents: int = 0
    documents_kept: int = 0
    units: int = 0
    units_kept: int = 0
    words: int = 0
    words_kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def passages(document: Document) -> Iterator[str]:
    """The paragraphs of a document, each on one line.

    Blank lines separate paragraphs; in a text without blank lines every line is one.
    """
    text = document.text
    parts = _BLANK_LINE.split(text) if _BLANK_LINE.search(text) else text.split("\n")
    for part in parts:
        line = " ".join(part.split())
        if line:
            yield line


def sentences(document: Document, language: str = "en") -> Iterator[str]:
    """The sentences of a document by sentencex; none reaches over the end of a passage."""
    for passage in passages(document):
        for sentence in sentencex.segment(language, passage):
            stripped = sentence.strip()
            if stripped:
                yield stripped


def split_units(
    document: Document,
    unit: UnitKind,
    language: str = "en",
    min_words: int | None = None,
    splitter: WordSplitter = split_words,
) -> Iterator[Unit]:
    """The units of a document with at least `min_words` words (default: 3 a sentence, 1 a passage)."""
    least = MIN_WORDS[unit] if min_words is None else min_words
    for candidate in all_units(document, unit, language):
        if len(splitter(candidate.text)) >= least:
            yield candidate


def all_units(document: Document, unit: UnitKind, language: str = "en") -> Iterator[Unit]:
    """Every unit of a document, in order.

    Raises:
        InputError: `unit` is neither "sentence" nor "passage".
    """
    if unit not in MIN_WORDS:
        raise InputError("unknown unit", received=unit, expected='"sentence" or "passage"')
    texts = passages(document) if unit == "passage" else sentences(document, language)
    for index, text in enumerate(texts):
        yield Unit(document.id, index, text)


def sample_units(
    corpus: Corpus | Iterable[Document],
    unit: UnitKind,
    max_units: int | None = None,
    seed: int = 0,
    language: str = "en",
    progress: Progress | None = None,
    *,
    min_words: int | None = None,
    splitter: WordSplitter = split_words,
) -> tuple[list[Unit], UnitCounts]:
    """A uniform sample of units without replacement, in document order, in one pass over the corpus.

    Every unit that is long enough draws a uniform number; the `max_units` smallest are kept. So with one seed a
    smaller sample is part of a larger one, and the memory needed is that of the sample. None keeps every unit.

    Raises:
        InputError: `max_units` below 1, an empty corpus, or a corpus without a unit that is long enough.
    """
    if max_units is not None and max_units < 1:
        raise InputError("no units asked for", received=max_units, expected="--max-units of at least 1")
    least = MIN_WORDS.get(unit, 1) if min_words is None else min_words
    short = f"fewer than {least} words"
    draw = random.Random(seed)
    # (-priority, order, words, unit): the heap's first entry is the next to go.
    kept: list[tuple[float, int, int, Unit]] = []
    counts, lengths = UnitCounts(), WordLengths()
    dropped = {short: 0, "not sampled": 0}
    with tracked(progress or SilentProgress(), "reading text", None, "documents"):
        for document in corpus:
            counts.documents += 1
            for candidate in all_units(document, unit, language):
                words = splitter(candidate.text)
                lengths.add(words)
                counts.units += 1
                counts.words += len(words)
                if len(words) < least:
                    dropped[short] += 1
                    continue
                entry = (-draw.random(), counts.units, len(words), candidate)
                if max_units is None or len(kept) < max_units:
                    heapq.heappush(kept, entry)
                else:
                    heapq.heappushpop(kept, entry)
                    dropped["not sampled"] += 1
            if progress is not None:
                progress.update("reading text", counts.documents)
    kept.sort(key=lambda entry: entry[1])
    units = [entry[3] for entry in kept]
    counts.units_kept = len(units)
    counts.words_kept = sum(entry[2] for entry in kept)
    counts.documents_kept = len({unit.document_id for unit in units})
    counts.dropped = {reason: count for reason, count in dropped.items() if count}
    counts.skipped = dict(getattr(corpus, "skipped", {}))
    warning = lengths.warning()
    counts.warnings = () if warning is None else (warning,)
    if not units:
        raise InputError(
            f"the corpus has no {unit} of at least {least} words",
            received=f"{counts.documents} documents, {counts.units} units, {counts.words} words",
            where=getattr(corpus, "name", None),
            advice=warning or "give text in sentences, or lower the least number of words",
        )
    return units, counts
