"""Topics in files: topicscope's own, and those of other makers from npy, npz and CSV.

A topics file is an npz of plain arrays (never pickled): `schema_version` (int), `phi` float64 [topic, word], `alpha`
float64 [topic], `words` and, where topics have names, `labels` (unicode), `provenance` (one JSON text). Others are
matrices of topics by words, and labelled word lists; `load_any` tells them apart.
"""

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from topicscope.errors import InputError
from topicscope.records import (
    Header,
    Headers,
    dump_json,
    local_file,
    now,
    npz_headers,
    read_npy,
    read_npz,
    require_regular_file,
    sha256_of_file,
    write_npz,
)
from topicscope.text import normalise_word
from topicscope.topics.lda import Topics
from topicscope.topics.topic_model import TopicModel, Vocabulary

SCHEMA_VERSION = 1
_SMALL = 2**20
_WRITE_AGAIN = "write it again with `topicscope topics fit`; it was damaged or made by something else"
_LABEL_HEADERS = ("", "topic", "label")
_WORD_LIST_HEADER = ["word", "topic"]
_MATRIX, _WORDS = ("phi", "matrix"), ("vocabulary", "words")


@dataclass(frozen=True)
class WordList:
    """Words that somebody gave labels to; it serves in the place of a topic model.

    words: distinct, normalised, in the order of the file; topics: per word the indices of its labels;
    labels: in order of first appearance; provenance: JSON-ready, file name and hash.
    """

    words: tuple[str, ...]
    topics: tuple[frozenset[int], ...]
    labels: tuple[str, ...]
    provenance: dict[str, Any]


def save_topics(path: str | Path, topics: Topics) -> None:
    """Write `topics` atomically to `path`; the folder is made if need be."""
    arrays = {
        "schema_version": np.array(SCHEMA_VERSION),
        "phi": topics.model.phi,
        "alpha": topics.model.alpha,
        "words": np.array(topics.model.vocabulary.words),
        "provenance": np.array(dump_json(topics.provenance)),
    }
    if topics.labels is not None:
        arrays["labels"] = np.array(topics.labels)
    write_npz(Path(path), arrays)


def is_topics_file(path: Path) -> bool:
    """Whether a file has the parts of one that `save_topics` wrote; what they hold is not read."""
    try:
        return {"schema_version", "phi", "alpha", "words", "provenance"} <= npz_headers(path).keys()
    except InputError:
        return False


def load_topics(path: str | Path) -> Topics:
    """Read what `save_topics` wrote, number for number.

    Raises:
        InputError: no such file, no topics file, another schema, NaN or duplicate topics.
    """
    path, where = Path(path), str(path)
    version = int(read_npz(path, lambda headers: _version_of(headers, where))["schema_version"])
    if version != SCHEMA_VERSION:
        raise _another_schema(f"schema_version {version}", where)
    arrays = read_npz(path, lambda headers: _parts_of(headers, where))
    try:
        provenance = json.loads(str(arrays["provenance"]))
    except json.JSONDecodeError as error:
        raise InputError("the provenance is not JSON", received=str(error), where=where) from error
    if not isinstance(provenance, dict):
        raise InputError("the provenance is not a JSON object", received=provenance, where=where)
    labels = tuple(arrays["labels"].tolist()) if "labels" in arrays else None
    with _located(where):
        model = TopicModel(arrays["phi"], arrays["alpha"], Vocabulary(tuple(arrays["words"].tolist())))
        return Topics(model, provenance, labels)


def load_any(location: str | Path) -> Topics | WordList:
    """Read a topics file, a matrix with its words, or a word list, told apart by content; also from a URL.

    Raises:
        InputError: whatever `load_topics`, `import_matrix` or `load_word_list` raises for such a file.
    """
    with local_file(location) as path:
        if _file_kind(path) == "npz":
            return load_topics(path) if "schema_version" in npz_headers(path) else import_matrix(path)
        if _file_kind(path) == "csv" and _has_word_list_header(path):
            return load_word_list(path)
        return import_matrix(path)


