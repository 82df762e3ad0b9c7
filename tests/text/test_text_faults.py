"""Every fault of a source is an InputError that says where, or is counted."""

import hashlib
import inspect
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from text.text_files import COMPRESSIONS, KINDS, sample_file, write
from topicscope.errors import InputError
from topicscope.text import Corpus, Document, corpus_from, open_corpus

# A bad file, what the error must name, and with on_error="skip" what is counted beside which texts.
BAD: list[tuple[str, bytes, list[str], list[str], dict[str, int]]] = [
    (
        "bad.txt",
        b"good\nna\xefve\nfine",
        ["line 2", "0xef at offset 7", "--encoding", "--on-error skip"],
        ["good", "fine"],
        {"not valid text": 1},
    ),
    ("bom.txt", b"\xef\xbb\xbfa\xff\nfine", ["line 1", "0xff at offset 4"], ["fine"], {"not valid text": 1}),
    (
        "bad.jsonl",
        b'{"text": "good"}\n{"text": \n{"body": 1}\n[1]\n{"text": 5}\n{"text": "\\ud800"}\n\n{"text": "fine"}\n',
        ["line 2", "not a JSON object"],
        ["good", "fine"],
        {
            "not JSON": 1,
            'no column "text"': 1,
            "not a JSON object": 1,
            "text is not a string": 1,
            "not valid text": 1,
            "blank line": 1,
        },
    ),
    (
        "column.jsonl",
        b'{"text": "a"}\n{"body": "b"}',
        ["line 2", "columns body", "--text-column"],
        ["a"],
        {'no column "text"': 1},
    ),
    ("deep.jsonl", b'{"text": "a"}\n' + b"[" * 100_000, ["line 2"], ["a"], {"not JSON": 1}),
    (
        "bad.csv",
        b'text,n\ngood,1\nno second\n"two\nlines \xff",2\n"x"y,3\nfine,4\n',
        ["line 3", "1 fields, while the header has 2"],
        ["good", "fine"],
        {"not a row of the table": 2, "not valid text": 1},
    ),
    (
        "quote.csv",
        b'text\ngood\n"never closed\n',
        ["line 3", "unexpected end"],
        ["good"],
        {"not a row of the table": 1},
    ),
]


@pytest.mark.parametrize(("name", "data", "messages", "texts", "skipped"), BAD, ids=[bad[0] for bad in BAD])
def test_a_bad_line_stops_with_its_place_or_is_counted(
    tmp_path: Path, name: str, data: bytes, messages: list[str], texts: list[str], skipped: dict[str, int]
) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(InputError) as error:
        list(open_corpus(path))
    assert [message for message in [str(path), *messages] if message not in str(error.value)] == []
    corpus = open_corpus(path, on_error="skip")
    assert [d.text for d in corpus] == texts
    assert corpus.skipped == skipped


def test_an_undecodable_file_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"good")
    write(tmp_path / "b.txt", b"good\n\nna\xefve")
    with pytest.raises(InputError, match="0xef at offset 8") as error:
        list(open_corpus(tmp_path))
    assert "b.txt, line 3" in str(error.value)
    corpus = open_corpus(tmp_path, on_error="skip")
    assert [d.id for d in corpus] == ["a.txt"]
    assert corpus.skipped == {"not valid text": 1}
    assert [d.text for d in open_corpus(tmp_path, encoding="latin-1")] == ["good", "good\n\nnaïve"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8-sig", "gb18030"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    text = "漢字" if encoding == "gb18030" else "naïve"
    path = write(tmp_path / "a.txt", f"{text}\nb".encode(encoding))
    assert [d.text for d in open_corpus(path, encoding=encoding)] == [text, "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "klingon", "hex", "a\0b", ""])
def test_unusable_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(InputError, match="encoding"):
        open_corpus(write(tmp_path / "a.txt", b"a"), encoding=encoding)


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".zst"])
def test_truncated_and_false_archives_are_refused(tmp_path: Path, compression: str) -> None:
    lines = "".join(f"{hashlib.sha256(str(i).encode()).hexdigest()}\n" for i in range(20_000))
    path = write(tmp_path / f"a.txt{compression}", lines.encode())
    whole = path.read_bytes()
    assert len(list(open_corpus(path))) == 20_000
    for data in (whole[:-9], whole[: len(whole) // 2], b"plain text"):
        path.write_bytes(data)
        with pytest.raises(InputError, match="cannot be read") as error:
            list(open_corpus(path))
        assert str(path) in str(error.value)
    # Two archives one behind the other are one, as gzip and pbzip2 write them.
    path.write_bytes(whole + whole)
    assert len(list(open_corpus(path))) == 40_000


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.txt", b""),
        ("blank.txt", b"\n \n\t\n"),
        ("header.csv", b"text\n"),
        ("empty.jsonl.gz", b""),
        ("pages.xml", b"<mediawiki></mediawiki>"),
    ],
)
def test_an_empty_corpus_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InputError, match="the corpus is empty"):
        open_corpus(write(tmp_path / name, data))


