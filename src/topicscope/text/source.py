"""A source of text as bytes and as lines, the documents it gives, and the count of what it does not give.

Here is the one place that decides whether a bad piece of input stops the reading or is counted (`Faults`).
"""

import codecs
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from topicscope.errors import InputError
from topicscope.records import Place, open_place, shown, suffix_of, without_secrets

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
OnError = Literal["stop", "skip"]
MAX_DOCUMENT_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Document:
    """One text with the id it keeps to the end; documents of one id are one cluster in every standard error."""

    id: str
    text: str


@dataclass
class Faults:
    """Counts what one pass over a corpus left out, by reason."""

    on_error: OnError = "stop"
    counts: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str) -> None:
        """Leave something out that is no fault, such as a redirect."""
        self.counts[reason] += 1

    def bad(self, reason: str, error: InputError) -> None:
        """Raise `error`, or with on_error="skip" count it under `reason`."""
        if self.on_error == "stop":
            raise error
        self.skip(reason)


def is_encodable(text: str) -> bool:
    """Whether a string is text: no lone surrogate, which neither UTF-8 nor a tokenizer could take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Source:
    """A file or folder, of this machine or of a storage, with what the user said about it."""

    path: Place
    text_column: str = "text"
    id_column: str | None = None
    encoding: str = "utf-8"
    max_document_bytes: int = MAX_DOCUMENT_BYTES

    def bad_length(self, faults: Faults, where: object) -> None:
        """Report a document (or line) that is longer than allowed, which may be a decompression bomb."""
        problem = InputError(
            "a document is too large",
            received=f"more than {self.max_document_bytes} bytes",
            expected=f"at most {self.max_document_bytes} bytes in one document or line",
            where=where,
            advice="cut it into smaller ones, allow more with --max-document-bytes, or leave it out with "
            "--on-error skip",
        )
        faults.bad("larger than --max-document-bytes", problem)


@contextmanager
def open_bytes(path: Place, *, seeks: bool = False) -> Iterator[io.BufferedIOBase | io.RawIOBase]:
    """The decompressed bytes of a file.

    Arrow decompresses, because it notices a truncated stream in all three formats. seeks: see `open_place`.

    Raises:
        InputError: missing, unreadable, truncated or not compressed as its name says.
    """
    suffix = suffix_of(path)
    try:
        with open_place(path, seeks=seeks and suffix not in COMPRESSIONS) as raw:
            if suffix not in COMPRESSIONS:
                yield raw
                return
            with io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw), COMPRESSIONS[suffix])) as stream:
                yield stream
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            "the file cannot be read",
            received=without_secrets(getattr(error, "strerror", None) or str(error)),
            expected=f"a complete {suffix} file" if suffix in COMPRESSIONS else "a readable file",
            where=shown(path),
            advice="check path and permissions; copy or download it again if it is truncated"
            if isinstance(path, Path)
            else "check permissions, credentials and network; run again if the connection broke off",
        ) from error


def check_encoding(encoding: str) -> None:
    """Refuse unknown encodings and those where a line break is not one byte (UTF-16), as lines are cut as bytes."""
    try:
        usable = "\n".encode(encoding).removeprefix(codecs.BOM_UTF8) == b"\n"
    except (LookupError, ValueError) as error:
        raise InputError(
            "unknown encoding", received=encoding, expected="a name Python knows, such as utf-8, latin-1, cp1252"
        ) from error
    if not usable:
        raise InputError(
            "this encoding cannot be read line by line",
            received=encoding,
            expected="utf-8, or another encoding that extends ASCII",
            advice=f"convert the file: iconv -f {encoding} -t utf-8",
        )


def decoded_lines(source: Source, stream: io.BufferedIOBase | io.RawIOBase, faults: Faults) -> Iterator[str]:
    """The lines of a stream as text, line breaks kept.

    With on_error="skip" an undecodable byte becomes a lone surrogate, by which `row_documents` knows the row to leave
    out; so a broken line inside a quoted CSV field cannot shift what follows. A line of more than
    `max_document_bytes` is a fault; never is more than that held.
    """
    is_utf8 = codecs.lookup(source.encoding).name.startswith("utf-8")
    errors = "strict" if faults.on_error == "stop" else "surrogateescape"
    offset = number = 0
    while line := stream.readline(source.max_document_bytes + 1):
        number += 1
        if len(line) > source.max_document_bytes and not line.endswith(b"\n"):
            source.bad_length(faults, f"{source.path}, line {number}")
            while line and not line.endswith(b"\n"):
                offset += len(line)
                line = stream.readline(_SKIPPED_AT_ONCE)
            offset += len(line)
            yield SkippedLine("\n")
            continue
        try:
            # A byte order mark stands only at the start; elsewhere the character is text.
            yield line.decode("utf-8-sig" if is_utf8 and number == 1 else source.encoding, errors)
        except UnicodeDecodeError as error:
            raise not_decodable(source, line, error, offset, number) from error
        offset += len(line)


_SKIPPED_AT_ONCE = 1 << 20


class SkippedLine(str):
    """Stands for a line that was left out and counted, so that the lines after it keep their numbers."""


def not_decodable(source: Source, data: bytes, error: UnicodeDecodeError, offset: int, line: int) -> InputError:
    """The error that names the byte; `offset` and `line` (from 1) say where `data` starts."""
    # The decoder may have seen the data without its byte order mark.
    start = error.start + len(data) - len(error.object)
    return InputError(
        f"the file is not {source.encoding} text",
        received=f"byte 0x{data[start]:02x} at offset {offset + start} ({error.reason})",
        expected=f"{source.encoding} text",
        where=f"{source.path}, line {line + data.count(10, 0, start)}",
        advice="name the encoding with --encoding (latin-1, cp1252, …), or use --on-error skip",
    )
