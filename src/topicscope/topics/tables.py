"""Careful reading of the plain files that hold topics: CSV, lists of words, and arrays from an npz or npy."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from topicscope.errors import InputError
from topicscope.records import Header, require_regular_file


def file_kind(path: Path) -> Literal["npz", "npy", "csv"]:
    """What a file holds, by its first bytes: whatever is no npz and no npy is taken for text.

    Raises:
        InputError: no such file, or one that is no regular file.
    """
    require_regular_file(path, "an npz, npy or CSV file")
    try:
        with path.open("rb") as stream:
            head = stream.read(6)
    except OSError as error:
        raise InputError("the file cannot be read", received=str(path), expected="an npz, npy or CSV file") from error
    return "npz" if head.startswith(b"PK") else "npy" if head == b"\x93NUMPY" else "csv"


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank, from UTF-8 with or without a byte order mark.

    Raises:
        InputError: no such file, not UTF-8, or not CSV.
    """
    require_regular_file(path, "a CSV file")
    csv.field_size_limit(2**31 - 1)  # global, and readers of text lower it
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            yield from ((reader.line_num, row) for row in reader if row)
    except OSError as error:
        raise InputError("the file cannot be read", received=str(path), expected="a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError("not a CSV file in UTF-8", received=str(error), where=str(path)) from error


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file, stripped; a blank line is an error, for the lines after it would be displaced.

    Raises:
        InputError: no such file, not UTF-8, or a blank line.
    """
    require_regular_file(path, "a text file")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("not a text file in UTF-8", received=str(error), where=str(path)) from error
    if "" in lines:
        raise InputError("a blank line among the words", where=f"{path}:{lines.index('') + 1}")
    return lines


def numbers(array: np.ndarray, name: str, where: str) -> np.ndarray:
    """The array as float64; the array itself where it is that already.

    Raises:
        InputError: it holds no real numbers.
    """
    require_numbers(array, name, where)
    return array.astype(np.float64, copy=False)


def require_numbers(array: np.ndarray | Header, name: str, where: str) -> None:
    """Refuse an array, or the header of one, that holds no real numbers."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds no numbers", received=f"dtype {array.dtype}", where=where)


def require_matrix(phi: np.ndarray | Header, where: str) -> None:
    """Refuse what is no matrix [topic, word] of at least one number."""
    require_numbers(phi, "phi", where)
    if phi.ndim != 2 or phi.size == 0:
        raise InputError("phi is no matrix", received=phi.shape, expected="[topic word]", where=where)


def texts(array: np.ndarray, where: str) -> list[str]:
    """The words in a unicode array of one axis.

    Raises:
        InputError: it is something else.
    """
    require_texts(array, where)
    words: list[str] = array.tolist()
    return words


def require_texts(array: np.ndarray | Header, where: str) -> None:
    """Refuse an array, or the header of one, that is no list of text."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise InputError(
            "the words are not a list of text",
            received=f"dtype {array.dtype}, shape {array.shape}",
            expected="a unicode array of one axis",
            where=where,
        )


@contextmanager
def located(where: str) -> Iterator[None]:
    """Add the file to an error that was raised by something that knows of no file."""
    try:
        yield
    except InputError as error:
        if error.where is not None:
            raise
        raise InputError(
            error.summary, received=error.received, expected=error.expected, where=where, advice=error.advice
        ) from error
