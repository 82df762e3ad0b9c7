"""The main job: probe a model for topic structure in its embeddings and its attention (Knowls 7 and 8).

What a probe makes sure of before it goes on: that there is something to measure, and that a run is the same run.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.attention import TopicLookup, profiled
from topicscope.probing.circuits import circuits_of_probe
from topicscope.probing.config import ProbeOptions
from topicscope.probing.embeddings import EmbeddingProbe
from topicscope.probing.execution import Elsewhere, ModelSource, PassSpec, attention_pass, left_out_warnings
from topicscope.probing.hf import ModelView, pinned
from topicscope.probing.inputs import (
    Documents,
    TopicSource,
    configurations_of,
    corpus_of,
    description_of,
    identity_of,
    location,
    paths_of,
    read_topics,
    topics_from,
    view_of,
)
from topicscope.probing.results import (
    ProbeResult,
    attention_rows,
    control_rows,
    head_rows,
    headline_of_parts,
    result_table,
    with_key_value_heads,
    with_sinks_excluded,
)
from topicscope.probing.statistics import DIFFERENT, PAIRED, PartMoments, rows_read, shuffled_topics
from topicscope.probing.tokens import TokenCache, cache_key, tokens_of
from topicscope.progress import Progress, SilentProgress
from topicscope.records import (
    PROBE,
    Manifest,
    UnfinishedRun,
    describe_environment,
    dump_json,
    now,
    output_path,
    unfinished_run,
)
from topicscope.text import Corpus, WordSplitter, split_words


def identity_of_run(
    view: ModelView,
    weights_hash: str,
    device: str,
    corpus: Corpus,
    topics: Any,
    splitter: WordSplitter,
    options: ProbeOptions,
) -> dict[str, Any]:
    """Everything that decides the numbers of a run, as JSON has it; device: where the text is read."""
    libraries = describe_environment().libraries
    return {
        "model": [view.name, view.model_type, weights_hash, view.dtype, device],
        "text": [corpus.name, corpus.fingerprint()],
        "tokens": cache_key(view.tokenizer, corpus, options, view.max_length),
        "topics": topics,
        "splitter": getattr(splitter, "__qualname__", type(splitter).__qualname__),
        "options": options.model_dump(mode="json"),
        "libraries": {name: libraries[name] for name in ("topicscope", "torch", "transformers", "tomotopy")},
    }


def require_known_words(tokens: TokenCache, view: ModelView) -> None:
    """An error where no token is a word of the text."""
    if not tokens.words:
        raise InputError(
            "no word of the text is known to the tokenizer as one token",
            received=f"{len(tokens)} units",
            where=view.name,
            advice="use a tokenizer of the text's language, or a word splitter that fits it",
        )


def require_pairs(moments: Mapping[str, PartMoments], lookup: TopicLookup) -> list[str]:
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
            where="; ".join(rows_read(moments)[1]) or None,  # rows that are not a number may be the reason
            advice=(
                "list more words"
                if word_list
                else "choose other thresholds (more words are listed at larger ones, "
                "more stand in several topics as well), at least 2 topics"
            )
            + ", more text (--max-units), or --unit passage",
        )
    return warnings


def digest(identity: Mapping[str, Any]) -> str:
    """SHA-256 of an identity."""
    return hashlib.sha256(dump_json(identity).encode()).hexdigest()


def finished(run: UnfinishedRun, identity: Mapping[str, Any]) -> ProbeResult | None:
    """What the target folder holds, if it is the finished result of this very run."""
    if run.resumed or not (run.target / "result.json").is_file():
        return None
    found = ProbeResult.load(run.target)
    if found.manifest.sources.get("run") != digest(identity):
        raise InputError(
            "the folder holds the result of another run",
            received=str(run.target),
            expected="the same model, text, topics and options as before",
            advice="choose another --out, or use --overwrite in place of --resume",
        )
    return found if found.complete else None


def probe(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None = None,
    documents: Documents = "wikipedia-sample",
    *,
    topics: TopicSource = 100,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    command: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    cluster: Elsewhere | None = None,
    **options: Any,
) -> ProbeResult:
    """Measure how much more a model's attention and embeddings connect words of one topic than of different topics.

    model: a Hugging Face name (NAME@REVISION for a version), a folder, or a live model with its `tokenizer`.
    documents: a path, "wikipedia-sample", or live texts that can be read twice (a list, a data set).
    topics: how many LDA topics to fit on the documents, or a topics file, a labelled word list, a `Topics`, or one
        `Topics` per topic seed.
    options: the fields of `ProbeOptions` (threshold, unit, max_units, controls, topic_seeds, overlap, language, …).

    device: "cpu", "cuda", "cuda:1", "mps", or "auto" for the best of these that is there.
    out: folder for the result. The work under way is kept in `out`.unfinished, about once a minute; with `resume` a run
        that was killed or stopped goes on from there, to the same numbers, and a finished one is read. overwrite:
        replace an earlier result of `probe`, of whatever options, and nothing else; see `records.run_folder`.

    cluster: who reads the text in place of this process, in shards: a `topicscope.distributed.Cluster`. It needs `out`,
        a folder that all its machines share, and a model by name. The numbers are those of this process alone.

    One forward pass serves all thresholds and topic seeds; each control is one more pass. After Ctrl-C the result of
    what was read so far is returned with `interrupted` set; before anything was read, KeyboardInterrupt is raised.

    Raises:
        InputError: anything about the model, the text, the topics, the options or the folder that cannot be used.
        RunError: the disk is full; what was finished is kept for `resume`.
    """
    chosen = ProbeOptions.checked(**options)
    target = None if out is None else output_path(out)
    if resume and target is None:
        raise InputError("resume needs the folder of the run", expected="--out DIR --resume")
    if cluster is not None and (target is None or not isinstance(model, str)):
        raise InputError(
            "a cluster reads a model that its machines can load, and leaves its work in a folder that they share",
            received=f"a {type(model).__name__}, out={out}",
            expected="the name or folder of a model, and out=FOLDER",
        )
    if isinstance(model, str):
        model, revision = pinned(model, revision)
    measure = partial(
        _measure,
        model=model,
        tokenizer=tokenizer,
        documents=documents,
        topics=topics,
        device=device,
        dtype=dtype,
        revision=revision,
        trust_remote_code=trust_remote_code,
        splitter=splitter,
        progress=SilentProgress() if progress is None else progress,
        command=command,
        options=chosen,
        cluster=cluster,
    )
    if target is None:
        return measure(None)
    read = [*paths_of(documents, model), *([Path(topics)] if isinstance(topics, (str, Path)) else [])]
    with unfinished_run(target, PROBE, resume=resume, overwrite=overwrite, replaces=resume, inputs=read) as run:
        result = measure(run, resume=resume)
        if result.folder is None:  # else it was read: the run had been finished
            result.write(run.fresh_staging())
            run.publish()
        run.keep = not result.complete
    return result.moved(run.target)


def _measure(
    run: UnfinishedRun | None,
    *,
    resume: bool = False,
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None,
    documents: Documents,
    topics: TopicSource,
    device: str,
    dtype: str | None,
    revision: str | None,
    trust_remote_code: str | None,
    splitter: WordSplitter,
    progress: Progress,
    command: str | None,
    options: ProbeOptions,
    cluster: Elsewhere | None,
) -> ProbeResult:
    if cluster is not None:
        assert run is not None
        cluster.check(run.folder)
    corpus = corpus_of(documents)
    view = view_of(model, tokenizer, device, dtype, revision, trust_remote_code)
    if options.layers is not None or options.heads is not None:
        view = view.only(options.layers, options.heads)
    source = read_topics(topics)
    weights_hash = view.weights_hash()
    computed_on = view.device if cluster is None else cluster.device
    identity = identity_of_run(view, weights_hash, computed_on, corpus, identity_of(source), splitter, options)
    if run is not None:
        done = finished(run, identity) if resume else None
        if done is not None:
            return done
        run.require_same(identity)
    folder = None if run is None else run.folder
    fitted = topics_from(source, corpus, options, splitter, progress, folder)
    configurations = configurations_of(fitted, options)
    tokens = tokens_of(
        view.tokenizer,
        corpus,
        options,
        max_length=view.max_length,
        splitter=splitter,
        progress=progress,
        folder=None if cluster is None or folder is None else folder / "tokens",
        aligner=cluster,
    )
    require_known_words(tokens, view)
    lookup = TopicLookup(configurations, tokens.words, tokens.word_counts())
    compared = EmbeddingProbe(view, tokens, lookup, options, progress)
    warnings = dict.fromkeys(
        [*fitted.warnings, *tokens.unit_counts.warnings, *(w for c in configurations for w in c.assignment.warnings)]
    )

    if cluster is not None:
        cluster.open(
            ModelSource(location(str(model)), dtype, revision, trust_remote_code, weights_hash), tokens, options
        )
    causal = {part.name: part.causal for part in view.parts}
    place = None if folder is None else folder / "model"
    spec = PassSpec("reading", lookup, options, word_pairs=options.permutations > 0, document_rows=True)
    measured = attention_pass(view, tokens, spec, progress, folder=place, elsewhere=cluster)
    left_out = [*measured.left_out]
    interrupted = measured.interrupted
    warnings |= dict.fromkeys(require_pairs(measured.moments, lookup))
    row_counts, row_warnings = rows_read(measured.moments)
    warnings |= dict.fromkeys(row_warnings)
    interrupted = compared.measure(view, interrupted=interrupted)
    circuits, without = circuits_of_probe(view, configurations, fitted.topics)
    warnings |= dict.fromkeys(without)
    controls: list[dict[str, Any]] = []
    for number in range(0 if interrupted else options.controls):
        task = f"random weights {number + 1} of {options.controls}"
        place = None if folder is None else folder / f"control-{number}"
        try:
            seed, spec = options.seed + number, PassSpec(task, lookup, options)
            random_view = view.randomised(seed)
            control = attention_pass(
                random_view, tokens, spec, progress, folder=place, elsewhere=cluster, weights_seed=seed
            )
            interrupted, left_out = control.interrupted, left_out + control.left_out
            compared.add_control(random_view, task, interrupted=interrupted)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            warnings[f"interrupted: {number} of {options.controls} random controls were finished"] = None
            break
        controls += control_rows(options.seed + number, control.moments, causal, configurations)
    attention = attention_rows(measured.moments, causal, configurations)
    if options.exclude_sinks and not interrupted:
        task, place = "without sinks", None if folder is None else folder / "sinks"
        try:
            spec = PassSpec(task, lookup, options, exclude_sinks=True)
            again = attention_pass(view, tokens, spec, progress, folder=place, elsewhere=cluster)
            interrupted, left_out = again.interrupted, left_out + again.left_out
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            warnings["interrupted: the text was not read again without sinks"] = None
        else:
            attention = with_sinks_excluded(attention, attention_rows(again.moments, causal, configurations))
    started = time.perf_counter()
    tests, shuffled, shuffle_warnings = shuffled_topics(
        measured.word_pairs, lookup, 0 if interrupted else options.permutations, options.seed, progress
    )
    costs = {"collecting": sum(p.seconds for p in measured.word_pairs.values())}
    costs["shuffling"] = time.perf_counter() - started
    interrupted = interrupted or (options.permutations > 0 and not tests)
    warnings |= dict.fromkeys(shuffle_warnings)
    warnings |= dict.fromkeys(left_out_warnings(left_out, tokens.documents))
    if measured.interrupted:
        warnings[f"interrupted: {measured.documents} of {measured.documents_planned} documents were read"] = None

    embeddings = compared.table()
    rows = result_table(view.name, attention, pd.DataFrame(controls), embeddings, tests)
    answer = headline_of_parts(view, rows, measured.moments, measured.interrupted)
    heads = with_key_value_heads(head_rows(measured.moments, causal, configurations), view.parts)
    head_examples: tuple[dict[str, Any], ...] = ()
    try:
        if not interrupted:
            heads, head_examples = profiled(view, tokens, lookup, heads, answer, options)
    except KeyboardInterrupt:
        interrupted, warnings["interrupted: heads were not profiled"] = True, None
    similarities = compared.block_map(view, float(answer["threshold"]))
    read_on = device if cluster is None else cluster.device
    recorded = {**options.model_dump(mode="json"), "device": read_on, "dtype": dtype, "revision": revision}
    return ProbeResult(
        headline=answer,
        model=description_of(view, weights_hash, computed_on),
        rows=rows,
        head_table=heads,
        controls=pd.DataFrame(controls),
        embeddings=embeddings,
        document_table=measured.document_table(),
        coverage={
            "text": {k: v for k, v in asdict(tokens.unit_counts).items() if k != "warnings"},
            "alignment": asdict(tokens.coverage),
            "rows": row_counts,
            "pairs": measured.pair_counts(lookup),
            "permutations": shuffled,
            **({"left_out": [asdict(lost) for lost in left_out]} if left_out else {}),
        },
        warnings=tuple(warnings),
        interrupted=interrupted,
        manifest=Manifest(
            created=now(),
            command=command,
            environment=describe_environment(),
            options=recorded if fitted.word_list is None else {**recorded, "threshold": None},
            sources={
                "model": {"name": view.name, "weights_hash": weights_hash},
                "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint()},
                "topics": fitted.provenance,
                "run": digest(identity),
            },
        ),
        moments={k: v for name, part in measured.moments.items() for k, v in part.arrays(name).items()},
        topics=fitted.topics,
        head_examples=head_examples,
        costs=costs if tests else {},
        circuits=circuits,
        embedding_map=similarities,
    )
