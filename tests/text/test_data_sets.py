"""Corpora from live objects: Hugging Face data sets where installed, and stand-ins with the same manners."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from topicscope.errors import InputError
from topicscope.text import Document, corpus_from

ROWS = [{"text": "a b", "url": "x"}, {"text": "c d", "url": "y"}]
EXPECTED = [Document("x", "a b"), Document("y", "c d")]


class Streamed:
    """Rows that come one by one and start again, as an IterableDataset's do; it has neither length nor index."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.passes = rows, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.passes += 1
        yield from self.rows


def in_numpy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: np.str_(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize("make", [Streamed, list, in_numpy, tuple])
def test_rows_of_any_iterable(make: Any) -> None:
    corpus = corpus_from(make(ROWS), id_column="url")
    for _ in range(2):
        found = list(corpus)
        assert found == EXPECTED
        assert all(type(document.text) is str for document in found)


def test_ids_may_be_whole_numbers_of_numpy() -> None:
    rows = [{"text": "a", "id": np.int64(7)}, {"text": "b", "id": 8}]
    assert [document.id for document in corpus_from(rows, id_column="id")] == ["7", "8"]


def test_a_data_set_with_splits_is_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r'(?s)train, test.*dataset\["train"\]'):
        corpus_from({"train": ROWS, "test": ROWS})


def test_another_column_and_a_missing_text() -> None:
    with pytest.raises(InputError, match=r'(?s)no column "body".*columns text, url'):
        list(corpus_from(Streamed(ROWS), text_column="body"))
    with pytest.raises(InputError, match=r"(?s)no text.*item 2"):
        list(corpus_from([*ROWS[:1], {"text": None, "url": "y"}]))


def test_a_streamed_data_set_is_probed_as_its_list_is(tmp_path: Path) -> None:
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    rows = [{"text": text} for text in texts()]
    model, tokenizer = tiny.build("bert")
    options = {"topics": words, "controls": 0}
    streamed = topicscope.probe(model, tokenizer, Streamed(rows), **options)
    listed = topicscope.probe(model, tokenizer, [row["text"] for row in rows], **options)
    assert streamed.table().equals(listed.table())
    assert streamed.manifest.sources == listed.manifest.sources


def test_a_data_frame_is_read_by_its_column_or_its_rows() -> None:
    frame = pd.DataFrame(ROWS)
    with pytest.raises(InputError, match=r"(?s)columns and not its rows.*text, url.*to_dict"):
        corpus_from(frame)
    rows = corpus_from(frame.to_dict("records"), id_column="url")
    assert list(rows) == EXPECTED
    assert [document.text for document in corpus_from(frame["text"])] == [document.text for document in EXPECTED]


def test_real_data_sets() -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    for data_set in (whole, whole.with_format("numpy"), whole.with_format("torch"), whole.to_iterable_dataset()):
        corpus = corpus_from(data_set, id_column="url")
        assert list(corpus) == list(corpus) == EXPECTED
    with pytest.raises(InputError, match="split"):
        corpus_from(datasets.DatasetDict({"train": whole}))