def _version_of(headers: Headers, where: str) -> tuple[str]:
    """The array that says which schema the others have, if it can be one number."""
    version = headers.get("schema_version")
    if version is None or version.shape != () or version.dtype.kind not in "iu":
        raise _another_schema("no schema_version" if version is None else f"schema_version of {version}", where)
    return ("schema_version",)


def _another_schema(received: str, where: str) -> InputError:
    return InputError(
        "a topics file of another schema",
        received=received,
        expected=f"schema_version {SCHEMA_VERSION}",
        where=where,
        advice="fit again with `topicscope topics fit`, or use the version of topicscope that wrote the file",
    )


def _parts_of(headers: Headers, where: str) -> list[str]:
    """The arrays of a topics file, if their headers fit each other and nothing large stands beside them."""
    missing = {"phi", "alpha", "words", "provenance"} - headers.keys()
    if missing:
        raise InputError("a topics file lacks a part", received=f"no {', '.join(sorted(missing))}", where=where)
    parts = [name for name in ("phi", "alpha", "words", "labels", "provenance") if name in headers]
    for name in ("phi", "alpha"):
        _require_numbers(headers[name], name, where)
    for name in ("words", "labels"):
        if name in headers:
            _require_texts(headers[name], where)
    topics, words = headers["alpha"].size, headers["words"].size
    expected = {"phi": (topics, words), "alpha": (topics,), "labels": (topics,), "provenance": ()}
    wrong = [
        f"{name} of shape {headers[name].shape}"
        for name in parts
        if headers[name].shape != expected.get(name, (words,))
    ]
    if wrong:
        raise InputError(
            "a part of the topics file has the wrong shape",
            received=f"{', '.join(wrong)} beside {topics} numbers of alpha and {words} words",
            expected="phi [topic, word], alpha and labels [topic], words [word], provenance one text",
            where=where,
            advice=_WRITE_AGAIN,
        )
    strange = {name: header for name, header in headers.items() if name not in (*parts, "schema_version")}
    if sum(header.nbytes for header in strange.values()) > sum(headers[name].nbytes for name in parts) + _SMALL:
        raise InputError(
            "a topics file holds large arrays that are no part of topics",
            received=", ".join(f"{name} ({header})" for name, header in strange.items()),
            expected=f"{', '.join(parts)}",
            where=where,
            advice=_WRITE_AGAIN,
        )
    return parts


def load_phi(path: Path, alpha: float | Sequence[float] = 0.1) -> TopicModel:
    """The topic model whose phi [topic word] is in a file, for the laboratory; nothing is normalised, sorted or merged.

    npy: the matrix. CSV: a row a topic, with or without a first row of words. npz: the array `phi`, and `words` if any;
    a file of `topicscope topics fit` will do, but its alpha is not read. Words without names are w1, w2, …
    alpha: of the Dirichlet law, one number or one a topic.

    Raises:
        InputError: no such file, pickled content, something that is no number, or rows that do not sum to 1.
    """
    if _file_kind(path) == "csv":
        phi, names, _ = _read_csv(path, has_header=False)
        words = [word.strip() for word in names]
    else:
        phi, words = _read_arrays(path, needs_words=False)
    with _located(str(path)):
        vocabulary = Vocabulary(tuple(words)) if words else Vocabulary.numbered(phi.shape[1])
        alphas = np.asarray(alpha, dtype=np.float64)
        return TopicModel(phi, alphas if alphas.ndim else np.full(len(phi), alphas), vocabulary)


