"""Corpora in shards: one text in the order of names, ids that are unique, flat memory, and only the columns needed."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storages import Faulty, clear, put
from text.text_files import write
from topicscope.errors import InputError
from topicscope.text import Corpus, open_corpus, readers


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    clear()
    yield
    clear()


def parquet(texts: list[str], **more: object) -> bytes:
    sink = pa.BufferOutputStream()
    keys = [f"k{text}" for text in texts]
    pq.write_table(pa.table({"key": keys, "text": texts}), sink, **more)
    return bytes(sink.getvalue().to_pybytes())


def shard(kind: str, texts: list[str]) -> bytes:
    if kind == "parquet":
        return parquet(texts, row_group_size=2)
    if kind == "jsonl":
        return "".join(json.dumps({"key": f"k{text}", "text": text}) + "\n" for text in texts).encode()
    return ("key,text\n" + "".join(f"k{text},{text}\n" for text in texts)).encode()


@pytest.mark.parametrize("place", ["here", "memory"])
@pytest.mark.parametrize("ending", ["parquet", "jsonl.gz", "csv.zst"])
def test_shards_are_one_text(tmp_path: Path, ending: str, place: str) -> None:
    folder = tmp_path / "data"
    (folder / "more").mkdir(parents=True)
    kind = ending.partition(".")[0]
    written = {f"train-0000{i}-of-00003.{ending}": [f"{i}{j}" for j in range(3)] for i in (2, 0, 1)}
    written[f"more/part-0.{ending}"] = ["m0"]
    for name, texts in written.items():
        write(folder / name, shard(kind, texts))
    (folder / "README.md").write_text("about")
    (folder / "dataset_info.json").write_text("{}")
    (folder / f"_copy.{ending}").write_bytes(b"half")
    (folder / f".part-0.{ending}").write_bytes(b"half")
    where = str(folder)
    if place == "memory":
        for path in folder.rglob("*.*"):
            put(f"memory://b/data/{path.relative_to(folder).as_posix()}", path.read_bytes())
        where = "memory://b/data"
    corpus = open_corpus(where)
    found = [(document.id, document.text) for document in corpus]
    expected = [(f"{name}:{j + 1}", text) for name in sorted(written) for j, text in enumerate(written[name])]
    assert found == expected
    assert corpus.skipped == {f"not a .{kind} file": 2, "hidden file": 2}
    assert [document.id for document in open_corpus(where, id_column="key")] == [f"k{text}" for _, text in expected]
    some = open_corpus(f"{where}/train-*.{ending}")
    assert [(document.id, document.text) for document in some] == [row for row in expected if row[0].startswith("t")]


def test_parts_of_a_dump_keep_their_titles(tmp_path: Path) -> None:
    for i in (1, 2):
        page = f"<page><title>Title {i}</title><revision><text>text {i}</text></revision></page>"
        write(tmp_path / f"articles{i}.xml-p{i}p9.bz2", f"<mediawiki>{page}</mediawiki>".encode())
    assert [document.id for document in open_corpus(tmp_path)] == ["Title 1", "Title 2"]


def test_json_is_lines_where_nothing_else_is(tmp_path: Path) -> None:
    for i in (1, 0):
        write(tmp_path / f"c4-train.0000{i}-of-00002.json.gz", shard("jsonl", [str(i)]))
    assert [document.text for document in open_corpus(tmp_path)] == ["0", "1"]


def test_shards_of_several_kinds_are_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(shard("csv", ["1"]))
    (tmp_path / "b.jsonl").write_bytes(shard("jsonl", ["2"]))
    with pytest.raises(InputError, match=r"(?s)several kinds.*1 \.csv, 1 \.jsonl.*pattern"):
        open_corpus(tmp_path)
    assert [document.text for document in open_corpus(f"{tmp_path}/*.jsonl")] == ["2"]


def test_a_folder_with_txt_is_one_of_txt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "index.csv").write_bytes(shard("csv", ["1"]))
    corpus = open_corpus(tmp_path)
    assert [(document.id, document.text) for document in corpus] == [("a.txt", "text")]
    assert corpus.skipped == {"not a .txt file": 1}


def test_a_shard_without_the_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(shard("csv", ["1"]))
    (tmp_path / "b.csv").write_text("key,body\n1,2\n")
    with pytest.raises(InputError, match=r'(?s)no column "text".*b\.csv'):
        list(open_corpus(tmp_path))


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("one")
    (tmp_path / "a1.txt").write_text("two")
    assert [document.text for document in open_corpus(tmp_path / "a[1].txt")] == ["one"]


def wide(groups: int) -> bytes:
    """Row groups of 64 texts of 4 kB, beside a column of 100 times that."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("picture", pa.binary()), ("text", pa.string())])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="none", use_dictionary=False) as writer:
        for group in range(groups):
            texts = [f"{group} {row} " + rng.bytes(2_000).hex() for row in range(64)]
            writer.write_table(pa.table({"picture": [b"x" * 40_000] * 64, "text": texts}, schema))
    return bytes(sink.getvalue().to_pybytes())


def test_only_the_columns_needed_are_fetched() -> None:
    data = wide(8)
    corpus = open_corpus(put("faulty://b/wide.parquet", data))
    Faulty.fetched = 0
    characters = sum(len(document.text) for document in corpus)
    assert characters <= Faulty.fetched < 1.3 * characters < len(data) / 1.5
    with_id = Faulty.fetched
    open_corpus("faulty://b/wide.parquet")  # the first document is in the first row group
    assert Faulty.fetched - with_id < 0.4 * characters


def peak(corpus: Corpus) -> int:
    """Most bytes held while a corpus is read, as looked at after every 16th document."""
    before, most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    for number, _ in enumerate(corpus):
        if number % 16 == 0:
            most = max(most, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[0])
    most = max(most, tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    return most


def test_memory_does_not_grow_with_the_row_groups() -> None:
    few, many = (peak(open_corpus(put(f"faulty://b/{groups}.parquet", wide(groups)))) for groups in (4, 40))
    assert many < 1.3 * few


@pytest.mark.parametrize("dictionary", [False, True])
def test_of_a_large_row_group_little_is_in_memory(dictionary: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [rng.bytes(5_000).hex() for _ in range(6_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "large.parquet", use_dictionary=dictionary)
    assert pq.ParquetFile(tmp_path / "large.parquet").num_row_groups == 1
    assert peak(open_corpus(tmp_path / "large.parquet")) < 0.5 * sum(map(len, texts))


def test_a_text_that_many_rows_share_is_not_unpacked_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "river " * 50_000
    pq.write_table(pa.table({"text": [text] * 300}), tmp_path / "shared.parquet")
    assert (tmp_path / "shared.parquet").stat().st_size < len(text)
    assert peak(open_corpus(tmp_path / "shared.parquet")) > 200 * len(text), "a row group of so few bytes"
    monkeypatch.setattr(readers, "_UNPACKED", 10 * len(text))
    assert peak(open_corpus(tmp_path / "shared.parquet")) < 30 * len(text)
