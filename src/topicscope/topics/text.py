"""Text as a stream of documents with ids that are kept to the end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class Document:
    """One text with the id it keeps to the end."""

    id: str
    text: str


class Corpus:
    """Documents that can be read again and again."""

    name: str
    skipped: dict[str, int]

    def __iter__(self) -> Iterator[Document]:
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Sha256 over ids and texts as streamed."""
        raise NotImplementedError


def open_corpus(
    source: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    on_error: OnError = "stop",
) -> Corpus:
    """The corpus in a file or folder."""
    raise NotImplementedError


def corpus_from(
    documents: Iterable[object],
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    name: str = "documents",
) -> Corpus:
    """The corpus of live objects."""
    raise NotImplementedError
