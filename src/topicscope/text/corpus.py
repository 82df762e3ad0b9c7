"""Text as a stream of documents that can be read again, from files or live objects, with ids kept to the end; and a
sample of them.

The corpus is never held in memory: every pass opens its source again. What a pass leaves out it counts by reason.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import name_of, place_of
from topicscope.text.mediawiki import read_sample, sample_dump
from topicscope.text.readers import reader_of
from topicscope.text.source import MAX_DOCUMENT_BYTES, Document, Faults, OnError, Source, is_encodable

SAMPLE = "wikipedia-sample"


class Corpus:
    """Documents that can be read again and again.

    name: for records; a file name or what the caller said. path: the file or folder of this machine that is read.
    skipped: reason -> count of the last complete pass (empty documents, redirects, bad lines, …).

    Iterating raises InputError where the source is unusable, where it holds no document at all, and where a second
    pass gives other documents than the first, since topics and probe would then speak of different texts.
    """

    def __init__(self, name: str, read: Callable[[Faults], Iterator[Document]], on_error: OnError = "stop") -> None:
        self.name = name
        self.path: Path | None = None
        self.skipped: dict[str, int] = {}
        self._read = read
        self._on_error: OnError = on_error
        self._fingerprint: str | None = None

    def __iter__(self) -> Iterator[Document]:
        faults = Faults(self._on_error)
        digest = hashlib.sha256()
        documents = 0
        for document in self._read(faults):
            if not document.text.strip():
                faults.skip("empty document")
                continue
            documents += 1
            for part in (document.id.encode(), document.text.encode()):
                # With its length before it, no part can be mistaken for the end of another.
                digest.update(len(part).to_bytes(8, "big") + part)
            yield document
        self.skipped = dict(faults.counts)
        if not documents:
            raise InputError(
                "the corpus is empty",
                received=f"no document with text; left out: {self.skipped}" if self.skipped else "no document",
                expected="at least one document",
                where=self.name,
            )
        if self._fingerprint not in (None, digest.hexdigest()):
            raise InputError(
                "the corpus changed between two passes",
                received="other documents, or another order, than the first time",
                expected="the same documents in the same order on every pass",
                where=self.name,
                advice="do not write to the files while they are read; do not shuffle on every pass",
            )
        self._fingerprint = digest.hexdigest()

    def fingerprint(self) -> str:
        """Sha256 (hex) over ids and texts as streamed; costs a pass unless one was already made."""
        if self._fingerprint is None:
            for _ in self:
                pass
        assert self._fingerprint is not None
        return self._fingerprint


def open_corpus(
    source: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    on_error: OnError = "stop",
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
) -> Corpus:
    """The corpus in a file or folder, of this machine or at a URL of a storage, or "wikipedia-sample".

    | source | documents | default id |
    | --- | --- | --- |
    | .txt | one a line | line number |
    | folder of .txt | one a file, subfolders too | path inside the folder |
    | folder of shards (.parquet, .jsonl, .csv, .tsv, .xml) | as in one file, by name | path inside:number, page title |
    | pattern, such as data/train-*.parquet | as in a folder of what matches it | as there |
    | .jsonl, .ndjson, .json | one JSON object a line | line number |
    | .csv, .tsv | one a row, with a header | row number |
    | .parquet | one a row | row number |
    | .xml | articles of a MediaWiki dump, stripped of markup | page title |

    Each also with .gz, .bz2 or .zst behind it. Any of them may be a URL that fsspec knows (s3://, gs://, az://,
    https://, memory://, …), with the package for it installed (s3fs, gcsfs, adlfs, aiohttp). A folder that holds any
    .txt is one of .txt; shards are of one kind, names that begin with . or _ are none of them, and what is left out is
    counted. Parquet is read some rows at a time, and only the columns needed are fetched.

    Numbers count from 1. `text_column` ("text" by default) and `id_column` name the columns or JSON keys. With
    on_error="skip" bad lines are left out and counted in `Corpus.skipped`. A document or line of more than
    `max_document_bytes` bytes is bad too, so that a decompression bomb cannot fill the memory. The first document is
    read at once, so that most errors come before any work is done.

    Raises:
        InputError: missing or unreadable source, a storage that nobody knows or that refuses, shards of several kinds,
            unknown extension or encoding, no document, a missing column, and with on_error="stop" the first bad line;
            errors in the middle of a file come when it is reached.
    """
    if on_error not in get_args(OnError):
        raise InputError("unknown on_error", received=on_error, expected='"stop" or "skip"')
    if max_document_bytes < 1:
        raise InputError("bad option --max-document-bytes", received=max_document_bytes, expected="at least 1")
    if str(source) == SAMPLE:
        return wikipedia_sample()
    place = Source(place_of(source), text_column or "text", id_column, encoding, max_document_bytes)
    read = reader_of(place)
    corpus = Corpus(name_of(place.path), lambda faults: read(place, faults), on_error)
    corpus.path = place.path if isinstance(place.path, Path) else None
    next(iter(corpus))
    return corpus


def wikipedia_sample() -> Corpus:
    """105 articles of English Wikipedia (CC BY-SA) that the package gensim ships, as plain prose.

    The dump has 106; one is nothing but a list. Its 100 redirects are counted too.

    Stripping the markup takes some ten seconds once; the text is then cached (see `text.mediawiki`).

    Raises:
        InputError: gensim is not installed, or ships no such file.
    """
    dump = sample_dump()
    return Corpus(SAMPLE, lambda faults: read_sample(dump, faults))


def corpus_from(
    documents: Iterable[object],
    *,
    text_column: str = "text",
    id_column: str | None = None,
    name: str = "documents",
) -> Corpus:
    """The corpus of live objects: any iterable that can be read twice, such as a list or a Hugging Face data set.

    A data set may be of `datasets`, in memory or streamed; it is read row by row. An item is a string, a `Document`,
    a pair (id, text), or a mapping with the text under `text_column` and, if given, the id under `id_column`. The
    default id is the item's number, from 1.

    Raises:
        InputError: a one-shot iterator or generator, a single string, a data set with several splits, an item of
            another kind (when it is reached).
    """
    if isinstance(documents, (str, bytes, Path)):
        raise InputError(
            "a single string is no corpus",
            received=repr(documents)[:80],
            expected="a list of texts",
            advice="wrap it in a list, or use open_corpus for a file",
        )
    if isinstance(documents, Corpus):
        return documents
    if isinstance(documents, Mapping):
        raise InputError(
            "a mapping is no corpus",
            received=f"{type(documents).__name__} with {', '.join(map(str, list(documents)[:8]))}",
            expected="an iterable of texts or rows",
            advice='choose a split of a data set, such as dataset["train"]; pass list(mapping.items()) for {id: text}',
        )
    if isinstance(documents, pd.DataFrame):
        raise InputError(
            "a data frame is no corpus: it gives its columns and not its rows",
            received=f"columns {', '.join(map(str, documents.columns[:8]))}",
            expected="an iterable of texts or rows",
            advice='pass one column, frame["text"], or frame.to_dict("records")',
        )
    if isinstance(documents, Iterator):
        raise InputError(
            "a corpus is read more than once, and this can be read only once",
            received=type(documents).__name__,
            expected="a list, a dataset, or an object whose __iter__ starts again",
            advice="pass list(documents), or write the texts to a JSONL file and use open_corpus",
        )

    def read(faults: Faults) -> Iterator[Document]:
        for number, item in enumerate(documents, start=1):
            yield _document_of(item, number, text_column, id_column, name)

    return Corpus(name, read)


def _document_of(item: object, number: int, text_column: str, id_column: str | None, name: str) -> Document:
    where = f"{name}, item {number}"
    identity: object = number
    text: object = item
    if isinstance(item, Document):
        identity, text = item.id, item.text
    elif isinstance(item, Mapping):
        for column in (text_column, id_column):
            if column is not None and column not in item:
                raise InputError(
                    f'no column "{column}"',
                    received=f"columns {', '.join(map(str, item))}",
                    where=where,
                    advice="name the column by text_column and id_column",
                )
        text = item[text_column]
        identity = number if id_column is None else item[id_column]
    elif isinstance(item, tuple) and len(item) == 2:
        identity, text = item
    if not isinstance(text, str) or not isinstance(identity, (str, Integral)) or not is_encodable(f"{identity}{text}"):
        raise InputError(
            "an item of the corpus is no text",
            received=repr(item)[:80],
            expected="str, Document, (id, text) or a mapping, of valid Unicode",
            where=where,
        )
    return Document(str(identity), str(text))  # a data set in numpy's format has strings of its own


@dataclass(frozen=True)
class Sample:
    """corpus: the documents drawn, read again from the whole text each time; provenance: how they were drawn."""

    corpus: Corpus
    provenance: dict[str, Any]


def sample_documents(corpus: Corpus, documents: int, seed: int = 0, progress: Progress | None = None) -> Sample:
    """`documents` documents of a corpus, drawn in one reading that holds no text; all of them where it has no more.

    Document i (counted from 1) with the id d has the 64-bit number h(seed, i, d), a keyed hash. The sample is that of
    the N smallest, in the order of the text; so every set of N documents is equally likely over the seeds, the same
    text and seed give the same sample, and that of N is part of that of N + 1. Documents with one id are drawn each on
    its own.

    provenance: documents asked for, drawn and there; the seed; the fingerprint of the whole. That of the sample is
    `Sample.corpus.fingerprint()`, as of every corpus. The memory needed is that of the numbers of the documents drawn.

    Raises:
        InputError: fewer than one document asked for, a seed below 0 or not below 2⁶⁴, or what reading `corpus` raises.
    """
    if documents < 1:
        raise InputError("bad option --sample", received=documents, expected="a number of documents of at least 1")
    if not 0 <= seed < 2**64:
        raise InputError("bad option --sample-seed", received=seed, expected="a whole number from 0 to 2^64 - 1")
    progress = SilentProgress() if progress is None else progress
    # (-hash, -number): the heap's first entry is the next to go.
    kept: list[tuple[int, int]] = []
    number, key = 0, seed.to_bytes(8, "big")
    with tracked(progress, "draw a sample", None, "documents"):
        for number, document in enumerate(corpus, start=1):
            keyed = hashlib.blake2b(number.to_bytes(8, "big") + document.id.encode(), digest_size=8, key=key)
            entry = (-int.from_bytes(keyed.digest(), "big"), -number)
            if len(kept) < documents:
                heapq.heappush(kept, entry)
            elif entry > kept[0]:
                heapq.heapreplace(kept, entry)
            if number % 1000 == 0:
                progress.update("draw a sample", number)
    drawn = frozenset(-entry[1] for entry in kept)
    provenance = {
        "documents_asked_for": documents,
        "documents_drawn": len(drawn),
        "documents_of_the_whole": number,
        "seed": seed,
        "sha256_of_the_whole": corpus.fingerprint(),
    }
    return Sample(Corpus(corpus.name, lambda faults: _read(corpus, drawn, faults)), provenance)


def _read(corpus: Corpus, drawn: frozenset[int], faults: Faults) -> Iterator[Document]:
    for number, document in enumerate(corpus, start=1):
        if number in drawn:
            yield document
        else:
            faults.skip("not sampled")
    faults.counts.update(corpus.skipped)
