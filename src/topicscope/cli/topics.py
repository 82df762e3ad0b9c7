"""`topicscope topics fit` and `topicscope topics show`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from topicscope.cli.options import CorpusOptions, OutFile, RunOptions
from topicscope.cli.output import Json, print_json, print_lines, print_table, show_progress
from topicscope.errors import InputError
from topicscope.options import OUTPUT, TEXT, TOPICS, Whole
from topicscope.text import open_corpus, sample_documents
from topicscope.topics import (
    MAX_WORDS,
    MIN_COUNT,
    TOP_WORDS,
    CorpusPassages,
    Engine,
    Rate,
    Topics,
    WordList,
    coherence,
    fit_stream,
    fit_with,
    is_topics_file,
    load_any,
    save_topics,
)

app = cyclopts.App(name="topics", help="Fit and show topic models.", help_format="plaintext")


@app.command
def fit(
    corpus: str,
    /,
    *,
    topics: Annotated[Whole, TOPICS] = 100,
    engine: Annotated[Engine, TOPICS] = "tomotopy",
    text: CorpusOptions = CorpusOptions(),
    language: Annotated[str, TEXT] = "en",
    min_count: Annotated[Whole, TOPICS] = MIN_COUNT,
    sweeps: Annotated[Whole | None, TOPICS] = None,
    seed: Annotated[Whole, TOPICS] = 0,
    stream: Annotated[bool, TOPICS] = False,
    max_words: Annotated[Whole | None, TOPICS] = None,
    sample: Annotated[Whole | None, TEXT] = None,
    sample_seed: Annotated[Whole | None, TEXT] = None,
    output: Annotated[OutFile, Parameter(name=("--output", "-o")), OUTPUT] = Path("topics.npz"),
    run: Annotated[RunOptions, Parameter(parse="^(run|overwrite|json|progress)$")] = RunOptions(),
) -> None:
    """Fit topics to the passages of a corpus by LDA and save them with their coherence.

    Args:
        corpus: text, JSONL, CSV, Parquet or MediaWiki dump, compressed or not; a folder or pattern of these; its URL
            (s3://, gs://, https://, …); wikipedia-sample.
        topics: number of topics.
        engine: tomotopy (Gibbs sampling), or gensim (variational Bayes, holds no text, but every word), an extra.
        language: whose stop words are left out (ISO 639-1).
        min_count: least number of occurrences of a word in the vocabulary.
        sweeps: sweeps over the text (default: 300 of tomotopy, 10 of gensim, 1 with --stream).
        seed: of the sampler.
        stream: with --engine gensim, read the text once, in memory that grows neither with it nor with its words.
        max_words: with --stream, the most words that topics may know (default: 100,000).
        sample: fit to so many documents, drawn by a seed.
        sample_seed: of the sample (default: 0).
        output: the topics file to write.
    """
    _require_fitting(engine, stream, max_words, sample, sample_seed)
    _require_writable(output, run.overwrite)
    whole = open_corpus(corpus, **asdict(text))
    with show_progress(run.progress) as shown:
        drawn = None if sample is None else sample_documents(whole, sample, sample_seed or 0, shown)
        read = whole if drawn is None else drawn.corpus
        passages = CorpusPassages(read)
        options: dict[str, Any] = {"seed": seed, "min_count": min_count, "language": language, "progress": shown}
        if stream:
            most = MAX_WORDS if max_words is None else max_words
            rate = Rate() if sweeps is None else Rate(passes=sweeps)
            fitted = fit_stream(passages, topics, rate=rate, max_words=most, **options)
        else:
            fitted = fit_with(engine, passages, topics, sweeps=sweeps, **options)
        known = fitted.provenance
        cohering = known.get("coherence") or coherence(fitted.top_words(TOP_WORDS), passages).to_dict()
    found = {"name": read.name, "sha256": read.fingerprint(), "skipped": read.skipped}
    found |= {} if drawn is None else {"sample": drawn.provenance}
    fitted = Topics(fitted.model, {**known, "corpus": found, "coherence": cohering})
    save_topics(os.path.realpath(output), fitted)  # through a link, which stays
    if run.json:
        print_json({**_summary(fitted, 10, cohering), "file": str(output)})
    else:
        _print(fitted, 10, cohering)
        print_lines([f"saved to {output}"])


@app.command
def show(
    file: str,
    /,
    *,
    words: Whole = 10,
    corpus: Annotated[str | None, TEXT] = None,
    text: CorpusOptions = CorpusOptions(),
    json: Json = False,
) -> None:
    """Show the likeliest words and the coherence of each topic in a topics file, a matrix or a word list.

    Args:
        file: topics.npz as `topicscope topics fit` wrote it, or anything that `topicscope probe --topics` takes.
        words: words shown a topic.
        corpus: text in which coherence is measured, as for `topics fit` (default: that of the fit, measured then).
    """
    if words < 1:
        raise InputError("no words asked for", received=words, expected="--words of at least 1")
    topics = load_any(file)
    known = topics.provenance.get("coherence")
    if corpus is not None:
        read = open_corpus(corpus, **asdict(text))
        known = coherence(_words_of(topics, TOP_WORDS), CorpusPassages(read)).to_dict() | {"corpus": read.name}
    if json:
        print_json(_summary(topics, words, known))
    else:
        _print(topics, words, known)


def _require_fitting(
    engine: Engine, stream: bool, max_words: int | None, sample: int | None, sample_seed: int | None
) -> None:
    """Options that say nothing, or that an engine cannot follow, are refused and not ignored."""
    if stream and engine != "gensim":
        raise InputError(
            "--stream is of the engine gensim",
            received=f"--engine {engine}, which holds the words of the text in memory",
            expected="--engine gensim --stream",
            advice="fit to a part of the text by --sample N, which gives better topics, or add --engine gensim",
        )
    for needed, given, option, value in (
        (stream, "--stream", "--max-words", max_words),
        (sample is not None, "--sample N", "--sample-seed", sample_seed),
    ):
        if value is not None and not needed:
            raise InputError(f"{option} means nothing without {given}", received=f"{option} {value}", expected=given)


def _require_writable(output: Path, overwrite: bool) -> None:
    """Find out before the work and not after it whether its result can be kept."""
    if output.is_dir():
        raise InputError("the output is a folder", received=str(output), expected="the name of a file, topics.npz say")
    if output.is_symlink() and not output.exists():
        raise InputError("the output is a link that points nowhere", received=str(output), expected="a new file")
    if output.exists() and overwrite and not is_topics_file(output):
        raise InputError(
            "a file is there that topicscope did not write",
            received=str(output),
            expected="a new file, or a topics file",
            advice="choose another --output, or move the file away",
        )
    if output.exists() and not overwrite:
        raise InputError(
            "the output file exists",
            received=str(output),
            expected="a new file",
            advice="choose another --output, or add --overwrite to replace it",
        )
    folder = next(parent for parent in output.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise InputError("the output cannot be written", received=str(output), expected=f"write access to {folder}")


def _summary(topics: Topics | WordList, words: int, cohering: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "labels": topics.labels,
        "top_words": _words_of(topics, words),
        "coherence": cohering,
        "provenance": topics.provenance,
    }


def _words_of(topics: Topics | WordList, words: int) -> list[list[str]]:
    if isinstance(topics, Topics):
        return topics.top_words(words)
    members: list[list[str]] = [[] for _ in topics.labels]
    for word, its_topics in zip(topics.words, topics.topics, strict=True):
        for topic in its_topics:
            members[topic].append(word)
    return [found[:words] for found in members]


def _print(topics: Topics | WordList, words: int, cohering: Mapping[str, Any] | None) -> None:
    known = topics.provenance
    top_words = [" ".join(top) for top in _words_of(topics, words)]
    columns: dict[str, list[Any]] = {"topic": list(topics.labels or map(str, range(len(top_words))))}
    if isinstance(topics, Topics):
        columns["alpha"] = topics.model.alpha.tolist()
    if cohering is not None:
        columns["NPMI"] = ["-" if topic["npmi"] is None else topic["npmi"] for topic in cohering["topics"]]
    columns["likeliest words" if isinstance(topics, Topics) else "words"] = top_words
    title = f"{len(top_words)} topics ({known.get('engine', 'unknown engine')})"
    caption = f"{known.get('vocabulary_size', '?')} words in the vocabulary"
    caption += "".join(f", {known[name]} {name}" for name in ("documents", "tokens", "sweeps") if name in known)
    print_table(title, tuple(columns), list(zip(*columns.values(), strict=True)), caption)
    sample = (known.get("corpus") or {}).get("sample")
    print_lines(
        [
            *_coherence_lines(cohering, columns["topic"]),
            *([_sample_line(sample)] if sample else []),
            *(f"warning: {warning}" for warning in known.get("warnings", [])),
        ]
    )


def _sample_line(sample: Mapping[str, Any]) -> str:
    line = f"a sample of {sample['documents_drawn']} of {sample['documents_of_the_whole']} documents"
    if sample["documents_drawn"] < sample["documents_asked_for"]:
        return f"all {sample['documents_drawn']} documents: {sample['documents_asked_for']} were asked for"
    return f"{line}, drawn by seed {sample['seed']}"


def _coherence_lines(cohering: Mapping[str, Any] | None, labels: Sequence[str]) -> Iterator[str]:
    """The mean, how many topics and pairs have no coherence, and why."""
    if cohering is None:
        yield "coherence: unknown; --corpus TEXT measures it"
        return
    mean = "NaN" if cohering["mean"] is None else f"{cohering['mean']:.3f}"
    yield (
        f"coherence: mean NPMI {mean} over {len(labels) - cohering['nan_topics']} topics ({cohering['top_words']} "
        f"words each, {cohering['passages']} passages); NaN: {cohering['nan_topics']} topics"
    )
    for label, topic in zip(labels, cohering["topics"], strict=True):
        if topic["reason"]:
            yield f"topic {label}: {topic['undefined_pairs']} of {topic['pairs']} pairs left out: {topic['reason']}"
