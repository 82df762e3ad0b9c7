"""The topics file, and one reader for whatever stands in its place.

A topics file is an npz of plain arrays (never pickled): `schema_version` (int), `phi` float64 [topic, word], `alpha`
float64 [topic], `words` and, where topics have names, `labels` (unicode), `provenance` (one JSON text).
"""

import json
from pathlib import Path

import numpy as np

from topicscope.errors import InputError
from topicscope.records.files import dump_json, read_npz, write_npz
from topicscope.records.places import local_file
from topicscope.topics.lda import Topics
from topicscope.topics.tables import file_kind, located, numbers, texts
from topicscope.topics.topic_model import TopicModel
from topicscope.topics.topics_import import WordList, has_word_list_header, import_matrix, load_word_list
from topicscope.topics.vocabulary import Vocabulary

__all__ = ["WordList", "import_matrix", "load_any", "load_topics", "load_word_list", "save_topics"]

SCHEMA_VERSION = 1


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


def load_topics(path: str | Path) -> Topics:
    """Read what `save_topics` wrote, number for number.

    Raises:
        InputError: no such file, no topics file, another schema, NaN or duplicate topics.
    """
    return _topics_of(read_npz(Path(path)), str(path))


def load_any(location: str | Path) -> Topics | WordList:
    """Read a topics file, a matrix with its words, or a word list, told apart by content; also from a URL.

    Raises:
        InputError: whatever `load_topics`, `import_matrix` or `load_word_list` raises for such a file.
    """
    with local_file(location) as path:
        if file_kind(path) == "npz":
            arrays = read_npz(path)
            return _topics_of(arrays, str(path)) if "schema_version" in arrays else import_matrix(path)
        if file_kind(path) == "csv" and has_word_list_header(path):
            return load_word_list(path)
        return import_matrix(path)


def _topics_of(arrays: dict[str, np.ndarray], where: str) -> Topics:
    version = arrays.get("schema_version")
    if version is None or version.shape != () or version.dtype.kind not in "iu" or int(version) != SCHEMA_VERSION:
        raise InputError(
            "a topics file of another schema",
            received="no schema_version" if version is None else f"schema_version {version}",
            expected=f"schema_version {SCHEMA_VERSION}",
            where=where,
            advice="fit again with `topicscope topics fit`, or use the version of topicscope that wrote the file",
        )
    missing = {"phi", "alpha", "words", "provenance"} - arrays.keys()
    if missing:
        raise InputError("a topics file lacks a part", received=f"no {', '.join(sorted(missing))}", where=where)
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
