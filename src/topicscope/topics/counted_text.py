"""Text as every topic engine takes it: passages of words of one vocabulary, with a count of all that is left out."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topicscope.errors import InputError
from topicscope.progress import Progress, tracked
from topicscope.text import WordLengths, WordSplitter, load_stop_words, normalise_word


@dataclass(frozen=True, eq=False)
class CountedText:
    """Passages that were read once, to count; every iteration reads them again.

    vocabulary: the words that are kept, the most frequent first, then in alphabetical order; passages: how many were
    read; counts: occurrences of every word of the text; warning: of the splitter, or None.
    """

    source: Iterable[str]
    splitter: WordSplitter
    vocabulary: tuple[str, ...]
    counts: Mapping[str, int]
    stop_words: frozenset[str]
    language: str | None
    passages: int
    min_count: int
    warning: str | None

    def __iter__(self) -> Iterator[list[str]]:
        """The words of the vocabulary in each passage that has one."""
        kept = frozenset(self.vocabulary)
        for passage in self.source:
            words = [word for word in (normalise_word(found.text) for found in self.splitter(passage)) if word in kept]
            if words:
                yield words

    @property
    def tokens(self) -> int:
        """How many words of the vocabulary the text holds."""
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
        require_enough(num_topics, documents, self.passages, self.min_count)

    def provenance(self, documents: int) -> dict[str, Any]:
        """What is written of the text with the topics; documents: passages with a word of the vocabulary."""
        tokens = self.tokens
        stop_tokens = sum(count for word, count in self.counts.items() if word in self.stop_words)
        rare = [c for word, c in self.counts.items() if word not in self.stop_words and c < self.min_count]
        return {
            "min_count": self.min_count,
            "language": self.language,
            "stop_words": len(self.stop_words),
            "splitter": getattr(self.splitter, "__qualname__", type(self.splitter).__qualname__),
            "documents": documents,
            "tokens": tokens,
            "vocabulary_size": len(self.vocabulary),
            "dropped": {
                "passages_without_a_word": self.passages - documents,
                "tokens_of_stop_words": stop_tokens,
                "tokens_of_rare_words": sum(self.counts.values()) - tokens - stop_tokens,
                "rare_words": len(rare),
            },
            "warnings": [] if self.warning is None else [self.warning],
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
    require_rereadable(passages)
    stops = load_stop_words(language) if stop_words is None else frozenset(map(normalise_word, stop_words))
    counts: Counter[str] = Counter()
    lengths = WordLengths()
    number = 0
    with tracked(progress, "count words", None, "passages"):
        for number, passage in enumerate(passages, start=1):
            words = splitter(passage)
            lengths.add(words)
            counts.update(normalise_word(word.text) for word in words)
            if number % 1000 == 0:
                progress.update("count words", number)
    kept = [word for word, count in counts.items() if count >= min_count and word not in stops]
    return CountedText(
        passages,
        splitter,
        tuple(sorted(kept, key=lambda word: (-counts[word], word))),
        counts,
        stops,
        language if stop_words is None else None,
        number,
        min_count,
        lengths.warning(),
    )


def require_enough(num_topics: int, documents: int, passages: int, min_count: int) -> None:
    """Raise InputError where no passage has a word of the vocabulary, or fewer have than there are topics."""
    if not documents:
        raise InputError(
            "no word is left to fit topics to",
            received=f"{passages} passages, none with a word seen {min_count} times that is no stop word",
            expected="text in the language of the stop words",
            advice="give more text, lower the minimum count, or check language and text column",
        )
    if num_topics > documents:
        raise InputError(
            "more topics than documents",
            received=f"{num_topics} topics for {documents} passages with a word of the vocabulary ({passages} in all)",
            expected=f"at most {documents} topics",
            advice="ask for fewer topics or give more text",
        )


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
