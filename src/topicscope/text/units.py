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
from topicscope.text.corpus import Corpus
from topicscope.text.source import Document
from topicscope.text.words import WordLengths, WordSplitter, split_words

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


class UnitReader:
    """One pass over a corpus for its units of enough words: 3 a sentence, 1 a passage.

    counts: what the pass saw, whole once `units` is exhausted; `documents_kept` is left to the caller, who knows which
    ids are the same.

    Raises:
        InputError: an empty corpus, or one without a unit that is long enough.
    """

    def __init__(
        self,
        corpus: Corpus | Iterable[Document],
        unit: UnitKind,
        language: str = "en",
        progress: Progress | None = None,
        *,
        splitter: WordSplitter = split_words,
    ) -> None:
        self.counts = UnitCounts()
        self._corpus, self._unit, self._language, self._splitter = corpus, unit, language, splitter
        self._progress = SilentProgress() if progress is None else progress
        self._least = MIN_WORDS.get(unit, 1)
        self._lengths = WordLengths()

    def units(self) -> Iterator[Unit]:
        """Every unit that is long enough, with one document in memory at a time."""
        for unit, words in self._candidates():
            self._keep(words)
            yield unit
        self._finish()

    def sample(self, max_units: int, seed: int = 0) -> list[Unit]:
        """A uniform sample without replacement, in the order of the corpus.

        Every unit draws a uniform number; the `max_units` smallest are kept. So with one seed a smaller sample is part
        of a larger one, and the memory needed is that of the sample.
        """
        draw = random.Random(seed)
        # (-priority, order, words, unit): the heap's first entry is the next to go.
        kept: list[tuple[float, int, int, Unit]] = []
        for unit, words in self._candidates():
            entry = (-draw.random(), self.counts.units, words, unit)
            if len(kept) < max_units:
                heapq.heappush(kept, entry)
            else:
                heapq.heappushpop(kept, entry)
                self._drop("not sampled")
        kept.sort(key=lambda entry: entry[1])
        for entry in kept:
            self._keep(entry[2])
        self._finish()
        return [entry[3] for entry in kept]

    def _candidates(self) -> Iterator[tuple[Unit, int]]:
        counts = self.counts
        with tracked(self._progress, "reading text", None, "documents"):
            for document in self._corpus:
                counts.documents += 1
                for candidate in all_units(document, self._unit, self._language):
                    words = self._splitter(candidate.text)
                    self._lengths.add(words)
                    counts.units += 1
                    counts.words += len(words)
                    if len(words) < self._least:
                        self._drop(f"fewer than {self._least} words")
                    else:
                        yield candidate, len(words)
                self._progress.update("reading text", counts.documents)

    def _keep(self, words: int) -> None:
        self.counts.units_kept += 1
        self.counts.words_kept += words

    def _drop(self, reason: str) -> None:
        self.counts.dropped[reason] = self.counts.dropped.get(reason, 0) + 1

    def _finish(self) -> None:
        counts, warning = self.counts, self._lengths.warning()
        counts.skipped = dict(getattr(self._corpus, "skipped", {}))
        counts.warnings = () if warning is None else (warning,)
        if not counts.units_kept:
            raise InputError(
                f"the corpus has no {self._unit} of at least {self._least} words",
                received=f"{counts.documents} documents, {counts.units} units, {counts.words} words",
                where=getattr(self._corpus, "name", None),
                advice=warning or "give text in sentences, or lower the least number of words",
            )
