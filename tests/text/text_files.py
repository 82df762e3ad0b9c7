"""Files of every kind that the text readers know, for their tests."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topicscope.text import Unit, UnitCounts, UnitReader

TEXTS = ["The first text.", "Zweiter, mit Ümlaut und 漢字.", 'Third "quoted"\ttext, with a comma.']
TABLE_TEXTS = [*TEXTS[:2], "Third\nwith a line break."]
COMPRESSIONS = {"": None, ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def write(path: Path, data: bytes) -> Path:
    """Bytes, compressed as the name says."""
    kind = COMPRESSIONS.get(path.suffix)
    if kind is None:
        path.write_bytes(data)
    else:
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), kind) as stream:
            stream.write(data)
    return path


def table_bytes(path: Path, delimiter: str, rows: list[list[str]]) -> bytes:
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    return path.read_bytes()


def sample_file(folder: Path, kind: str, compression: str) -> tuple[Path, list[str]]:
    """A file of each kind, written by other code than ours reads with where there is some."""
    path, texts = folder / f"corpus.{kind}{compression}", TABLE_TEXTS
    if kind == "txt":
        texts = TEXTS
        data = "\n".join(texts).encode()
    elif kind in ("jsonl", "ndjson", "json"):
        data = "".join(json.dumps({"name": f"n{i}", "text": t}) + "\r\n" for i, t in enumerate(texts)).encode()
    elif kind in ("csv", "tsv"):
        rows = [["name", "text"], *([f"n{i}", t] for i, t in enumerate(texts))]
        data = table_bytes(folder / "plain", "," if kind == "csv" else "\t", rows)
    elif kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"name": [f"n{i}" for i in range(3)], "text": texts}), sink)
        data = sink.getvalue().to_pybytes()
    else:
        pages = "".join(
            f"<page><title>n{i}</title><revision><text>{t}</text></revision></page>" for i, t in enumerate(TEXTS)
        )
        data, texts = f"<mediawiki>{pages}</mediawiki>".encode(), [t.replace("\t", " ") for t in TEXTS]
    return write(path, data), texts


KINDS = ["txt", "jsonl", "ndjson", "json", "csv", "tsv", "parquet", "xml"]


def sample_units(
    corpus: Any, unit: Any, max_units: int | None = None, seed: int = 0, **options: Any
) -> tuple[list[Unit], UnitCounts]:
    """All units of a corpus, or a sample of them, in memory, with what was counted."""
    reader = UnitReader(corpus, unit, **options)
    units = list(reader.units()) if max_units is None else reader.sample(max_units, seed)
    reader.counts.documents_kept = len({unit.document_id for unit in units})
    return units, reader.counts
