"""What a probe is given, a model and documents in their many forms, made into what it works with.

Where the probe's topics come from: fitted here, a file, a labelled word list, or live objects.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.attention import Configuration
from topicscope.probing.config import DEFAULT_THRESHOLDS, ProbeOptions
from topicscope.probing.hf import ModelView, load_model, view_model
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


def corpus_of(documents: Documents) -> Corpus:
    """The corpus of a path, a name or live texts."""
    if isinstance(documents, Corpus):
        return documents
    return open_corpus(documents) if isinstance(documents, (str, Path)) else corpus_from(documents)


def paths_of(documents: Documents, model: object) -> list[Path]:
    """The files and folders of this machine that a probe reads its documents and its model from."""
    place = documents.path if isinstance(documents, Corpus) else documents
    named = [given for given in (place, model) if isinstance(given, (str, Path))]
    return [path for path in (Path(str(name)).expanduser() for name in named) if path.exists()]


def view_of(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str,
    dtype: str | None,
    revision: str | None,
    trust_remote_code: str | None,
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
        return load_model(
            str(model), device=device, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code
        )
    if tokenizer is None:
        raise InputError(
            "a live model needs its tokenizer",
            received=type(model).__name__,
            expected=call,
        )
    return view_model(model, tokenizer)


def description_of(view: ModelView, weights_hash: str, device: str) -> dict[str, Any]:
    """What a result says of its model; device: where it read the text."""
    return {
        "name": view.name,
        "model_type": view.model_type,
        "parts": [asdict(part) for part in view.parts],
        "weights_hash": weights_hash,
        "kernel": view.kernel,
        "attention_path": dict.fromkeys((part.name for part in view.parts), view.path),
        "dtype": view.dtype,
        "device": device,
        "max_length": view.max_length,
        "parameters": view.num_parameters,
    }


def location(model: str) -> str:
    """What other processes know a model by: its name, or the whole path of its folder."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


TopicSource = int | str | Path | Topics | WordList | Sequence[Topics]


Given = int | WordList | tuple[Topics, ...]


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
    options: ProbeOptions,
    splitter: WordSplitter,
    progress: Progress,
    folder: Path | None = None,
) -> FittedTopics:
    """Fit `source` topics on the passages of the whole corpus, once per topic seed; or take what is given.

    folder: where fitted topics are kept, and taken from if they are there.
    """
    if isinstance(source, int):
        fits = []
        for number in range(options.topic_seeds):
            kept = None if folder is None else folder / f"topics-{number}.npz"
            if kept is not None and kept.is_file():
                fits.append(load_topics(kept))
                continue
            fits.append(
                fit(
                    CorpusPassages(corpus),
                    source,
                    sweeps=options.sweeps,
                    seed=options.seed + number,
                    min_count=options.min_count,
                    language=options.language,
                    splitter=splitter,
                    progress=progress,
                    source={"name": corpus.name, "fingerprint": corpus.fingerprint()},
                )
            )
            if number == 0:  # the topics that a result shows
                fits[0] = _with_coherence(fits[0], corpus, splitter)
            if kept is not None:
                save_topics(kept, fits[-1])
        return FittedTopics(tuple(fits), None, {"fitted": [_without_coherence(f.provenance) for f in fits]})
    if isinstance(source, WordList):
        if options.topic_seeds != 1:
            raise InputError(
                "--topic-seeds refits the topic model, and a word list has none",
                received=f"a word list and --topic-seeds {options.topic_seeds}",
                expected="--topics NUMBER, or --topic-seeds 1",
            )
        ignored = "--threshold has no effect with a labelled word list, which has no probabilities"
        warnings = () if options.threshold == DEFAULT_THRESHOLDS else (ignored,)
        return FittedTopics((), source, {"word_list": source.provenance}, warnings)
    if options.topic_seeds != 1 and options.topic_seeds != len(source):
        raise InputError(
            "--topic-seeds refits the topic model, so it needs a number of topics",
            received=f"{len(source)} topic models and --topic-seeds {options.topic_seeds}",
            expected="--topics NUMBER, or --topic-seeds 1",
        )
    return FittedTopics(source, None, {"given": [_without_coherence(t.provenance) for t in source]})


def _with_coherence(topics: Topics, corpus: Corpus, splitter: WordSplitter) -> Topics:
    found = coherence(topics.top_words(TOP_WORDS), CorpusPassages(corpus), splitter=splitter)
    return replace(topics, provenance={**topics.provenance, "coherence": found.to_dict()})


def _without_coherence(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Provenance for the manifest; coherence stands with the topics."""
    return {name: value for name, value in provenance.items() if name != "coherence"}


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
