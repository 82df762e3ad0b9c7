"""A tiny model on disk, labelled words, and texts in every format, for the tests of the command line's probe."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from text.text_files import table_bytes, write
from topicscope.cli import run

THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film"],
}
WORDS_CSV = "word,topic\n" + "".join(f"{word},{theme}\n" for theme, words in THEMES.items() for word in words)
FORMATS = ("txt", "folder", "jsonl.zst", "csv.gz", "tsv", "parquet", "xml.bz2")


def save_model(folder: Path, family: str = "bert") -> Path:
    model, tokenizer = tiny.build(family)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def texts(number: int = 12, seed: int = 0) -> list[str]:
    """Documents of two themes, a line each."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(number):
        pool = [word for theme in rng.choice(list(THEMES), 2, replace=False) for word in THEMES[theme]]
        documents.append(" ".join(" ".join(rng.choice(pool, rng.integers(6, 12))) + "." for _ in range(4)))
    return documents


def jsonl(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": f"doc{i}", "text": text}) + "\n" for i, text in enumerate(documents)))
    return path


def corpus_file(folder: Path, kind: str, documents: list[str]) -> Path:
    """The documents as a file (or folder) of the kind; "jsonl.zst" is compressed."""
    path, form = folder / f"corpus.{kind}", kind.split(".", maxsplit=1)[0]
    if form == "folder":
        path.mkdir()
        for i, text in enumerate(documents):
            (path / f"{i:03}.txt").write_text(text)
        return path
    if form == "txt":
        data = "\n".join(documents).encode()
    elif form == "jsonl":
        data = jsonl(folder / "plain", documents).read_bytes()
    elif form in ("csv", "tsv"):
        rows = [["id", "text"], *([f"doc{i}", text] for i, text in enumerate(documents))]
        data = table_bytes(folder / "plain", "," if form == "csv" else "\t", rows)
    elif form == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": documents}), sink)
        data = sink.getvalue().to_pybytes()
    else:
        pages = (
            f"<page><title>n{i}</title><revision><text>{t}</text></revision></page>" for i, t in enumerate(documents)
        )
        data = f"<mediawiki>{''.join(pages)}</mediawiki>".encode()
    return write(path, data)


def probe(model: object, *arguments: object, controls: int = 0) -> int:
    """`topicscope probe` in this process; later arguments win over the quick defaults."""
    return run(["probe", *map(str, (model, "--controls", controls, "--progress", "none", *arguments))])


def result(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return document


def numbers(document: dict[str, Any]) -> dict[str, Any]:
    """All that a result measured: the record without its names and its manifest."""
    kept = {key: document[key] for key in ("table", "controls", "embeddings", "topics", "coverage", "warnings")}
    return kept | {"table": [row | {"model": None} for row in document["table"]]}


# Small shards of a small text, with every kind of pass.
OPTIONS_OF_SHARDS: dict[str, Any] = {
    "topics": 3,
    "sweeps": 10,
    "min_count": 1,
    "threshold": (0.1, 0.2),
    "controls": 1,
    "permutations": 20,
    "exclude_sinks": True,
    "batch_size": 8,
    "shard_units": 32,
}


def corpus_of_shards(folder: Path) -> Path:
    """With a document of more units than such a shard asks for, in the middle."""
    documents = texts(40)
    documents[12] = " ".join(texts(16, seed=1))
    return jsonl(folder / "corpus.jsonl", documents)


@contextmanager
def undrawn() -> Iterator[pytest.MonkeyPatch]:
    """Results without pictures: drawing takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicscope.report.to_png", lambda *_, **__: b"")
        patch.setattr("topicscope.report.render_probe", lambda record: "")
        yield patch
