"""Topics of other makers: any K×V matrix with its words, and labelled word lists."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.records import Header, Headers, now, read_npy, read_npz, sha256_of_file
from topicscope.text import normalise_word
from topicscope.topics.lda import Topics
from topicscope.topics.tables import (
    csv_rows,
    file_kind,
    located,
    numbers,
    read_lines,
    require_numbers,
    require_texts,
    texts,
)
from topicscope.topics.topic_model import TopicModel
from topicscope.topics.vocabulary import Vocabulary

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