def import_matrix(path: str | Path) -> Topics:
    """Topics from any non-negative matrix [topic, word] of probabilities, weights or counts.

    An npz with the arrays `phi` or `matrix` and `vocabulary` or `words`; or a CSV whose header holds the words and
    whose rows are topics, with labels in an optional first column (headed by nothing, `topic` or `label`). Rows are
    divided by their sums, and words equal after `normalise_word` are added up; the provenance says so. The prior is not
    in such a file: alpha is set to 0.1.

    Raises:
        InputError: matrix or words missing, of other sizes or transposed, a cell that is no number, NaN, negative
            weights, a topic without weight, duplicate topics.
    """
    path, where = Path(path), str(path)
    labels: tuple[str, ...] | None = None
    if _file_kind(path) == "csv":
        matrix, words, labels = _read_csv(path, has_header=True)
    else:
        matrix, words = _read_arrays(path, needs_words=True)
    _require_matrix(matrix, len(words), where)
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InputError(
            "the matrix has NaN, infinite or negative entries",
            received=f"topics {np.flatnonzero(~(np.isfinite(matrix) & (matrix >= 0)).all(axis=1))[:10].tolist()}",
            expected="non-negative weights",
            where=where,
            advice="take the exponential of log probabilities; fit again with fewer topics where there is NaN",
        )
    sums = matrix.sum(axis=1)
    # Columns of words that are equal once normalised become one.
    merged: dict[str, int] = {}
    columns = [merged.setdefault(normalise_word(word), len(merged)) for word in words]
    weights = np.zeros((len(matrix), len(merged)))
    np.add.at(weights.T, columns, matrix.T)
    with _located(where):
        model = TopicModel.normalised(weights, Vocabulary(tuple(merged)))
        provenance = {
            "engine": "import",
            "created": now(),
            "file": path.name,
            "sha256": sha256_of_file(path),
            "num_topics": model.num_topics,
            "vocabulary_size": len(model.vocabulary),
            "rows_normalised": f"each row was divided by its sum; the sums were {sums.min():.6g} to {sums.max():.6g}",
            "words_added_up": len(words) - len(merged),
            "alpha": "0.1, since the file does not tell",
        }
        return Topics(model, provenance, labels)


def load_word_list(path: str | Path) -> WordList:
    """Words with labels from a CSV with the header `word,topic`; a word may stand under several labels.

    Raises:
        InputError: another header, a row that is not two filled cells (file and line), or no row.
    """
    path = Path(path)
    if not _has_word_list_header(path):
        raise InputError("not a word list", expected="a CSV with the header word,topic", where=str(path))
    rows = _csv_rows(path)
    next(rows)
    # Words of one label share its set: a set for each of a million words is a million objects to collect.
    labels: dict[str, frozenset[int]] = {}
    found: dict[str, frozenset[int]] = {}
    repeated = 0
    for line, row in rows:
        cells = [cell.strip() for cell in row]
        if len(cells) != 2 or not all(cells):
            raise InputError("not a word and its topic", received=",".join(row), where=f"{path}:{line}")
        word, label = normalise_word(cells[0]), cells[1]
        topic = labels.setdefault(label, frozenset((len(labels),)))
        others = found.get(word)
        repeated += others is not None and topic <= others
        found[word] = topic if others is None else others | topic
    if not found:
        raise InputError("the word list is empty", expected="at least one row word,topic", where=str(path))
    provenance = {
        "engine": "word list",
        "file": path.name,
        "sha256": sha256_of_file(path),
        "num_topics": len(labels),
        "vocabulary_size": len(found),
        "repeated_rows": repeated,
    }
    return WordList(tuple(found), tuple(found.values()), tuple(labels), provenance)


def _has_word_list_header(path: Path) -> bool:
    """Whether the first row of a CSV is `word,topic`."""
    _, header = next(_csv_rows(path), (0, []))
    return [cell.strip().lower() for cell in header] == _WORD_LIST_HEADER


def _file_kind(path: Path) -> Literal["npz", "npy", "csv"]:
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


def _require_numbers(array: np.ndarray | Header, name: str, where: str) -> None:
    """Refuse an array, or the header of one, that holds no real numbers."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds no numbers", received=f"dtype {array.dtype}", where=where)


def _require_texts(array: np.ndarray | Header, where: str) -> None:
    """Refuse an array, or the header of one, that is no list of text."""
    if array.dtype.kind != "U" or array.ndim != 1:
        raise InputError(
            "the words are not a list of text",
            received=f"dtype {array.dtype}, shape {array.shape}",
            expected="a unicode array of one axis",
            where=where,
        )


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Add the file to an error that was raised by something that knows of no file."""
    try:
        yield
    except InputError as error:
        if error.where is not None:
            raise
        raise InputError(
            error.summary, received=error.received, expected=error.expected, where=where, advice=error.advice
        ) from error


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
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


