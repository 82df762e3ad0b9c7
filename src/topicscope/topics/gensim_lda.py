"""Topics by gensim: online variational LDA, also of text that is larger than memory.

After batch t = 1, 2, … of B of D passages, whose E-step gives s [topic, word] (Hoffman, Blei and Bach, 2010):

    λ = (1 - ρ_t) λ + ρ_t (η + D/B s),  ρ_t = (offset + t - 1)^-decay

Topics are E[φ] = λ_kw / Σ_w λ_kw in float64, with λ read from the model itself. The rates are tuned: with gensim's own,
topics are near incoherent (NPMI -.006 against .191 on 1,547 documents, T = 100; tomotopy's Gibbs sampling gives .275).

`fit_with` reads the text again for every pass. `fit_stream` reads it once and keeps its words in a temporary folder.
Its memory is bounded whatever the text: about `words_held` words while they are counted, a few matrices [topic, word]
of `max_words` words, and one batch.
"""

import json
import random
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from topicscope.errors import InputError, RunError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import describe_environment, now
from topicscope.text import WordSplitter, split_words
from topicscope.topics import lda
from topicscope.topics.coherence import TOP_WORDS, coherence_in
from topicscope.topics.lda import (
    ALPHA,
    ETA,
    MIN_COUNT,
    CountedText,
    SplitText,
    Topics,
    count_text,
    require_options,
    words_to_leave_out,
)
from topicscope.topics.topic_model import TopicModel, Vocabulary

Engine = Literal["tomotopy", "gensim"]
MAX_WORDS = 100_000
WORDS_HELD = 2_000_000
_FILES = 64
_UTF8: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogatepass"}  # a splitter may give anything


