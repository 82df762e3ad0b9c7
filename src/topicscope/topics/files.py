"""The topics file, and one reader for whatever stands in its place.

A topics file is an npz of plain arrays (never pickled): `schema_version` (int), `phi` float64 [topic, word], `alpha`
float64 [topic], `words` and, where topics have names, `labels` (unicode), `provenance` (one JSON text).
"""

import json
from pathlib import Path

import numpy as np

from topicscope.errors import InputError
from topicscope.records import Headers, dump_json, local_file, npz_headers, read_npz, write_npz
from topicscope.topics.imported import (
    WordList,
    file_kind,
    has_word_list_header,
    import_matrix,
    load_word_list,
    located,
    require_numbers,
    require_texts,
)
from topicscope.topics.lda import Topics
from topicscope.topics.topic_model import TopicModel, Vocabulary

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
    with located(where):
        model = TopicModel(arrays["phi"], arrays["alpha"], Vocabulary(tuple(arrays["words"].tolist())))
        return Topics(model, provenance, labels)


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
