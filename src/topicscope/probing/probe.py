"""The main job: probe a model for topic structure in its embeddings and its attention (Knowls 7 and 8)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.alignment import AlignedUnit, align_units
from topicscope.probing.embedding_table import embedding_rows
from topicscope.probing.loading import load_model
from topicscope.probing.lookup import TopicLookup
from topicscope.probing.model import ModelView, view_model
from topicscope.probing.moments import DIFFERENT, PAIRED, PartMoments
from topicscope.probing.options import ProbeOptions
from topicscope.probing.passes import attention_pass
from topicscope.probing.result import ProbeResult, headline
from topicscope.probing.table import attention_rows, control_rows, head_rows, result_table
from topicscope.probing.topic_source import TopicSource, configurations_of, topics_from
from topicscope.progress import Progress, SilentProgress
from topicscope.records import Manifest, describe_environment
from topicscope.records.manifest import now
from topicscope.topics.text import Corpus, Document, corpus_from, open_corpus
from topicscope.topics.units import sample_units
from topicscope.topics.words import WordSplitter, split_words

Documents = str | Path | Corpus | Iterable[str | Document | tuple[str, str] | dict[str, Any]]


def probe(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None = None,
    documents: Documents = "wikipedia-sample",
    *,
    topics: TopicSource = 100,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    command: str | None = None,
    **options: Any,
) -> ProbeResult:
    """Measure how much more a model's attention and embeddings connect words of one topic than of different topics.

    model: a Hugging Face name, a folder, or a live model with its `tokenizer`.
    documents: a path, "wikipedia-sample", or live texts that can be read twice (a list, a data set).
    topics: how many LDA topics to fit on the documents, or a topics file, a labelled word list, a `Topics`, or one
        `Topics` per topic seed.
    options: the fields of `ProbeOptions` (threshold, unit, max_units, controls, topic_seeds, overlap, language, …).

    One forward pass serves all thresholds and topic seeds; each control is one more pass. After Ctrl-C the result of
    what was read so far is returned with `interrupted` set; before anything was read, KeyboardInterrupt is raised.

    Raises:
        InputError: anything about the model, the text, the topics or the options that cannot be used.
    """
    chosen = ProbeOptions.checked(**options)
    progress = SilentProgress() if progress is None else progress
    corpus = _corpus(documents)
    view = _view(model, tokenizer, device, dtype, revision)
    fitted = topics_from(topics, corpus, chosen, splitter, progress)
    configurations = configurations_of(fitted, chosen)
    units, unit_counts = sample_units(
        corpus, chosen.unit, chosen.max_units, chosen.seed, chosen.language, progress, splitter=splitter
    )
    aligned, coverage = align_units(view.tokenizer, units, splitter=splitter, max_length=view.max_length)
    _require_known_words(aligned, view)
    lookup = TopicLookup(configurations, [word for unit in aligned for word in unit.words if word is not None])
    warnings = dict.fromkeys([*unit_counts.warnings, *(w for c in configurations for w in c.assignment.warnings)])

    causal = {part.name: part.causal for part in view.parts}
    measured = attention_pass(view, aligned, lookup, chosen, "reading", progress, keep_documents=True)
    interrupted = measured.interrupted
    warnings |= dict.fromkeys(_require_pairs(measured.moments, lookup))
    embeddings = embedding_rows(view, configurations)
    controls: list[dict[str, Any]] = []
    for number in range(0 if interrupted else chosen.controls):
        task = f"random weights {number + 1} of {chosen.controls}"
        try:
            random_view = view.randomised(chosen.seed + number)
            control = attention_pass(random_view, aligned, lookup, chosen, task, progress)
            interrupted = control.interrupted
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            warnings[f"interrupted: {number} of {chosen.controls} random controls were finished"] = None
            break
        controls += control_rows(chosen.seed + number, control.moments, causal, configurations)
    if measured.interrupted:
        warnings[f"interrupted: {measured.documents} of {measured.documents_planned} documents were read"] = None

    weights_hash = view.weights_hash()
    rows = result_table(
        view.name, attention_rows(measured.moments, causal, configurations), pd.DataFrame(controls), embeddings
    )
    return ProbeResult(
        headline=_headline(view, rows, measured.moments, measured.interrupted),
        model=_description(view, weights_hash),
        rows=rows,
        head_table=head_rows(measured.moments, causal, configurations),
        controls=pd.DataFrame(controls),
        embeddings=embeddings,
        documents=measured.document_table,
        coverage={
            "text": {k: v for k, v in asdict(unit_counts).items() if k != "warnings"},
            "alignment": asdict(coverage),
            "pairs": measured.pair_counts(lookup),
        },
        warnings=tuple(warnings),
        interrupted=interrupted,
        manifest=Manifest(
            created=now(),
            command=command,
            environment=describe_environment(),
            options={**chosen.model_dump(mode="json"), "device": device, "dtype": dtype, "revision": revision},
            sources={
                "model": {"name": view.name, "weights_hash": weights_hash},
                "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint()},
                "topics": fitted.provenance,
            },
        ),
        moments={k: v for name, part in measured.moments.items() for k, v in part.arrays(name).items()},
        topics=fitted.topics,
    )


def _corpus(documents: Documents) -> Corpus:
    if isinstance(documents, Corpus):
        return documents
    return open_corpus(documents) if isinstance(documents, (str, Path)) else corpus_from(documents)


def _view(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str,
    dtype: str | None,
    revision: str | None,
) -> ModelView:
    if isinstance(model, ModelView):
        return model
    if isinstance(model, (str, Path)):
        return load_model(str(model), device=device, dtype=dtype, revision=revision)
    if tokenizer is None:
        raise InputError(
            "a live model needs its tokenizer",
            received=type(model).__name__,
            expected="topicscope.probe(model, tokenizer, documents)",
        )
    return view_model(model, tokenizer)


def _description(view: ModelView, weights_hash: str) -> dict[str, Any]:
    return {
        "name": view.name,
        "model_type": view.model_type,
        "parts": [asdict(part) for part in view.parts],
        "weights_hash": weights_hash,
        "kernel": view.kernel,
        "dtype": view.dtype,
        "device": view.device,
        "max_length": view.max_length,
        "parameters": view.num_parameters,
    }


def _require_known_words(aligned: list[AlignedUnit], view: ModelView) -> None:
    if not any(word is not None for unit in aligned for word in unit.words):
        raise InputError(
            "no word of the text is known to the tokenizer as one token",
            received=f"{len(aligned)} units",
            where=view.name,
            advice="use a tokenizer of the text's language, or a word splitter that fits it",
        )


def _require_pairs(moments: Mapping[str, PartMoments], lookup: TopicLookup) -> list[str]:
    """Warnings for thresholds without pairs; an error where no threshold has any."""
    warnings, found = [], False
    word_list = lookup.configurations[0].threshold is None
    for c, configuration in enumerate(lookup.configurations):
        counts = next(iter(moments.values())).counts(c)
        missing = [name for name, ks in (("same", PAIRED), ("different", DIFFERENT)) if sum(counts[k] for k in ks) == 0]
        found = found or not missing
        if missing:
            warnings.append(
                f"threshold {configuration.threshold}, topic seed {configuration.topic_seed}: the text has no "
                f"{' and no '.join(missing)}-topic pair, so its ratios are missing; a larger --threshold lists more "
                "words, a smaller one leaves fewer of them in several topics, where they belong to none"
            )
    if not found:
        tried = "the word list" if word_list else f"thresholds {[c.threshold for c in lookup.configurations]}"
        words = [
            f"{len(c.assignment.words)} ({c.assignment.dropped_ambiguous} more in several)"
            for c in lookup.configurations
        ]
        raise InputError(
            "no same-topic and different-topic pair of words was found at any threshold",
            received=f"{tried}; words with one topic: {', '.join(words)}",
            expected="units in which two words of one topic meet, and units in which two words of different topics do",
            advice=(
                "list more words"
                if word_list
                else "choose other thresholds (more words are listed at larger ones, "
                "more stand in several topics as well), at least 2 topics"
            )
            + ", more text (--max-units), or --unit passage",
        )
    return warnings


def _headline(
    view: ModelView, rows: pd.DataFrame, moments: Mapping[str, PartMoments], interrupted: bool
) -> dict[str, Any]:
    """The first part at the middle threshold that has a ratio."""
    part = view.parts[0]
    measured = rows[(rows["source"] == "measured") & (rows["part"] == part.name)].reset_index(drop=True)
    usable = measured[measured["attention_ratio"].notna()]
    usable = measured if usable.empty else usable
    row = {str(key): value for key, value in usable.iloc[len(usable) // 2].to_dict().items()}
    return headline(view.name, row, moments[part.name].documents, interrupted)