@dataclass(frozen=True)
class Rate:
    """How fast topics are learnt: passes over the text; batch, B above, in passages; decay and offset of ρ.

    batch: None for a quarter of the passages, but at least 256 and at most 16,384. In one pass a few updates, each from
    many passages, teach more than many from few (docs/large-corpora.md), and they cost less.
    iterations: of the proportions of a passage, at most.
    """

    passes: int = 1
    batch: int | None = None
    decay: float = 0.7
    offset: float = 1.0
    iterations: int = 100

    def even_batch(self, documents: int) -> int:
        """B such that all batches are nearly equal: a small last one would move λ as much as the others."""
        largest = max(256, min(16384, documents // 4)) if self.batch is None else self.batch
        batches = -(-documents // largest)
        return -(-documents // batches)


REREAD = Rate(passes=10, batch=256, offset=10.0)
"""The rate of `fit_with`."""


def fit_with(
    engine: str,
    passages: Iterable[str],
    num_topics: int,
    *,
    sweeps: int | None = None,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
) -> Topics:
    """Fit `num_topics` topics by an engine; everything but the engine and `sweeps` is as in `lda.fit`.

    engine: "tomotopy" (`lda.fit`) or "gensim" (the text is read again for every pass and never held in memory).
    sweeps: over the text; None: 300 of tomotopy's, 10 passes of gensim.

    gensim keeps α = 0.1 and η = 0.01 fixed. One process and one seed: the same text gives the same topics on the same
    machine.

    Raises:
        InputError: as `lda.fit`; an unknown engine, or gensim where it is not installed.
    """
    options: dict[str, Any] = {
        "min_count": min_count,
        "language": language,
        "stop_words": stop_words,
        "splitter": splitter,
    }
    if engine == "tomotopy":
        sweeps = lda.SWEEPS if sweeps is None else sweeps
        return lda.fit(passages, num_topics, sweeps=sweeps, seed=seed, progress=progress, source=source, **options)
    if engine != "gensim":
        raise InputError("unknown engine", received=engine, expected="tomotopy or gensim")
    rate = REREAD if sweeps is None else replace(REREAD, passes=sweeps)
    _require_gensim()
    require_options(num_topics, seed, min_count, sweeps=rate.passes)
    progress = SilentProgress() if progress is None else progress
    text = count_text(passages, progress=progress, **options)
    bags = _Bags(text, progress)
    text.require(num_topics, bags.documents, bags.tokens)
    model = _learn(bags, num_topics, rate, seed)
    known = text.provenance(bags.documents, bags.tokens)
    return Topics(model, _provenance("gensim.models.LdaModel", num_topics, rate, seed, known, source))


def fit_stream(
    passages: Iterable[str],
    num_topics: int,
    *,
    rate: Rate | None = None,
    seed: int = 0,
    min_count: int = MIN_COUNT,
    max_words: int = MAX_WORDS,
    words_held: int = WORDS_HELD,
    language: str = "en",
    stop_words: Collection[str] | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    source: Mapping[str, Any] | None = None,
) -> Topics:
    """Fit `num_topics` topics to passages that are read once; the same text and seed give the same topics.

    Args:
        passages: as for `lda.fit`.
        rate: of learning; tuned for one pass unless given.
        max_words: the most frequent words of at least `min_count` occurrences that the topics know; others are counted.
        words_held: distinct words beyond which gensim's `Dictionary` forgets those in the fewest passages, every 10,000
            passages (`prune_at`); what was forgotten is counted and said.

    The other arguments are those of `lda.fit`. The provenance holds the coherence as well.

    Raises:
        InputError: as `fit_with`.
        RunError: the folder of temporary files is full.
    """
    rate = Rate() if rate is None else rate
    _require_gensim()
    batch = 1 if rate.batch is None else rate.batch
    require_options(
        num_topics, seed, min_count, sweeps=rate.passes, batch=batch, max_words=max_words, words_held=words_held
    )
    progress = SilentProgress() if progress is None else progress
    left_out, known_language = words_to_leave_out(language, stop_words), language if stop_words is None else None
    with tempfile.TemporaryDirectory(prefix="topicscope-words-") as folder:
        stored = _StoredWords(Path(folder))
        split = SplitText(passages, splitter)
        stored.write(split.first_reading("read text", progress))
        counts, total = _count(stored, words_held, split.number, progress)
        text = CountedText(split, stored, counts, min_count, left_out, known_language, most=max_words)
        bags = _Bags(text, progress)
        text.require(num_topics, bags.documents)
        rate = replace(rate, batch=rate.even_batch(bags.documents))
        model = _learn(bags, num_topics, rate, seed)
        likeliest = Topics(model, {}).top_words(TOP_WORDS)
        cohering = coherence_in(likeliest, stored).to_dict()
    known = _account(text, bags, total, words_held)
    known |= {"readings_of_the_text": 1, "max_words": max_words, "words_held": words_held, "coherence": cohering}
    return Topics(model, _provenance("gensim.models.LdaModel, streamed", num_topics, rate, seed, known, source))


def _require_gensim() -> None:
    try:
        metadata.version("gensim")
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "the engine gensim is not installed",
            received="no package gensim",
            expected="an engine that is installed",
            advice='pip install "topicscope[gensim]"',
        ) from error


class _Bags:
    """The passages of a text as lists of (word index, count), made anew on every iteration.

    documents: how many they are; tokens: words of the vocabulary in them.
    """

    def __init__(self, text: CountedText, progress: Progress) -> None:
        self.vocabulary, self.progress = text.vocabulary, progress
        self.documents = self.tokens = self._finished = 0
        self._text = text
        for bag in self._read():
            self.documents += 1
            self.tokens += sum(count for _, count in bag)

    def __len__(self) -> int:
        return self.documents

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """One more pass: progress is told of it by the passage, so that Ctrl-C is seen inside it."""
        for number, bag in enumerate(self._read()):
            if number % 100 == 0:
                self.progress.update("fit topics", self._finished + number / self.documents)
            yield bag
        self._finished += 1
        self.progress.update("fit topics", self._finished)

    def _read(self) -> Iterator[list[tuple[int, int]]]:
        place = {word: i for i, word in enumerate(self.vocabulary)}
        for words in self._text:
            yield sorted(Counter(place[word] for word in words).items())


def _account(text: CountedText, bags: _Bags, total: int, words_held: int) -> dict[str, Any]:
    """What the provenance says of a stream: each of its `total` words is a token, or among what was dropped."""
    known, beyond = text.provenance(bags.documents, bags.tokens), text.frequent[text.most :]
    tokens_beyond = sum(text.counts[word] for word in beyond)
    dropped = known["dropped"]
    accounted = bags.tokens + dropped["tokens_of_stop_words"] + dropped["tokens_of_rare_words"] + tokens_beyond
    dropped["words_beyond_the_vocabulary"] = len(beyond)
    dropped["tokens_beyond_the_vocabulary"] = tokens_beyond
    dropped["tokens_of_forgotten_words"] = total - accounted
    forgotten = total - sum(text.counts.values())
    if forgotten:
        known["warnings"].append(
            f"{forgotten} occurrences of rare words were forgotten, since the text has more than {words_held} distinct "
            "words: a word whose occurrences are far apart may be missing from the vocabulary, whose rarest word was "
            f"counted {text.counts[text.vocabulary[-1]]} times. A larger --min-count or a smaller --max-words leaves "
            "out the words that this concerns"
        )
    return known


def _learn(bags: _Bags, num_topics: int, rate: Rate, seed: int) -> TopicModel:
    from gensim.models import LdaModel

    with tracked(bags.progress, "fit topics", rate.passes, "passes"):
        model = LdaModel(
            bags,
            num_topics=num_topics,
            id2word=dict(enumerate(bags.vocabulary)),
            chunksize=rate.batch,
            passes=rate.passes,
            alpha=np.full(num_topics, ALPHA),
            eta=ETA,
            decay=rate.decay,
            offset=rate.offset,
            iterations=rate.iterations,
            eval_every=None,
            random_state=seed,
            dtype=np.float64,
        )
    return TopicModel.normalised(model.state.get_lambda(), Vocabulary(bags.vocabulary), ALPHA)


def _provenance(
    engine: str, num_topics: int, rate: Rate, seed: int, known: Mapping[str, Any], source: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "engine": engine,
        "engine_version": metadata.version("gensim"),
        "created": now(),
        "num_topics": num_topics,
        "sweeps": rate.passes,
        "seed": seed,
        "workers": 1,
        "alpha": ALPHA,
        "eta": ETA,
        "decay": rate.decay,
        "offset": rate.offset,
        "batch": rate.batch,
        "iterations": rate.iterations,
        **known,
        "corpus": None if source is None else dict(source),
        "environment": describe_environment().model_dump(),
    }


@dataclass(frozen=True)
class _StoredWords:
    """The words of each passage in the files of a folder, a JSON list a line.

    Passages are dealt to the files at random and read file after file, so that a batch is spread over the text,
    whatever its order; dealt in turn, passages that repeat every so many would meet again in one file.
    """

    folder: Path

    def write(self, passages: Iterable[list[str]]) -> None:
        """Keep the passages.

        Raises:
            RunError: the folder cannot be written, or is full.
        """
        try:
            with ExitStack() as stack:
                files = [stack.enter_context(open(path, "w", **_UTF8)) for path in self._files()]
                draw = random.Random(0)
                for words in passages:
                    draw.choice(files).write(json.dumps(words, ensure_ascii=False) + "\n")
        except OSError as error:
            if error.filename is not None and Path(error.filename).parent != self.folder:
                raise
            raise RunError(
                "the words of the text cannot be kept on disk",
                received=str(error),
                expected="about as much room as the text takes",
                where=str(self.folder),
                advice="name a roomier folder by the environment variable TMPDIR",
            ) from error

    def __iter__(self) -> Iterator[list[str]]:
        for path in self._files():
            with open(path, **_UTF8) as stream:
                yield from map(json.loads, stream)

    def _files(self) -> list[Path]:
        return [self.folder / f"{number}.jsonl" for number in range(_FILES)]


def _count(stored: _StoredWords, words_held: int, passages: int, progress: Progress) -> tuple[dict[str, int], int]:
    """Occurrences of each word that gensim's Dictionary holds at the end; of all words, forgotten ones too."""
    from gensim.corpora import Dictionary

    def watched() -> Iterator[list[str]]:
        for number, words in enumerate(stored):
            if number % 1000 == 0:
                progress.update("count words", number)
            yield words

    with tracked(progress, "count words", passages, "passages"):
        found = Dictionary(watched(), prune_at=words_held)
    return {word: found.cfs[i] for word, i in found.token2id.items()}, found.num_pos
