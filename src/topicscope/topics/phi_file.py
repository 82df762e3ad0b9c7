"""A topic-word matrix from a file, for the laboratory: npy, CSV, or the npz of a topics file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topicscope.errors import InputError
from topicscope.records import Headers, read_npy, read_npz
from topicscope.topics.tables import csv_rows, file_kind, located, require_matrix, require_texts, texts
from topicscope.topics.topic_model import TopicModel
from topicscope.topics.vocabulary import Vocabulary


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