def _read_csv(path: Path, *, has_header: bool) -> tuple[np.ndarray, list[str], tuple[str, ...] | None]:
    """Matrix [topic, word], words and labels; no words without a header, no labels without a label column.

    has_header: of words, after an optional label column. Without it the first row may be one, if not all of it are
    numbers, but has no labels.
    """
    rows = _csv_rows(path)
    start, first = next(rows, (0, []))
    headed = has_header or not all(map(_is_number, first))
    labelled = bool(has_header and first) and first[0].strip().lower() in _LABEL_HEADERS
    words, width = first[labelled:] if headed else [], len(first) - labelled
    labels, matrix = [], []
    for line, row in rows if headed else chain([(start, first)], rows):
        labels += row[:labelled]
        cells = row[labelled:]
        if len(cells) != width:
            raise InputError(
                "a row of another length", received=f"{len(cells)} cells", expected=f"{width}", where=f"{path}:{line}"
            )
        try:
            matrix.append(np.array(cells, dtype=np.float64))
        except ValueError as error:
            raise InputError(
                "a cell is not a number",
                received=str(error),
                expected="a header of words, then one row of weights a topic (or a word list headed word,topic)",
                where=f"{path}:{line}",
            ) from error
    if not matrix or not width:
        raise InputError("a CSV without topics", expected="a header of words and one row a topic", where=str(path))
    return np.array(matrix), words, tuple(labels) if labelled else None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_arrays(path: Path, *, needs_words: bool) -> tuple[np.ndarray, list[str]]:
    """Matrix [topic, word] as float64 and words of an npz or npy; no words where it holds none."""
    where = str(path)
    if _file_kind(path) == "npy":
        if needs_words:
            _one_of(("matrix",), _WORDS, where)
        matrix = read_npy(path, lambda header: _require_matrix(header, None, where))
        return matrix.astype(np.float64, copy=False), []

    def choose(headers: Headers) -> list[str]:
        matrix = _one_of(headers, _MATRIX, where)
        if not (needs_words or headers.keys() & _WORDS):
            _require_matrix(headers[matrix], None, where)
            return [matrix]
        words = _one_of(headers, _WORDS, where)
        _require_texts(headers[words], where)
        _require_matrix(headers[matrix], headers[words].size, where)
        return [matrix, words]

    arrays = read_npz(path, choose)
    matrix = arrays[_one_of(arrays, _MATRIX, where)].astype(np.float64, copy=False)
    return matrix, arrays[_one_of(arrays, _WORDS, where)].tolist() if len(arrays) == 2 else []


def _require_matrix(matrix: np.ndarray | Header, words: int | None, where: str) -> None:
    """Refuse what is no matrix of numbers [topic, word], with a column a word where it is known how many there are."""
    _require_numbers(matrix, "the matrix", where)
    if words is not None and (matrix.ndim != 2 or matrix.shape[1] != words):
        turned = matrix.ndim == 2 and matrix.shape[0] == words
        raise InputError(
            "matrix and words do not fit",
            received=f"a matrix of shape {matrix.shape} and {words} words",
            expected=f"[topic, word] with {words} columns",
            where=where,
            advice="transpose the matrix: topics are rows" if turned else None,
        )
    if matrix.ndim != 2 or matrix.size == 0:
        raise InputError("phi is no matrix", received=matrix.shape, expected="[topic, word]", where=where)


def _one_of(arrays: Collection[str], names: Sequence[str], where: str) -> str:
    for name in names:
        if name in arrays:
            return name
    raise InputError(
        f"no array {' or '.join(names)}", received=f"arrays {', '.join(arrays) or 'none'}", where=where,
        advice="name the matrix phi and the words vocabulary",
    )  # fmt: skip
