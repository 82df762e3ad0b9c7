"""Text as every topic engine takes it: passages of words of one vocabulary, with a count of all that is left out."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from topicscope.errors import InputError
from topicscope.progress import Progress, tracked
from topicscope.text import Corpus, WordLengths, WordSplitter, load_stop_words, normalise_word
from topicscope.text import passages as passages_of_document

MIN_COUNT = 5


@dataclass(frozen=True)
class CorpusPassages:
    """The passages of a corpus as text that can be read again and again, one document in memory at a time."""

    corpus: Corpus

    def __iter__(self) -> Iterator[str]:
        return (passage for document in self.corpus for passage in passages_of_document(document))


@dataclass(eq=False)
class SplitText:
    """Passages as the normalised words of each, split anew on every iteration.

    number: passages that the first reading found; lengths: of their words.
    """

    passages: Iterable[str]
    splitter: WordSplitter
    number: int = 0
    lengths: WordLengths = field(default_factory=WordLengths)

    def first_reading(self, task: str, progress: Progress) -> Iterator[list[str]]:
        """The words of each passage, counted and watched.

        Raises:
            InputError: passages that can be read only once.
        """
        require_rereadable(self.passages)
        with tracked(progress, task, None, "passages"):
            for passage in self.passages:
                found = self.splitter(passage)
                self.lengths.add(found)
                self.number += 1
                yield [normalise_word(word.text) for word in found]
                if self.number % 1000 == 0:
                    progress.update(task, self.number)

    def __iter__(self) -> Iterator[list[str]]:
        for passage in self.passages:
            yield [normalise_word(word.text) for word in self.splitter(passage)]


@dataclass(frozen=True)
class Selection:
    """Which words belong to the vocabulary: those seen at least `min_count` times that are no stop words.

    language: whose stop words they are, None where they were given.
    """

    min_count: int
    stop_words: frozenset[str]
    language: str | None

    @classmethod
    def of(cls, min_count: int, language: str, stop_words: Collection[str] | None) -> "Selection":
        """The stop words of a language, unless others are given.

        Raises:
            InputError: an unknown language.
        """
        if stop_words is None:
            return cls(min_count, load_stop_words(language), language)
        return cls(min_count, frozenset(map(normalise_word, stop_words)), None)

    def words(self, counts: Mapping[str, int]) -> list[str]:
        """The words that belong, the most frequent first, then in alphabetical order."""
        kept = [word for word, count in counts.items() if count >= self.min_count and word not in self.stop_words]
        return sorted(kept, key=lambda word: (-counts[word], word))


@dataclass(frozen=True, eq=False)
class CountedText:
    """Passages whose words were counted; every iteration reads them again.

    source: the passages as they were read first; words: the words of each, as they are read again; counts: occurrences
    of every word.
    """

    source: SplitText
    words: Iterable[list[str]]
    vocabulary: tuple[str, ...]
    counts: Mapping[str, int]
    selection: Selection

    def __iter__(self) -> Iterator[list[str]]:
        """The words of the vocabulary in each passage that has one."""
        kept = frozenset(self.vocabulary)
        for words in self.words:
            found = [word for word in words if word in kept]
            if found:
                yield found

    @property
    def tokens(self) -> int:
        """How many words of the vocabulary were counted."""
        return sum(self.counts[word] for word in self.vocabulary)

    def require(self, num_topics: int, documents: int, tokens: int) -> None:
        """Raise InputError where a second reading gave other words, none at all, or fewer passages than topics."""
        if tokens != self.tokens:
            raise InputError(
                "the passages changed between two readings",
                received=f"{self.tokens} words of the vocabulary the first time, {tokens} the second",
                expected="the same passages each time: they are read twice",
                advice="pass list(passages), or an object whose __iter__ opens the source anew",
            )
        self.require_enough(num_topics, documents)

    def require_enough(self, num_topics: int, documents: int) -> None:
        """Raise InputError where no passage has a word of the vocabulary, or fewer have than there are topics."""
        if not documents:
            raise InputError(
                "no word is left to fit topics to",
                received=f"{self.source.number} passages, none with a word seen {self.selection.min_count} times that "
                "is no stop word",
                expected="text in the language of the stop words",
                advice="give more text, lower the minimum count, or check language and text column",
            )
        if num_topics > documents:
            raise InputError(
                "more topics than documents",
                received=f"{num_topics} topics for {documents} passages with a word of the vocabulary "
                f"({self.source.number} in all)",
                expected=f"at most {documents} topics",
                advice="ask for fewer topics or give more text",
            )

    def provenance(self, documents: int, tokens: int) -> dict[str, Any]:
        """What is written of the text with the topics; documents, tokens: passages and words that topics learn from."""
        splitter, warning = self.source.splitter, self.source.lengths.warning()
        stop_words, least = self.selection.stop_words, self.selection.min_count
        rare = [count for word, count in self.counts.items() if word not in stop_words and count < least]
        return {
            "min_count": least,
            "language": self.selection.language,
            "stop_words": len(stop_words),
            "splitter": getattr(splitter, "__qualname__", type(splitter).__qualname__),
            "documents": documents,
            "tokens": tokens,
            "vocabulary_size": len(self.vocabulary),
            "dropped": {
                "passages_without_a_word": self.source.number - documents,
                "tokens_of_stop_words": sum(count for word, count in self.counts.items() if word in stop_words),
                "tokens_of_rare_words": sum(rare),
                "rare_words": len(rare),
            },
            "warnings": [] if warning is None else [warning],
        }


def count_text(
    passages: Iterable[str],
    *,
    min_count: int,
    language: str,
    stop_words: Collection[str] | None,
    splitter: WordSplitter,
    progress: Progress,
) -> CountedText:
    """Read the passages once.

    Raises:
        InputError: an iterator that can be read only once, or an unknown language.
    """
    text, selection = SplitText(passages, splitter), Selection.of(min_count, language, stop_words)
    counts: Counter[str] = Counter()
    for words in text.first_reading("count words", progress):
        counts.update(words)
    return CountedText(text, text, tuple(selection.words(counts)), counts, selection)


def require_rereadable(passages: Iterable[str]) -> None:
    """Raise InputError for one text, and for an iterator that can be read only once."""
    if isinstance(passages, str):
        raise InputError("one text instead of passages", received="a str", expected="an iterable of texts, a list say")
    if iter(passages) is passages:
        raise InputError(
            "the passages can be read only once",
            received=type(passages).__name__,
            expected="an iterable that starts afresh each time: they are read twice",
            advice="pass list(passages), or an object whose __iter__ opens the source anew",
        )
