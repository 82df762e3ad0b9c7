"""The topics file, and one reader for whatever stands in its place.

A topics file is an npz of plain arrays (never pickled): `schema_version` (int), `phi` float64 [topic, word], `alpha`
float64 [topic], `words` and, where topics have names, `labels` (unicode), `provenance` (one JSON text).

Careful reading of the plain files that hold topics: CSV, lists of words, and arrays from an npz or npy.

A topic-word matrix from a file, for the laboratory: npy, CSV, or the npz of a topics file.

Topics of other makers: any K×V matrix with its words, and labelled word lists.
"""

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

__all__ = ["WordList", "import_matrix", "load_any", "load_topics", "load_word_list", "save_topics"]


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


def load_phi(path: Path, alpha: float | Sequence[float] = 0.1) -> TopicModel:
    """The topic model whose phi [topic word] stands in a file; nothing is normalised, sorted or merged.

    npy: the matrix. CSV: a row a topic, with or without a first row of words. npz: the array `phi`, and `words` if any;
    a file of `topicscope topics fit` will do, but its alpha is not read. Words without names are w1, w2, …
    alpha: of the Dirichlet law, one number or one a topic.

    Raises:
        InputError: no such file, pickled content, something that is no number, or rows that do not sum to 1.
    """
    kind, where = file_kind(path), str(path)
    words: Sequence[str] | None = None
    if kind == "npy":
        phi = read_npy(path, lambda header: require_matrix(header, where))
    elif kind == "npz":
        arrays = read_npz(path, lambda headers: _chosen(headers, where))
        phi = arrays["phi"]
        words = texts(arrays["words"], where) if "words" in arrays else None
    else:
        phi, words = _read_csv(path)
    require_matrix(phi, where)
    with located(where):
        vocabulary = Vocabulary.numbered(phi.shape[1]) if words is None else Vocabulary.of(words)
        alphas = np.asarray(alpha, dtype=np.float64)
        return TopicModel(phi, alphas if alphas.ndim else np.full(len(phi), alphas), vocabulary)


def _chosen(headers: Headers, where: str) -> list[str]:
    """phi, and the words if there are any, of a file that can hold them."""
    if "phi" not in headers:
        raise InputError("the file holds no phi", received=sorted(headers), expected="an array phi", where=where)
    require_matrix(headers["phi"], where)
    if "words" not in headers:
        return ["phi"]
    require_texts(headers["words"], where)
    if headers["words"].size != headers["phi"].shape[1]:
        raise InputError(
            "phi and words do not fit",
            received=f"phi of shape {headers['phi'].shape} and {headers['words'].size} words",
            expected="[topic word] with a column a word",
            where=where,
        )
    return ["phi", "words"]


def _read_csv(path: Path) -> tuple[np.ndarray, Sequence[str] | None]:
    rows = list(csv_rows(path))
    if not rows:
        raise InputError("an empty file", expected="a row of probabilities for each topic", where=str(path))
    header = rows.pop(0)[1] if not all(_is_number(cell) for cell in rows[0][1]) else None
    width = len(header or rows[0][1])
    table = []
    for line, cells in rows:
        bad = [cell for cell in cells if not _is_number(cell)]
        if bad or len(cells) != width:
            raise InputError(
                "not a row of probabilities",
                received=bad[0] if bad else f"{len(cells)} cells",
                expected=f"{width} numbers",
                where=f"{path}:{line}",
            )
        table.append([float(cell) for cell in cells])
    return np.array(table).reshape(len(table), width), header and [word.strip() for word in header]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


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