def test_an_empty_corpus_says_what_was_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'empty document': 2"):
        open_corpus(write(tmp_path / "a.txt", b"\n\n"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="the corpus is empty"):
        open_corpus(tmp_path / "folder")
    with pytest.raises(InputError, match="the corpus is empty"):
        list(corpus_from([]))


def test_missing_unknown_and_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file") as error:
        open_corpus(tmp_path / "nothing.txt")
    assert "wikipedia-sample" in str(error.value)
    with pytest.raises(InputError, match="unknown kind of file"):
        open_corpus(write(tmp_path / "a.docx", b"PK"))
    with pytest.raises(InputError, match="unknown kind of file"):
        open_corpus(write(tmp_path / "noextension", b"text"))
    with pytest.raises(InputError, match="cannot be read"):
        open_corpus(write(tmp_path / "a.parquet", b"PAR1 is not enough"))
    with pytest.raises(InputError, match="jq -c"):
        open_corpus(write(tmp_path / "a.json", b'[{"text": "a"}]'))
    with pytest.raises(InputError, match="unknown on_error"):
        inspect.unwrap(open_corpus)(tmp_path / "a.json", on_error="ignore")


def test_parquet_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array(["one", None, "two"]).dictionary_encode()
    pq.write_table(pa.table({"text": texts, "n": [10, 11, 12]}), path)
    corpus = open_corpus(path, id_column="n")
    assert list(corpus) == [Document("10", "one"), Document("12", "two")]
    assert corpus.skipped == {"empty document": 1}
    with pytest.raises(InputError, match="not a string"):
        open_corpus(path, text_column="n")
    broken = pa.Array.from_buffers(
        pa.utf8(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    pq.write_table(pa.table({"text": broken}), path)
    with pytest.raises(InputError, match="row 2"):
        list(open_corpus(path))
    corpus = open_corpus(path, on_error="skip")
    assert [d.text for d in corpus] == ["a"]
    assert corpus.skipped == {"not valid text": 1}


def test_leaving_a_pass_early_closes_the_file_and_spoils_nothing(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", b"one\ntwo\nthree"))
    assert next(iter(corpus)).text == "one"
    assert [d.id for d in corpus] == ["1", "2", "3"]


SEEDS = [
    b'{"text": "a"}\n{"text": "b"}\n',
    b'text,id\n"a ""b""",1\n',
    b"<mediawiki><page><title>t</title><revision><text>''a'' [[b|c]] {{d}}</text></revision></page></mediawiki>",
    b"<!DOCTYPE m [<!ENTITY a 'b'>]><mediawiki>&a;</mediawiki>",
    b"<?xml version='1.0' encoding='shift_jis'?><mediawiki/>",
]


@st.composite
def damaged(draw: st.DrawFn, folder: Path) -> tuple[str, bytes]:
    """(kind and compression, bytes): anything at all, or a good file with a few bytes replaced or its end cut off.

    The damage is done before compression, or, rarely, to the archive.
    """
    kind, compression = draw(st.sampled_from(KINDS)), draw(st.sampled_from(list(COMPRESSIONS)))
    good = sample_file(folder, kind, "")[0].read_bytes()
    data = bytearray(draw(st.one_of(st.binary(max_size=200), st.sampled_from([*SEEDS, good, good]))))
    archive_first = draw(st.integers(0, 9)) == 0
    if archive_first:
        data = bytearray(write(folder / f"fuzz{compression}", bytes(data)).read_bytes())
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    data = data[: len(data) - draw(st.one_of(st.just(0), st.integers(0, len(data))))]
    if not archive_first:
        data = bytearray(write(folder / f"fuzz{compression}", bytes(data)).read_bytes())
    return f"{kind}{compression}", bytes(data)


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data(), st.sampled_from(["stop", "skip"]))
def test_any_bytes_are_a_corpus_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, on_error: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    kind, content = data.draw(damaged(folder))
    path = folder / f"damaged.{kind}"
    path.write_bytes(content)
    try:
        documents = list(open_corpus(path, on_error=on_error))
    except InputError:
        return
    assert documents
    assert all(d.text.strip() and d.text.encode() and isinstance(d.id, str) for d in documents)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")), min_size=1))
@example(["\u2028", "\ufeffa", "\x1c", "a"])
def test_lines_survive_the_way_through_a_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    path.write_text(
        "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in [*texts, "end"]), encoding="utf-8"
    )
    plain = path.with_suffix(".txt")
    plain.write_bytes("\n".join(["start", *texts, "end"]).encode())
    kept = [t for t in [*texts, "end"] if t.strip()]
    for corpus in (open_corpus(path), open_corpus(plain)):
        assert [d.text for d in corpus if d.text != "start"] == kept
    assert isinstance(corpus, Corpus)
