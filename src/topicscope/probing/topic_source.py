"""Where the probe's topics come from: fitted here, a file, a labelled word list, or live objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.probing.lookup import Configuration
from topicscope.probing.options import ProbeOptions
from topicscope.progress import Progress
from topicscope.topics.assignment import assign_words, from_word_list
from topicscope.topics.lda import CorpusPassages, Topics, fit
from topicscope.topics.stop_words import load_stop_words
from topicscope.topics.text import Corpus
from topicscope.topics.topics_file import WordList, load_any
from topicscope.topics.words import WordSplitter

TopicSource = int | str | Path | Topics | WordList | Sequence[Topics]


@dataclass(frozen=True)
class FittedTopics:
    """One `Topics` per topic seed, or a word list; and what the manifest says of them."""

    topics: tuple[Topics, ...]
    word_list: WordList | None
    provenance: dict[str, Any]


def topics_from(
    source: TopicSource, corpus: Corpus, options: ProbeOptions, splitter: WordSplitter, progress: Progress
) -> FittedTopics:
    """Fit `source` topics on the passages of the whole corpus, once per topic seed; or read what is given."""
    if isinstance(source, str) and source.isdecimal():
        source = int(source)
    if isinstance(source, (str, Path)):
        source = load_any(Path(source))
    if isinstance(source, bool) or (isinstance(source, int) and source < 1):
        raise InputError("bad option --topics", received=source, expected="a number of topics >= 1, or a file")
    if isinstance(source, int):
        texts = CorpusPassages(corpus)
        about = {"name": corpus.name, "fingerprint": corpus.fingerprint()}
        fits = tuple(
            fit(
                texts,
                source,
                sweeps=options.sweeps,
                seed=options.seed + number,
                min_count=options.min_count,
                language=options.language,
                splitter=splitter,
                progress=progress,
                source=about,
            )
            for number in range(options.topic_seeds)
        )
        return FittedTopics(fits, None, {"fitted": [f.provenance for f in fits]})
    if isinstance(source, WordList):
        if options.topic_seeds != 1:
            raise InputError(
                "--topic-seeds refits the topic model, and a word list has none",
                received=f"a word list and --topic-seeds {options.topic_seeds}",
                expected="--topics NUMBER, or --topic-seeds 1",
            )
        return FittedTopics((), source, {"word_list": source.provenance})
    given = (source,) if isinstance(source, Topics) else tuple(source)
    if options.topic_seeds != 1 and options.topic_seeds != len(given):
        raise InputError(
            "--topic-seeds refits the topic model, so it needs a number of topics",
            received=f"{len(given)} topic models and --topic-seeds {options.topic_seeds}",
            expected="--topics NUMBER, or --topic-seeds 1",
        )
    return FittedTopics(given, None, {"given": [t.provenance for t in given]})


def configurations_of(fitted: FittedTopics, options: ProbeOptions) -> list[Configuration]:
    """Knowl 8's assignment for every threshold and topic seed; one configuration for a labelled word list."""
    stop_words = load_stop_words(options.language)
    if fitted.word_list is not None:
        return [
            Configuration(None, 0, from_word_list(fitted.word_list, stop_words=stop_words, overlap=options.overlap))
        ]
    return [
        Configuration(threshold, seed, assign_words(topics, threshold, stop_words=stop_words, overlap=options.overlap))
        for threshold in options.threshold
        for seed, topics in enumerate(fitted.topics)
    ]