def import_matrix(path: str | Path, vocabulary_path: str | Path | None = None) -> Topics:
    """Topics from any non-negative matrix [topic, word] of probabilities, weights or counts.

    An npz with the arrays `phi` or `matrix` and `vocabulary` or `words`; or a CSV whose header holds the words and
    whose rows are topics, with labels in an optional first column (headed by nothing, `topic` or `label`). With
    `vocabulary_path` (text, one word a line) the words come from there: an npz or npy matrix, or a CSV without header.
    Rows are divided by their sums, and words equal after `normalise_word` are added up; the provenance says so.
    The prior is not in such a file: alpha is set to 0.1.

    Raises:
        InputError: matrix or words missing, of other sizes or transposed, a cell that is no number, NaN, negative
            weights, a topic without weight, duplicate topics.
    """
    path, where = Path(path), str(path)
    labels: tuple[str, ...] | None = None
    given = None if vocabulary_path is None else read_lines(Path(vocabulary_path))
    if file_kind(path) == "csv":
        header, matrix, labels = _read_matrix_csv(path, has_header=given is None)
        words = header if given is None else given
    else:
        matrix, words = _read_matrix(path, given)
    _require_fit(matrix, len(words), where)
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise InputError(
            "the matrix has NaN, infinite or negative entries",
            received=f"topics {np.flatnonzero(~(np.isfinite(matrix) & (matrix >= 0)).all(axis=1))[:10].tolist()}",
            expected="non-negative weights",
            where=where,
            advice="take the exponential of log probabilities; fit again with fewer topics where there is NaN",
        )
    sums = matrix.sum(axis=1)
    weights, merged = _add_up_equal_words(matrix, words)
    with located(where):
        model = TopicModel.normalised(weights, Vocabulary.of(list(merged)))
        provenance = {
            "engine": "import",
            "created": now(),
            "file": path.name,
            "sha256": sha256_of_file(path),
            "vocabulary_file": None if vocabulary_path is None else Path(vocabulary_path).name,
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
    if not has_word_list_header(path):
        raise InputError("not a word list", expected="a CSV with the header word,topic", where=str(path))
    rows = csv_rows(path)
    next(rows)
    labels: dict[str, int] = {}
    found: dict[str, set[int]] = {}
    repeated = 0
    for line, row in rows:
        cells = [cell.strip() for cell in row]
        if len(cells) != 2 or not all(cells):
            raise InputError("not a word and its topic", received=",".join(row), where=f"{path}:{line}")
        topics = found.setdefault(normalise_word(cells[0]), set())
        topic = labels.setdefault(cells[1], len(labels))
        repeated += topic in topics
        topics.add(topic)
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
    return WordList(tuple(found), tuple(map(frozenset, found.values())), tuple(labels), provenance)


def has_word_list_header(path: Path) -> bool:
    """Whether the first row of a CSV is `word,topic`."""
    _, header = next(csv_rows(path), (0, []))
    return [cell.strip().lower() for cell in header] == _WORD_LIST_HEADER


def _read_matrix_csv(path: Path, *, has_header: bool) -> tuple[list[str], np.ndarray, tuple[str, ...] | None]:
    """Words, matrix [topic, word] and labels; no words without a header, no labels without a label column."""
    rows = csv_rows(path)
    words = next(rows, (0, []))[1] if has_header else []
    labelled = bool(words) and words[0].strip().lower() in _LABEL_HEADERS
    words = words[labelled:]
    width: int | None = len(words) if has_header else None
    labels, matrix = [], []
    for line, row in rows:
        cells = row[labelled:]
        labels += row[:labelled]
        width = len(cells) if width is None else width
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
    return words, np.array(matrix), tuple(labels) if labelled else None


def _read_matrix(path: Path, given: list[str] | None) -> tuple[np.ndarray, list[str]]:
    """Matrix and words of an npz or npy; given: the words, where they come from elsewhere."""
    where = str(path)
    if file_kind(path) == "npy":
        if given is None:
            _one_of(("matrix",), _WORDS, where)
        matrix = read_npy(path, lambda header: _require_fit(header, len(given or ()), where))
        return numbers(matrix, "matrix", where), given or []

    def choose(headers: Headers) -> list[str]:
        matrix = _one_of(headers, _MATRIX, where)
        require_numbers(headers[matrix], "matrix", where)
        if given is not None:
            _require_fit(headers[matrix], len(given), where)
            return [matrix]
        words = _one_of(headers, _WORDS, where)
        require_texts(headers[words], where)
        _require_fit(headers[matrix], headers[words].size, where)
        return [matrix, words]

    arrays = read_npz(path, choose)
    matrix = numbers(arrays[_one_of(arrays, _MATRIX, where)], "matrix", where)
    return matrix, texts(arrays[_one_of(arrays, _WORDS, where)], where) if given is None else given


def _require_fit(matrix: np.ndarray | Header, words: int, where: str) -> None:
    require_numbers(matrix, "matrix", where)
    if matrix.ndim != 2 or matrix.shape[1] != words:
        turned = matrix.ndim == 2 and matrix.shape[0] == words
        raise InputError(
            "matrix and words do not fit",
            received=f"a matrix of shape {matrix.shape} and {words} words",
            expected=f"[topic, word] with {words} columns",
            where=where,
            advice="transpose the matrix: topics are rows" if turned else None,
        )


def _one_of(arrays: Collection[str], names: Sequence[str], where: str) -> str:
    for name in names:
        if name in arrays:
            return name
    raise InputError(
        f"no array {' or '.join(names)}", received=f"arrays {', '.join(arrays) or 'none'}", where=where,
        advice="name the matrix phi and the words vocabulary, or give the words in a file of their own",
    )  # fmt: skip


def _add_up_equal_words(matrix: np.ndarray, words: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
    """Columns of words that are equal once normalised become one; returns [topic, word] and the words' places."""
    place: dict[str, int] = {}
    columns = [place.setdefault(normalise_word(word), len(place)) for word in words]
    weights = np.zeros((len(matrix), len(place)))
    np.add.at(weights.T, columns, matrix.T)
    return weights, place


SCHEMA_VERSION = 1
_SMALL = 2**20
_WRITE_AGAIN = "write it again with `topicscope topics fit`; it was damaged or made by something else"


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
    _require_version(read_npz(path, lambda headers: _version_of(headers, where))["schema_version"], where)
    return _topics_of(read_npz(path, lambda headers: _parts_of(headers, where)), where)


def load_any(location: str | Path) -> Topics | WordList:
    """Read a topics file, a matrix with its words, or a word list, told apart by content; also from a URL.

    Raises:
        InputError: whatever `load_topics`, `import_matrix` or `load_word_list` raises for such a file.
    """
    with local_file(location) as path:
        if file_kind(path) == "npz":
            return load_topics(path) if "schema_version" in npz_headers(path) else import_matrix(path)
        if file_kind(path) == "csv" and has_word_list_header(path):
            return load_word_list(path)
        return import_matrix(path)


def _version_of(headers: Headers, where: str) -> tuple[str]:
    """The array that says which schema the others have, if it can be one number."""
    version = headers.get("schema_version")
    if version is None or version.shape != () or version.dtype.kind not in "iu":
        raise _another_schema("no schema_version" if version is None else f"schema_version of {version}", where)
    return ("schema_version",)


def _require_version(version: np.ndarray, where: str) -> None:
    if int(version) != SCHEMA_VERSION:
        raise _another_schema(f"schema_version {version}", where)


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
        require_numbers(headers[name], name, where)
    for name in ("words", "labels"):
        if name in headers:
            require_texts(headers[name], where)
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


def _topics_of(arrays: dict[str, np.ndarray], where: str) -> Topics:
    try:
        provenance = json.loads(str(arrays["provenance"]))
    except json.JSONDecodeError as error:
        raise InputError("the provenance is not JSON", received=str(error), where=where) from error
    if not isinstance(provenance, dict):
        raise InputError("the provenance is not a JSON object", received=provenance, where=where)
    labels = tuple(texts(arrays["labels"], where)) if "labels" in arrays else None
    phi, alpha = (numbers(arrays[name], name, where) for name in ("phi", "alpha"))
    with located(where):
        return Topics(TopicModel(phi, alpha, Vocabulary.of(texts(arrays["words"], where))), provenance, labels)
