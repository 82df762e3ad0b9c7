"""Topics fitted to text: latent Dirichlet allocation by collapsed Gibbs sampling (tomotopy).

φ_kw = (n_kw + η) / (n_k + V η), with n_kw the number of tokens of word w that the last sweep gave to topic k,
n_k = Σ_w n_kw, V the vocabulary size and η the topic-word prior. tomotopy hands out float32; the whole numbers n_kw
are recovered from it and φ is computed in float64, so that 100 topics and more neither underflow nor collapse.

Text comes to every engine as passages of words of one vocabulary, with a count of all that is left out (`CountedText`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tomotopy

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import describe_environment, now
from topicscope.text import Corpus, WordLengths, WordSplitter, load_stop_words, normalise_word, split_words
from topicscope.text import passages as passages_of_document
from topicscope.topics.topic_model import TopicModel, Vocabulary

ALPHA = 0.1
ETA = 0.01
SWEEPS = 300
_MOST_TOPICS = 32767  # tomotopy's limit
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
            InputError: one text, or passages that can be read only once.
        """
        if isinstance(self.passages, str):
            raise InputError(
                "one text instead of passages", received="a str", expected="an iterable of texts, a list say"
            )
        if iter(self.passages) is self.passages:
            raise InputError(
                "the passages can be read only once",
                received=type(self.passages).__name__,
                expected="an iterable that starts afresh each time: they are read twice",
                advice="pass list(passages), or an object whose __iter__ opens the source anew",
            )
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


def words_to_leave_out(language: str, stop_words: Collection[str] | None) -> frozenset[str]:
    """The stop words of a language, unless others are given.

    Raises:
        InputError: an unknown language.
    """
    return load_stop_words(language) if stop_words is None else frozenset(map(normalise_word, stop_words))


