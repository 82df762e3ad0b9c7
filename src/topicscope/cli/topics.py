"""`topicscope topics fit` and `topicscope topics show`."""

import os
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from topicscope.cli.options import Whole
from topicscope.cli.output import ProgressStyle, print_json, print_table, show_progress
from topicscope.errors import InputError
from topicscope.topics import lda
from topicscope.topics.text import MAX_DOCUMENT_BYTES, OnError, open_corpus
from topicscope.topics.topics_file import WordList, load_any, save_topics

app = cyclopts.App(name="topics", help="Fit and show topic models.", help_format="plaintext")


@app.command
def fit(
    corpus: str,
    /,
    *,
    topics: Whole = 100,
    output: Annotated[Path, Parameter(name=("--output", "-o"))] = Path("topics.npz"),
    text_column: str | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    on_error: OnError = "stop",
    max_document_bytes: Whole = MAX_DOCUMENT_BYTES,
    language: str = "en",
    min_count: Whole = lda.MIN_COUNT,
    sweeps: Whole = lda.SWEEPS,
    seed: Whole = 0,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    progress: ProgressStyle = "auto",
) -> None:
    """Fit topics to the passages of a corpus by LDA and save them.

    Args:
        corpus: text, JSONL, CSV, Parquet or MediaWiki dump, compressed or not; a folder of .txt; wikipedia-sample.
        topics: number of topics.
        output: the topics file to write.
        text_column: column or JSON key of the text (default: text).
        id_column: column or JSON key of the document's id (default: its number).
        encoding: of text files.
        on_error: stop at a bad line, or skip and count it.
        max_document_bytes: a longer document or line is a bad one.
        language: whose stop words are left out (ISO 639-1).
        min_count: least number of occurrences of a word in the vocabulary.
        sweeps: Gibbs sweeps over the text.
        seed: of the sampler.
        overwrite: replace the output file.
        json: print one JSON document instead of a table.
        progress: how progress is shown on stderr.
    """
    _require_writable(output, overwrite)
    text = open_corpus(
        corpus,
        text_column=text_column,
        id_column=id_column,
        encoding=encoding,
        on_error=on_error,
        max_document_bytes=max_document_bytes,
    )
    with show_progress(progress) as shown:
        fitted = lda.fit(
            lda.CorpusPassages(text),
            topics,
            sweeps=sweeps,
            seed=seed,
            min_count=min_count,
            language=language,
            progress=shown,
        )
    found = {"name": text.name, "sha256": text.fingerprint(), "skipped": text.skipped}
    fitted = lda.Topics(fitted.model, {**fitted.provenance, "corpus": found})
    save_topics(output, fitted)
    if json:
        print_json({**_summary(fitted, 10), "file": str(output)})
    else:
        _print(fitted, 10)
        print(f"saved to {output}")


@app.command
def show(
    file: Path,
    /,
    *,
    words: Whole = 10,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show the likeliest words of each topic in a topics file, a matrix with its words, or the words of a word list.

    Args:
        file: topics.npz as `topicscope topics fit` wrote it, or anything that `topicscope probe --topics` takes.
        words: words shown a topic.
        json: print one JSON document instead of a table.
    """
    if words < 1:
        raise InputError("no words asked for", received=words, expected="--words of at least 1")
    topics = load_any(file)
    if json:
        print_json(_summary(topics, words))
    else:
        _print(topics, words)


def _require_writable(output: Path, overwrite: bool) -> None:
    """Find out before the work and not after it whether its result can be kept."""
    if output.is_dir():
        raise InputError("the output is a folder", received=str(output), expected="the name of a file, topics.npz say")
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


def _summary(topics: lda.Topics | WordList, words: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "labels": topics.labels,
        "top_words": _words_of(topics, words),
        "provenance": topics.provenance,
    }


def _words_of(topics: lda.Topics | WordList, words: int) -> list[list[str]]:
    if isinstance(topics, lda.Topics):
        return topics.top_words(words)
    members: list[list[str]] = [[] for _ in topics.labels]
    for word, its_topics in zip(topics.words, topics.topics, strict=True):
        for topic in its_topics:
            members[topic].append(word)
    return [found[:words] for found in members]


def _print(topics: lda.Topics | WordList, words: int) -> None:
    known = topics.provenance
    top_words = [" ".join(top) for top in _words_of(topics, words)]
    labels = topics.labels or tuple(map(str, range(len(top_words))))
    title = f"{len(top_words)} topics ({known.get('engine', 'unknown engine')})"
    caption = f"{known.get('vocabulary_size', '?')} words in the vocabulary"
    caption += "".join(f", {known[name]} {name}" for name in ("documents", "tokens", "sweeps") if name in known)
    if isinstance(topics, lda.Topics):
        rows = list(zip(labels, topics.model.alpha.tolist(), top_words, strict=True))
        print_table(title, ("topic", "alpha", "likeliest words"), rows, caption)
    else:
        print_table(title, ("topic", "words"), list(zip(labels, top_words, strict=True)), caption)
    for warning in known.get("warnings", []):
        print(f"warning: {warning}")
