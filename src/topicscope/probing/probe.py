"""The main job: probe a model for topic structure in its embeddings and its attention (Knowls 7 and 8)."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.attention import TopicLookup, profiled
from topicscope.probing.circuits import circuits_of_probe
from topicscope.probing.config import ProbeConfig, ProbeOverrides
from topicscope.probing.embeddings import EmbeddingProbe, with_controls
from topicscope.probing.execution import (
    LeftOut,
    ModelSource,
    PassResult,
    PassSpec,
    ShardExecutor,
    attention_pass,
)
from topicscope.probing.hf import ModelView
from topicscope.probing.inputs import (
    Documents,
    TopicSource,
    configurations_of,
    corpus_of,
    identity_of,
    location,
    named_model,
    paths_of,
    read_topics,
    topics_from,
    view_of,
)
from topicscope.probing.results import (
    DOCUMENTS,
    DocumentTable,
    ProbeResult,
    attention_rows,
    control_table,
    head_rows,
    result_table,
    with_sinks_excluded,
)
from topicscope.probing.statistics import (
    COUNTS,
    DIFFERENT,
    PAIRED,
    PartMoments,
    headline_of_parts,
    rows_read,
    shuffled_topics,
)
from topicscope.probing.tokens import cache_key, tokens_of
from topicscope.progress import Progress, SilentProgress
from topicscope.records import (
    PROBE,
    Manifest,
    describe_environment,
    dump_json,
    now,
    output_path,
    threshold_of,
    unfinished_run,
)
from topicscope.text import WordSplitter, split_words
from topicscope.topics import PairClass


def probe(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None = None,
    documents: Documents = "wikipedia-sample",
    *,
    topics: TopicSource = 100,
    config: ProbeConfig | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    cluster: ShardExecutor | None = None,
    splitter: WordSplitter = split_words,
    progress: Progress | None = None,
    command: str | None = None,
    **overrides: Unpack[ProbeOverrides],
) -> ProbeResult:
    """Measure how much more a model's attention and embeddings connect words of one topic than of different topics.

    model: a Hugging Face name (NAME@REVISION for a version), a folder, "minilm" (the demo's embedded model), or a live
        model with its `tokenizer`.
    documents: a path, "wikipedia-sample", or live texts that can be read twice (a list, a data set).
    topics: how many LDA topics to fit on the documents, or a topics file, a labelled word list, a `Topics`, or one
        `Topics` per topic seed.
    config, overrides: the options, as a `ProbeConfig` or its fields as keywords, which come first (threshold, unit,
        max_units, controls, topic_seeds, overlap, language, device, …).

    out: folder for the result. The work under way is kept in `out`.unfinished, about once a minute; with `resume` a run
        that was killed or stopped goes on from there, to the same numbers, and a finished one is read. overwrite:
        replace an earlier result of `probe`, of whatever options, and nothing else; see `records.run_folder`.

    cluster: who reads the text in place of this process, in shards: a `topicscope.distributed.Cluster`. It needs `out`,
        where what comes back is kept, and a model by name. The numbers are those of this process alone.

    One forward pass serves all thresholds and topic seeds; each control is one more pass. After Ctrl-C the result of
    what was read so far is returned with `interrupted` set; before anything was read, KeyboardInterrupt is raised.

    Raises:
        InputError: anything about the model, the text, the topics, the options or the folder that cannot be used.
        RunError: the disk is full; what was finished is kept for `resume`.
    """
    config = (config or ProbeConfig()).updated(overrides, probe)
    progress = SilentProgress() if progress is None else progress
    target = None if out is None else output_path(out)
    if resume and target is None:
        raise InputError("resume needs the folder of the run", expected="--out DIR --resume")
    if cluster is not None and (target is None or not isinstance(model, str)):
        raise InputError(
            "a cluster reads a model that it is told by name, and its work is kept in a folder",
            received=f"a {type(model).__name__}, out={out}",
            expected="the name or folder of a model, and out=FOLDER",
        )
    if isinstance(model, str):
        model, revision = named_model(model, config.revision)
        config = replace(config, revision=revision)
    inputs = paths_of(documents, model, topics)
    with (
        nullcontext()
        if target is None
        else unfinished_run(target, PROBE, resume=resume, overwrite=overwrite, replaces=resume, inputs=inputs)
    ) as run:
        folder = None if run is None else run.folder
        work = _Work()

        # Inputs: text, model and topics.
        corpus = corpus_of(documents)
        view = view_of(model, tokenizer, config).only(config.layers, config.heads)
        source, weights_hash = read_topics(topics), view.weights_hash()
        computed_on = view.device if cluster is None else cluster.device

        # Everything that decides the numbers tells whether a run that is resumed is this one.
        libraries = describe_environment().libraries
        saved = config.to_dict()
        identity = {
            "model": [view.name, view.model_type, weights_hash, view.dtype, computed_on],
            "text": [corpus.name, corpus.fingerprint()],
            "tokens": cache_key(view.tokenizer, corpus, config, view.max_length),
            "topics": identity_of(source),
            "splitter": getattr(splitter, "__qualname__", type(splitter).__qualname__),
            "options": {name: value for name, value in saved.items() if name not in ("device", "dtype", "revision")},
            "libraries": {name: libraries[name] for name in ("topicscope", "torch", "transformers", "tomotopy")},
        }
        digest = hashlib.sha256(dump_json(identity).encode()).hexdigest()
        if run is not None:
            done = _finished(run.target, digest) if resume and not run.resumed else None
            if done is not None:
                return done
            run.require_same(identity)
        fitted = topics_from(source, corpus, config, splitter, progress, folder)
        configurations = configurations_of(fitted, config)

        # Tokens, and which of them are words with a topic.
        tokens = tokens_of(
            view.tokenizer,
            corpus,
            config,
            max_length=view.max_length,
            splitter=splitter,
            progress=progress,
            aligner=cluster,
        )
        if not tokens.words:
            raise InputError(
                "no word of the text is known to the tokenizer as one token",
                received=f"{len(tokens)} units",
                where=view.name,
                advice="use a tokenizer of the text's language, or a word splitter that fits it",
            )
        lookup = TopicLookup(configurations, tokens.words, tokens.word_counts)
        work.warnings += [*fitted.warnings, *tokens.unit_counts.warnings]
        work.warnings += [warning for c in configurations for warning in c.assignment.warnings]

        # Forward passes: the model, random weights, the model without sinks.
        embedding_probe = EmbeddingProbe(view, tokens, lookup, config, progress)
        if cluster is not None:
            loaded = ModelSource(
                location(str(model)), config.dtype, config.revision, config.trust_remote_code, weights_hash
            )
            cluster.open(loaded, view, tokens)

        def forward_pass(reader: ModelView, spec: PassSpec, name: str, weights_seed: int | None = None) -> PassResult:
            """One pass whose state is kept in the folder `name` of the run."""
            kept = None if folder is None else folder / name
            found = attention_pass(
                reader, tokens, spec, progress, folder=kept, executor=cluster, weights_seed=weights_seed
            )
            work.left_out += found.left_out
            return found

        spec = PassSpec("reading", lookup, config, word_pairs=config.permutations > 0, document_rows=True)
        measured = forward_pass(view, spec, "model")
        row_counts, row_warnings = rows_read(measured.moments)
        work.warnings += _require_pairs(measured.moments, lookup) + row_warnings
        work.interrupted = embedding_probe.measure(view, interrupted=measured.interrupted)
        circuits, without_circuits = circuits_of_probe(view, configurations, fitted.topics)
        work.warnings += without_circuits
        control_moments: list[Mapping[str, PartMoments]] = []
        for number in range(config.controls):
            if work.interrupted:
                break
            with work.until_interrupted(f"{number} of {config.controls} random controls were finished"):
                seed = config.seed + number
                random_view = view.randomised(seed)
                spec = PassSpec(f"random weights {number + 1} of {config.controls}", lookup, config)
                control = forward_pass(random_view, spec, f"control-{number}", seed).whole()
                embedding_probe.add_control(random_view, spec.task)
                control_moments.append(control.moments)
        without_sinks: Mapping[str, PartMoments] | None = None
        if config.exclude_sinks and not work.interrupted:
            with work.until_interrupted("the text was not read again without sinks"):
                spec = PassSpec("without sinks", lookup, config, exclude_sinks=True)
                without_sinks = forward_pass(view, spec, "sinks").whole().moments

        # Estimates: ratios with their errors, and what they are when topics are shuffled over words.
        attention = attention_rows(measured.moments, view.parts, configurations)
        if without_sinks is not None:
            attention = with_sinks_excluded(attention, attention_rows(without_sinks, view.parts, configurations))
        controls = control_table(config.seed, control_moments, view.parts, configurations)
        started = time.perf_counter()
        permutations = 0 if work.interrupted else config.permutations
        tests, shuffled, shuffle_warnings = shuffled_topics(
            measured.word_pairs, lookup, permutations, config.seed, progress
        )
        shuffling = time.perf_counter() - started
        work.interrupted = work.interrupted or (config.permutations > 0 and not tests)
        work.warnings += shuffle_warnings + [lost.warning(tokens.documents) for lost in work.left_out]
        if measured.interrupted:
            work.warnings.append(
                f"interrupted: {measured.documents} of {measured.documents_planned} documents were read"
            )

        # Tables: one row per threshold and part, per head, and the answer in one sentence.
        embeddings = with_controls(embedding_probe.measured, embedding_probe.controls)
        rows = result_table(view.name, attention, controls, embeddings, tests)
        answer = headline_of_parts(view.name, rows, measured.moments, measured.interrupted)
        heads = head_rows(measured.moments, view.parts, configurations)
        head_examples: tuple[dict[str, Any], ...] = ()
        if config.profile and not work.interrupted:
            with work.until_interrupted("heads were not profiled"):
                heads, head_examples = profiled(view, tokens, lookup, heads, answer, config)

        # Pairs of every class: what the ratios rest on and what they leave out.
        pairs = [
            {
                "part": name,
                "threshold": configuration.threshold,
                "topic_seed": configuration.topic_seed,
                **{k.name: int(part.pooled_total[c, COUNTS][k]) for k in PairClass},
                "words_with_topic": len(configuration.assignment.words),
                "words_with_topic_in_text": int(lookup.memberships[c].any(1).sum()),
                "ambiguous_words_dropped": configuration.assignment.dropped_ambiguous,
            }
            for name, part in measured.moments.items()
            for c, configuration in enumerate(configurations)
        ]

        # Result
        recorded = saved if cluster is None else {**saved, "device": cluster.device}
        left_out = {"left_out": [asdict(lost) for lost in work.left_out]} if work.left_out else {}
        result = ProbeResult(
            headline=answer,
            model={
                "name": view.name,
                "model_type": view.model_type,
                "parts": [asdict(part) for part in view.parts],
                "weights_hash": weights_hash,
                "kernel": view.kernel,
                "attention_path": dict.fromkeys((part.name for part in view.parts), view.path),
                "dtype": view.dtype,
                "device": computed_on,
                "max_length": view.max_length,
                "parameters": view.num_parameters,
            },
            rows=rows,
            head_table=heads,
            controls=controls,
            embeddings=embeddings,
            document_table=measured.document_table,
            coverage={
                "text": {k: v for k, v in asdict(tokens.unit_counts).items() if k != "warnings"},
                "alignment": asdict(tokens.coverage),
                "rows": row_counts,
                "pairs": pairs,
                "permutations": shuffled,
                **left_out,
            },
            warnings=tuple(dict.fromkeys(work.warnings)),
            interrupted=work.interrupted,
            manifest=Manifest(
                created=now(),
                command=command,
                environment=describe_environment(),
                options=recorded if fitted.word_list is None else {**recorded, "threshold": None},
                sources={
                    "model": {"name": view.name, "weights_hash": weights_hash},
                    "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint()},
                    "topics": fitted.provenance,
                    "run": digest,
                },
            ),
            moments={k: v for name, part in measured.moments.items() for k, v in part.arrays(name).items()},
            topics=fitted.topics,
            head_examples=head_examples,
            costs={"collecting": sum(p.seconds for p in measured.word_pairs.values()), "shuffling": shuffling}
            if tests
            else {},
            circuits=circuits,
            embedding_map=embedding_probe.block_map(view, threshold_of(answer["threshold"])),
        )
        if run is not None:
            result.write(run.fresh_staging())
            run.publish()
            run.keep = not result.complete
            result = replace(result, document_table=DocumentTable([run.target / DOCUMENTS]), folder=run.target)
        return result


def _finished(target: Path, digest: str) -> ProbeResult | None:
    """What the target folder holds, if it is the finished result of this very run."""
    if not (target / "result.json").is_file():
        return None
    found = ProbeResult.load(target)
    if found.manifest.sources.get("run") != digest:
        raise InputError(
            "the folder holds the result of another run",
            received=str(target),
            expected="the same model, text, topics and options as before",
            advice="choose another --out, or use --overwrite in place of --resume",
        )
    return found if found.complete else None


def _require_pairs(moments: Mapping[str, PartMoments], lookup: TopicLookup) -> list[str]:
    """Warnings for thresholds without pairs; an error where no threshold has any."""
    warnings, found = [], False
    word_list = lookup.configurations[0].threshold is None
    for c, configuration in enumerate(lookup.configurations):
        counts = next(iter(moments.values())).pooled_total[c, COUNTS]
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


@dataclass
class _Work:
    """What there is to say of the work on a probe.

    interrupted: Ctrl-C was pressed. left_out: documents that a pass could not read.
    """

    interrupted: bool = False
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @contextmanager
    def until_interrupted(self, outcome: str) -> Iterator[None]:
        """A step that Ctrl-C ends, which leaves the work at `outcome`."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            self.warnings.append(f"interrupted: {outcome}")
