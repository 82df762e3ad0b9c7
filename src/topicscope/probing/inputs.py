"""What a probe is given, a model, documents and topics in their many forms, made into what it works with."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.demo import minilm_folder
from topicscope.errors import InputError
from topicscope.probing.attention import Configuration
from topicscope.probing.config import DEFAULT_THRESHOLDS, ProbeConfig
from topicscope.probing.hf import ModelView, load_model, pinned, view_model
from topicscope.progress import Progress
from topicscope.text import Corpus, Document, WordSplitter, corpus_from, load_stop_words, open_corpus
from topicscope.topics import (
    TOP_WORDS,
    CorpusPassages,
    Topics,
    WordList,
    assign_words,
    coherence,
    fit,
    from_word_list,
    load_any,
    load_topics,
    save_topics,
)

Documents = str | Path | Corpus | Iterable[str | Document | tuple[str, str] | dict[str, Any]]
TopicSource = int | str | Path | Topics | WordList | Sequence[Topics]
Given = int | WordList | tuple[Topics, ...]


def corpus_of(documents: Documents) -> Corpus:
    """The corpus of a path, a name or live texts."""
    if isinstance(documents, Corpus):
        return documents
    return open_corpus(documents) if isinstance(documents, (str, Path)) else corpus_from(documents)


def paths_of(*inputs: object) -> list[Path]:
    """The files and folders of this machine among documents, models and topics."""
    named = [given.path if isinstance(given, Corpus) else given for given in inputs]
    paths = [Path(given).expanduser() for given in named if isinstance(given, (str, Path))]
    return [path for path in paths if path.exists()]


def named_model(name: str, revision: str | None = None) -> tuple[str, str | None]:
    """Name or folder of a model, and its revision; from NAME@REVISION, or "minilm" for the demo's embedded model."""
    if name.lower() == "minilm" and not Path(name).exists():
        return str(minilm_folder()), revision
    return pinned(name, revision)


def location(model: str) -> str:
    """What other processes know a model by: its name, or the whole path of its folder."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def view_of(
    model: str | Path | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None,
    config: ProbeConfig,
    *,
    call: str = "topicscope.probe(model, tokenizer, documents)",
) -> ModelView:
    """The view of a model by name, or of a live one with its tokenizer. call: how that is written, for the error.

    Raises:
        InputError: a live model without tokenizer; as `load_model` and `view_model`.
    """
    if isinstance(model, ModelView):
        return model
    if isinstance(model, (str, Path)):
        name, revision = named_model(str(model), config.revision)
        return load_model(
            name,
            device=config.device,
            dtype=config.dtype,
            revision=revision,
            trust_remote_code=config.trust_remote_code,
        )
    if tokenizer is None:
        raise InputError("a live model needs its tokenizer", received=type(model).__name__, expected=call)
    return view_model(model, tokenizer)


@dataclass(frozen=True)
class FittedTopics:
    """One `Topics` per topic seed, or a word list; what the manifest says of them, and what a reader must know."""

    topics: tuple[Topics, ...]
    word_list: WordList | None
    provenance: dict[str, Any]
    warnings: tuple[str, ...] = ()


def read_topics(source: TopicSource) -> Given:
    """A number of topics to fit, or what a file or live objects hold."""
    if isinstance(source, str) and source.isdecimal():
        source = int(source)
    if isinstance(source, (str, Path)):
        source = load_any(source)
    if isinstance(source, bool) or (isinstance(source, int) and source < 1):
        raise InputError("bad option --topics", received=source, expected="a number of topics >= 1, or a file")
    if isinstance(source, (int, WordList)):
        return source
    return (source,) if isinstance(source, Topics) else tuple(source)


def identity_of(source: Given) -> Any:
    """What tells topics apart, as JSON has it: their number where they are still to be fitted, else a hash."""
    if isinstance(source, int):
        return source
    digest = hashlib.sha256()
    if isinstance(source, WordList):
        digest.update(repr([source.words, [sorted(t) for t in source.topics], source.labels]).encode())
    else:
        for topics in source:
            digest.update(repr(topics.model.vocabulary.words).encode() + topics.model.phi.tobytes())
    return digest.hexdigest()


def topics_from(
    source: Given,
    corpus: Corpus,
    config: ProbeConfig,
    splitter: WordSplitter,
    progress: Progress,
    folder: Path | None = None,
) -> FittedTopics:
    """Fit `source` topics on the passages of the whole corpus, once per topic seed; or take what is given.

    folder: where fitted topics are kept, and taken from if they are there.
    """
    if isinstance(source, WordList):
        if config.topic_seeds != 1:
            raise InputError(
                "--topic-seeds refits the topic model, and a word list has none",
                received=f"a word list and --topic-seeds {config.topic_seeds}",
                expected="--topics NUMBER, or --topic-seeds 1",
            )
        ignored = "--threshold has no effect with a labelled word list, which has no probabilities"
        warnings = () if config.threshold == DEFAULT_THRESHOLDS else (ignored,)
        return FittedTopics((), source, {"word_list": source.provenance}, warnings)
    if isinstance(source, tuple):
        if config.topic_seeds not in (1, len(source)):
            raise InputError(
                "--topic-seeds refits the topic model, so it needs a number of topics",
                received=f"{len(source)} topic models and --topic-seeds {config.topic_seeds}",
                expected="--topics NUMBER, or --topic-seeds 1",
            )
        return FittedTopics(source, None, {"given": _provenance(source)})
    fits: list[Topics] = []
    for number in range(config.topic_seeds):
        kept = None if folder is None else folder / f"topics-{number}.npz"
        if kept is not None and kept.is_file():
            fits.append(load_topics(kept))
            continue
        passages = CorpusPassages(corpus)
        topics = fit(
            passages,
            source,
            sweeps=config.sweeps,
            seed=config.seed + number,
            min_count=config.min_count,
            language=config.language,
            splitter=splitter,
            progress=progress,
            source={"name": corpus.name, "fingerprint": corpus.fingerprint()},
        )
        if number == 0:  # the topics that a result shows
            found = coherence(topics.top_words(TOP_WORDS), passages, splitter=splitter)
            topics = replace(topics, provenance={**topics.provenance, "coherence": found.to_dict()})
        if kept is not None:
            save_topics(kept, topics)
        fits.append(topics)
    return FittedTopics(tuple(fits), None, {"fitted": _provenance(fits)})


def _provenance(fits: Sequence[Topics]) -> list[dict[str, Any]]:
    """For the manifest; coherence stands with the topics."""
    return [{name: value for name, value in each.provenance.items() if name != "coherence"} for each in fits]


def configurations_of(fitted: FittedTopics, config: ProbeConfig) -> list[Configuration]:
    """Knowl 8's assignment for every threshold and topic seed; one configuration for a labelled word list."""
    stop_words, overlap = load_stop_words(config.language), config.overlap
    if fitted.word_list is not None:
        return [Configuration(None, 0, from_word_list(fitted.word_list, stop_words=stop_words, overlap=overlap))]
    return [
        Configuration(threshold, seed, assign_words(topics, threshold, stop_words=stop_words, overlap=overlap))
        for threshold in config.threshold
        for seed, topics in enumerate(fitted.topics)
    ]
