"""Every format gives the same documents, on every pass."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from text.text_files import COMPRESSIONS, KINDS, TEXTS, sample_file, write
from topicscope.errors import InputError
from topicscope.text import Document, corpus_from, open_corpus


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_its_documents(tmp_path: Path, kind: str, compression: str) -> None:
    path, texts = sample_file(tmp_path, kind, compression)
    corpus = open_corpus(path)
    assert [document.text for document in corpus] == texts
    assert [document.text for document in corpus] == texts
    assert [document.id for document in corpus] == (["n0", "n1", "n2"] if kind == "xml" else ["1", "2", "3"])
    assert corpus.skipped == {}
    assert corpus.name == path.name


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_columns_can_be_named(tmp_path: Path, kind: str) -> None:
    path, texts = sample_file(tmp_path, kind, "")
    assert [tuple(vars(d).values()) for d in open_corpus(path, id_column="name")] == [
        (f"n{i}", text) for i, text in enumerate(texts)
    ]
    assert [d.text for d in open_corpus(path, text_column="name")] == ["n0", "n1", "n2"]
    for wrong in ({"text_column": "body"}, {"id_column": "body"}):
        with pytest.raises(InputError, match='no column "body"') as error:
            open_corpus(path, **wrong)
        assert "name, text" in str(error.value)


def test_folder_gives_files_by_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "b.txt", b"second\r\n\r\nfile")
    write(tmp_path / "a.txt.gz", b"first\nfile")
    write(tmp_path / "sub" / "c.txt", b"\xef\xbb\xbfthird")
    write(tmp_path / "note.md", b"no corpus")
    corpus = open_corpus(tmp_path)
    assert [tuple(vars(d).values()) for d in corpus] == [
        ("a.txt.gz", "first\nfile"),
        ("b.txt", "second\n\nfile"),
        ("sub/c.txt", "third"),
    ]
    assert corpus.skipped == {"not a .txt file": 1}


def test_symptom_23_a_generator_is_refused_with_advice() -> None:
    for once in ((text for text in TEXTS), iter(TEXTS), map(str, TEXTS)):
        with pytest.raises(InputError, match="only once") as error:
            corpus_from(once)
        assert "list(documents)" in str(error.value)

    class Again:
        def __iter__(self) -> Iterator[str]:
            return iter(TEXTS)

    corpus = corpus_from(Again())
    assert [d.text for d in corpus] == [d.text for d in corpus] == TEXTS


def test_live_objects_of_all_kinds() -> None:
    items = ["a", Document("x", "b"), ("y", "c"), (7, "d"), {"text": "e", "name": "z"}]
    assert [tuple(vars(d).values()) for d in corpus_from(items)] == [
        ("1", "a"),
        ("x", "b"),
        ("y", "c"),
        ("7", "d"),
        ("5", "e"),
    ]
    named = corpus_from([{"body": "e", "name": "z"}], text_column="body", id_column="name")
    assert list(named) == [Document("z", "e")]
    assert corpus_from(named) is named


@pytest.mark.parametrize(
    "item", [3, None, ("a", "b", "c"), ("a", 3), {"body": "x"}, b"bytes", "\ud800", {"text": None}]
)
def test_other_live_objects_are_refused(item: object) -> None:
    with pytest.raises(InputError, match="item 2"):
        list(corpus_from(["good", item]))


def test_a_single_string_is_no_corpus() -> None:
    with pytest.raises(InputError, match="single string"):
        corpus_from("abc")


def test_fingerprint_is_of_ids_and_texts_in_order(tmp_path: Path) -> None:
    corpus = corpus_from([("a", "bc"), ("d", "e")])
    by_hand = hashlib.sha256()
    for part in (b"a", b"bc", b"d", b"e"):
        by_hand.update(len(part).to_bytes(8, "big") + part)
    assert corpus.fingerprint() == by_hand.hexdigest()
    others = [[("ab", "c"), ("d", "e")], [("d", "e"), ("a", "bc")], [("a", "bc")], [("a", "bc"), ("d", "E")]]
    prints = {corpus_from(other).fingerprint() for other in others} | {corpus.fingerprint()}
    assert len(prints) == 5
    # The same texts from a file of another format are the same corpus.
    path, _ = sample_file(tmp_path, "csv", ".zst")
    again, _ = sample_file(tmp_path, "parquet", "")
    assert open_corpus(path).fingerprint() == open_corpus(again).fingerprint()


def test_a_corpus_that_changes_between_passes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo")
    corpus = open_corpus(path)
    assert len(list(corpus)) == 2
    path.write_bytes(b"one\nthree")
    with pytest.raises(InputError, match="changed between two passes"):
        list(corpus)


def test_a_text_longer_than_the_csv_module_allows_by_default(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"text\n" + b"word " * 100_000 + b"\n")
    assert len(next(iter(open_corpus(path))).text) == 500_000
