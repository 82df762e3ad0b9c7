"""Damaged files of every kind give typed errors or documents: never another exception, and never a hang."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from text.text_files import COMPRESSIONS, KINDS, sample_file
from topicscope.errors import InputError
from topicscope.text import open_corpus
from topicscope.topics import TopicModel, Topics, Vocabulary, load_any, save_topics

QUICK, LONG = 150, 5_000  # of each of the two kinds of file
SECONDS = 20.0
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
quickly = settings(max_examples=QUICK, deadline=None, suppress_health_check=_CHECKS)
for_long = settings(
    max_examples=LONG, deadline=None, suppress_health_check=_CHECKS, phases=[Phase.explicit, Phase.generate]
)

# What breaks parsers: markers of the formats, numbers out of range, letters outside UTF-8, deep nesting.
SHARP = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b'"',
    b"\n",
    b",",
    b"\t",
    b"{" * 50,
    b"[" * 2000,
    b"<page>",
    b"</page>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&b;",
    b"{{",
    b"[[",
    b"'''",
    b"NaN",
    b"-1",
    b"1e999",
    b"\\ud800",
    b"PK\x03\x04",
    b"\x93NUMPY",
    b"PAR1",
    b"BZh9",
    b"\x1f\x8b",
    b"\xff" * 8,
]


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """One to four cuts, copies and insertions at drawn places."""
    changes = draw(
        st.lists(
            st.tuples(
                st.floats(0, 1),
                st.integers(0, 40),
                st.one_of(st.sampled_from(SHARP), st.binary(max_size=12)),
                st.sampled_from(["replace", "cut off", "repeat"]),
            ),
            min_size=0,
            max_size=4,
        )
    )

    def damaged(data: bytes) -> bytes:
        for share, length, bytes_in, kind in changes:
            at = int(share * len(data))
            if kind == "replace":
                data = data[:at] + bytes_in + data[at + length :]
            elif kind == "cut off":
                data = data[:at]
            else:
                data = data[: at + length] + bytes_in + data[at:]
        return data

    return damaged


def files(folder: Path) -> dict[str, bytes]:
    found = {}
    for kind in KINDS:
        for compression in COMPRESSIONS:
            path, _ = sample_file(folder, kind, compression)
            found[path.name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def topic_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("topics")
    phi = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
    save_topics(folder / "topics.npz", Topics(TopicModel(phi, np.ones(2), Vocabulary(("a", "b", "c"))), {}))
    np.savez(folder / "other.npz", matrix=phi, words=np.array(["a", "b", "c"]))
    np.savez_compressed(folder / "packed.npz", phi=phi, vocabulary=np.array(["a", "b", "c"]))
    np.save(folder / "matrix.npy", phi)
    (folder / "matrix.csv").write_text("topic,a,b,c\nx,1,2,3\ny,3,2,1\n")
    (folder / "words.csv").write_text("word,topic\nriver,water\nking,war\nsea,water\n")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_corpus(path: Path, on_error: str, max_document_bytes: int) -> None:
    corpus = open_corpus(path, on_error=on_error, max_document_bytes=max_document_bytes)  # type: ignore[arg-type]
    for document in corpus:
        assert document.text.strip()
        document.text.encode("utf-8")
        assert len(document.text) <= max_document_bytes


def typed_only(name: str, data: bytes, read: Callable[[Path], object]) -> str:
    """Reads a file of this content: "read", or the summary of its error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        began = time.monotonic()
        try:
            read(path)
            outcome = "read"
        except InputError as error:
            outcome = error.summary
        assert time.monotonic() - began < SECONDS, "as good as a hang"
    assert outcome.strip()
    return outcome


def fuzz_corpus(corpora: dict[str, bytes], name: str, harm: Callable[[bytes], bytes], skip: bool, limit: int) -> None:
    typed_only(name, harm(corpora[name]), lambda path: read_corpus(path, "skip" if skip else "stop", limit))


def fuzz_topics(topic_files: dict[str, bytes], name: str, harm: Callable[[bytes], bytes]) -> None:
    typed_only(name, harm(topic_files[name]), load_any)


CORPUS_CASES = given(
    name=st.sampled_from([f"corpus.{kind}{compression}" for kind in KINDS for compression in COMPRESSIONS]),
    harm=damage(),
    skip=st.booleans(),
    limit=st.sampled_from([60, 10_000, 2**26]),
)
TOPICS_CASES = given(
    name=st.sampled_from(["topics.npz", "other.npz", "packed.npz", "matrix.npy", "matrix.csv", "words.csv"]),
    harm=damage(),
)


@CORPUS_CASES
@quickly
def test_damaged_text_gives_typed_errors_only(
    corpora: dict[str, bytes], name: str, harm: Callable[[bytes], bytes], skip: bool, limit: int
) -> None:
    fuzz_corpus(corpora, name, harm, skip, limit)


@pytest.mark.long
@CORPUS_CASES
@for_long
def test_thousands_of_damaged_texts_give_typed_errors_only(
    corpora: dict[str, bytes], name: str, harm: Callable[[bytes], bytes], skip: bool, limit: int
) -> None:
    fuzz_corpus(corpora, name, harm, skip, limit)


@TOPICS_CASES
@quickly
def test_damaged_topics_give_typed_errors_only(
    topic_files: dict[str, bytes], name: str, harm: Callable[[bytes], bytes]
) -> None:
    fuzz_topics(topic_files, name, harm)


@pytest.mark.long
@TOPICS_CASES
@for_long
def test_thousands_of_damaged_topics_give_typed_errors_only(
    topic_files: dict[str, bytes], name: str, harm: Callable[[bytes], bytes]
) -> None:
    fuzz_topics(topic_files, name, harm)


def test_undamaged_files_are_read_and_an_untyped_error_is_noticed(
    corpora: dict[str, bytes], topic_files: dict[str, bytes]
) -> None:
    for name, data in corpora.items():
        assert typed_only(name, data, lambda path: read_corpus(path, "stop", 2**26)) == "read", name
    for name, data in topic_files.items():
        expected = "the words of the topics are missing" if name == "matrix.npy" else "read"
        assert (typed_only(name, data, load_any) == "read") == (expected == "read"), name

    def broken(path: Path) -> None:
        raise ValueError(path)

    with pytest.raises(ValueError, match=r"corpus\.txt"):
        typed_only("corpus.txt", b"", broken)