@dataclass(frozen=True, eq=False)
class CountedText:
    """Passages whose words were counted; every iteration reads them again.

    source: the passages as they were read first; words: the words of each, as they are read again; counts: occurrences
    of every word. Words seen at least `min_count` times that are no stop words belong to the vocabulary, the most
    frequent first, then in alphabetical order; at most `most` of them. language: whose stop words they are, None where
    they were given.
    """

    source: SplitText
    words: Iterable[list[str]]
    counts: Mapping[str, int]
    min_count: int
    stop_words: frozenset[str]
    language: str | None
    most: int | None = None

    @cached_property
    def frequent(self) -> tuple[str, ...]:
        """The words that belong to the vocabulary, whether or not it has room for them."""
        kept = [word for word, count in self.counts.items() if count >= self.min_count and word not in self.stop_words]
        return tuple(sorted(kept, key=lambda word: (-self.counts[word], word)))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words that topics know."""
        return self.frequent[: self.most]

    def __iter__(self) -> Iterator[list[str]]:
        """The words of the vocabulary in each passage that has one."""
        kept = frozenset(self.vocabulary)
        for words in self.words:
            found = [word for word in words if word in kept]
            if found:
                yield found

    def require(self, num_topics: int, documents: int, tokens: int | None = None) -> None:
        """Refuse a text that topics cannot be fitted to.

        documents, tokens: what the second reading found; tokens None: not every word was counted in the first.

        Raises:
            InputError: the second reading gave other words, none at all, or fewer passages than topics.
        """
        counted = sum(self.counts[word] for word in self.vocabulary)
        if tokens not in (None, counted):
            raise InputError(
                "the passages changed between two readings",
                received=f"{counted} words of the vocabulary the first time, {tokens} the second",
                expected="the same passages each time: they are read twice",
                advice="pass list(passages), or an object whose __iter__ opens the source anew",
            )
        if not documents:
            raise InputError(
                "no word is left to fit topics to",
                received=f"{self.source.number} passages, none with a word seen {self.min_count} times that "
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
        splitter, warning, stop_words = self.source.splitter, self.source.lengths.warning(), self.stop_words
        rare = [count for word, count in self.counts.items() if word not in stop_words and count < self.min_count]
        return {
            "min_count": self.min_count,
            "language": self.language,
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
    text, left_out = SplitText(passages, splitter), words_to_leave_out(language, stop_words)
    counts: Counter[str] = Counter()
    for words in text.first_reading("count words", progress):
        counts.update(words)
    return CountedText(text, text, counts, min_count, left_out, language if stop_words is None else None)


@dataclass(frozen=True, eq=False)
class Topics:
    """A topic model and how it came about.

    | field | content |
    | --- | --- |
    | model | phi float64 [topic, word], alpha [topic], vocabulary (the most frequent word first when fitted here) |
    | provenance | JSON-ready: engine, options, counts of what was read and dropped, corpus, environment |
    | labels | one name a topic, or None |

    Raises:
        InputError: two topics with identical rows, or not one label a topic.
    """

    model: TopicModel
    provenance: dict[str, Any]
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        # Identical rows are topics that the fit (or float32) failed to tell apart; every pair statistic would be wrong.
        first: dict[bytes, int] = {}
        keys = [row.tobytes() for row in self.model.phi]
        twins = [(first[key], k) for k, key in enumerate(keys) if first.setdefault(key, k) != k]
        if twins:
            raise InputError(
                "two topics are identical",
                received=f"{len(twins)} duplicates; first: topics {twins[0][0]} and {twins[0][1]}",
                expected="topics that differ",
                advice="ask for fewer topics, give more text, or fit in float64",
            )
        if self.labels is not None and len(self.labels) != self.model.num_topics:
            raise InputError(
                "one label a topic is needed", received=len(self.labels), expected=f"{self.model.num_topics} labels"
            )

    def top_words(self, n: int = 10) -> list[list[str]]:
        """Per topic its `n` likeliest words, the likeliest first; ties in the order of the vocabulary."""
        order = np.argsort(-self.model.phi, axis=1, kind="stable")[:, :n]
        return [[self.model.vocabulary.words[i] for i in row] for row in order]


def fit(
    passages: Iterable[str],
    num_topics: int,
    *,
    sweeps: int = SWEEPS,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
) -> Topics:
    """Fit `num_topics` topics to passages: symmetric η = 0.01; α starts at 0.1 and is optimised, one value a topic.

    The passages are read twice: once to count words, once to sample. Words are compared as `normalise_word` gives
    them; stop words and words seen fewer than `min_count` times in all passages are left out and counted. One worker
    and one seed: the same text gives the same topics on the same kind of processor; across processors (their
    instruction sets are recorded) tomotopy does not promise it.

    Args:
        passages: any iterable of text that starts afresh each time, such as a list or `CorpusPassages`.
        num_topics: K, at most the number of passages that have a word of the vocabulary.
        sweeps: Gibbs sweeps over all tokens.
        seed: of the sampler.
        min_count: least number of occurrences of a word in the vocabulary.
        language: whose stop words are left out, unless `stop_words` says otherwise.
        stop_words: the words to leave out; an empty collection leaves none out.
        splitter: text to words.
        progress: told of every tenth sweep.
        source: what is known of the corpus (name, fingerprint), kept in the provenance.

    Raises:
        InputError: an iterator that can be read only once, no word left, more topics than passages, an option out of
            range, an unknown language, or topics that come out identical.
    """
    require_options(num_topics, seed, min_count, sweeps=sweeps)
    progress = SilentProgress() if progress is None else progress
    text = count_text(
        passages,
        min_count=min_count,
        language=language,
        stop_words=stop_words,
        splitter=splitter,
        progress=progress,
    )
    sampler = tomotopy.LDAModel(k=num_topics, alpha=ALPHA, eta=ETA, seed=seed)
    documents = tokens = 0
    for words in text:
        sampler.add_doc(words)
        documents += 1
        tokens += len(words)
    text.require(num_topics, documents, tokens)
    # tomotopy gives the same chain in one call or in many, and Ctrl-C is seen only between calls.
    with tracked(progress, "fit topics", sweeps, "sweeps"):
        for done in range(1, sweeps + 1):
            sampler.train(1, workers=1, parallel=tomotopy.ParallelScheme.NONE)
            if done % 10 == 0 or done == sweeps:
                progress.update("fit topics", done)
    phi = _phi(sampler, text.vocabulary)
    provenance = {
        "engine": "tomotopy.LDAModel",
        "created": now(),
        "num_topics": num_topics,
        "sweeps": sweeps,
        "seed": seed,
        "workers": 1,
        "instruction_set": tomotopy.isa,
        "alpha_start": ALPHA,
        "eta": ETA,
        **text.provenance(documents, tokens),
        "log_likelihood_per_word": float(sampler.ll_per_word),
        "corpus": None if source is None else dict(source),
        "environment": describe_environment().model_dump(),
    }
    alpha = np.asarray(sampler.alpha, dtype=np.float64)
    return Topics(TopicModel(phi, alpha, Vocabulary(text.vocabulary)), provenance)


def require_options(num_topics: int, seed: int, min_count: int, **at_least_one: int) -> None:
    """Raise InputError for a number that is out of range."""
    if not 1 <= num_topics <= _MOST_TOPICS:
        raise InputError("impossible number of topics", received=num_topics, expected=f"1 to {_MOST_TOPICS}")
    least = {"seed": (seed, 0), "min_count": (min_count, 1)}
    for name, (value, smallest) in (least | {name: (value, 1) for name, value in at_least_one.items()}).items():
        if value < smallest:
            raise InputError(f"impossible option: {name}", received=value, expected=f"a whole number >= {smallest}")


def _phi(sampler: tomotopy.LDAModel, vocabulary: tuple[str, ...]) -> np.ndarray:
    """float64 [topic, word] in the order of `vocabulary`."""
    place = {word: i for i, word in enumerate(sampler.used_vocabs)}
    columns = [place[word] for word in vocabulary]
    rows = [sampler.get_topic_word_dist(k, normalize=False) for k in range(sampler.k)]
    counts = np.rint(np.array(rows, dtype=np.float64)[:, columns] - ETA)
    assert np.array_equal(counts.sum(axis=1), sampler.get_count_by_topics()), "token counts were not recovered"
    weights = counts + ETA
    phi: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return phi
