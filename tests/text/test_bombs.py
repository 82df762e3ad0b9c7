"""Small files that unpack to huge ones: bounded, counted, and the documents beside them are still read."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from text.text_files import write
from topicscope.errors import InputError
from topicscope.text import open_corpus, readers

LIMIT = 10_000
HUGE = b"river " * 400_000
REASON = "larger than --max-document-bytes"


def bomb(kind: str) -> bytes:
    """A huge document between two small ones."""
    if kind == "txt":
        return b"before\n" + HUGE + b"\nafter\n"
    if kind == "jsonl":
        return b'{"text": "before"}\n{"text": "' + HUGE + b'"}\n{"text": "after"}\n'
    if kind == "csv":
        return b"text\nbefore\n" + HUGE + b"\nafter\n"
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": ["before", HUGE.decode(), "after"]}), sink)
        return sink.getvalue().to_pybytes()
    pages = (
        f"<page><title>{name}</title><revision><text>{text}</text></revision></page>"
        for name, text in (("a", "before"), ("b", HUGE.decode()), ("c", "after"))
    )
    return f"<mediawiki>{''.join(pages)}</mediawiki>".encode()


@pytest.mark.parametrize("kind", ["txt.bz2", "jsonl.gz", "csv.zst", "parquet", "parquet.gz", "xml.bz2"])
def test_a_huge_document_is_refused_or_counted(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"bomb.{kind}", bomb(kind.split(".", maxsplit=1)[0]))
    with pytest.raises(InputError) as caught:
        list(open_corpus(path, max_document_bytes=LIMIT))
    assert "too large" in str(caught.value)
    assert "--max-document-bytes" in str(caught.value)
    assert str(path) in str(caught.value)
    corpus = open_corpus(path, on_error="skip", max_document_bytes=LIMIT)
    assert [document.text for document in corpus] == ["before", "after"]
    assert corpus.skipped == {REASON: 1}
    # A line keeps its number; the rows of a CSV are counted as they are parsed.
    numbers = {"csv": ["1", "2"], "xml": ["a", "c"]}.get(kind[:3], ["1", "3"])
    assert [document.id for document in corpus] == numbers
    assert len(list(open_corpus(path))) == 3, "64 MiB are allowed by default"


def test_a_huge_file_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("before")
    write(folder / "b.txt.gz", HUGE)
    corpus = open_corpus(folder, on_error="skip", max_document_bytes=LIMIT)
    assert [document.id for document in corpus] == ["a.txt"]
    assert corpus.skipped == {REASON: 1}


def test_a_huge_quoted_field_of_many_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "bomb.csv.gz", b'text\nbefore\n"' + b"river\n" * 400_000 + b'"\nafter\n')
    with pytest.raises(InputError, match="row"):
        list(open_corpus(path, max_document_bytes=LIMIT))


def test_a_tag_without_end(tmp_path: Path) -> None:
    path = write(tmp_path / "bomb.xml.bz2", b"<mediawiki><page " + b"x" * 1_000_000)
    with pytest.raises(InputError, match=r"(?s)well-formed.*more than 10000 bytes in one tag"):
        list(open_corpus(path, max_document_bytes=LIMIT))


def test_a_packed_parquet_file_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "bomb.parquet.gz", bomb("parquet"))
    monkeypatch.setattr(readers, "_COMPRESSED_PARQUET", 1000)
    with pytest.raises(InputError, match=r"(?s)too large.*unpack it first"):
        open_corpus(path)


def test_memory_stays_far_below_what_a_bomb_unpacks_to(tmp_path: Path) -> None:
    """A line of 200 MB from less than a kilobyte."""
    path = write(tmp_path / "bomb.txt.bz2", b"river sea\n" + b"a" * 200_000_000)
    assert path.stat().st_size < 2_000
    script = (
        "import resource, sys; from topicscope.text import open_corpus\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "corpus = open_corpus(sys.argv[1], on_error='skip', max_document_bytes=1_000_000)\n"
        "assert len(list(corpus)) == 1 and sum(corpus.skipped.values()) == 1\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50


def test_the_limit_itself_is_checked(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    with pytest.raises(InputError, match="--max-document-bytes"):
        open_corpus(tmp_path / "c.jsonl", max_document_bytes=0)
