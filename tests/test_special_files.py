"""Pipes, sockets and devices are refused at once wherever a file is read, or counted in a folder; nothing waits."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.experiments import load_spec
from topicscope.probing.hf import load_model
from topicscope.records import open_place, read_json, read_npy, read_npz, require_regular_file
from topicscope.text import open_corpus
from topicscope.topics import load_any, load_phi, load_topics
from topicscope.topics.files import import_matrix, load_word_list

READERS: dict[str, Callable[[Path], Any]] = {
    "corpus": open_corpus,
    "topics": load_any,
    "topics file": load_topics,
    "matrix": import_matrix,
    "word list": load_word_list,
    "phi": load_phi,
    "npz": read_npz,
    "npy": read_npy,
    "json": read_json,
    "sweep": load_spec,
    "model": lambda path: load_model(str(path)),
    "bytes": open_place,
}


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A reader that waits for a pipe is woken up and fails, instead of stopping the tests."""
    if not hasattr(signal, "SIGALRM"):
        pytest.skip("no alarm here")

    def late(*_: Any) -> None:
        raise AssertionError("a reader waited")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["pipe", "link to a pipe", "socket", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "special.csv"
    if request.param == "socket":
        os.chdir(tmp_path)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
            yield path
        return
    if request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "pipe":
        os.mkfifo(path)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    yield path


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_it(reader: str, special: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(special.parent)
    with pytest.raises(InputError, match="not a regular file") as caught:
        READERS[reader](special)
    assert special.name in str(caught.value.received)
    assert caught.value.exit_code == 2
    assert caught.value.advice


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "minilm", "--corpus", "{}"),
        ("probe", "minilm", "--corpus", "text.txt", "--topics", "{}"),
        ("topics", "show", "{}"),
        ("train", "{}", "--out", "run"),
        ("sweep", "{}", "--out", "runs"),
    ],
)
def test_commands_end_with_exit_code_2(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.txt")
    Path("text.txt").write_text("the river\n")
    assert run([part.format("pipe.txt") for part in command]) == 2
    assert "a named pipe" in capsys.readouterr().err


def test_in_a_folder_of_texts_it_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the river")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to("/dev/zero")
    for source in (tmp_path, tmp_path / "*.txt"):
        corpus = open_corpus(source)
        assert [document.id for document in corpus] == ["a.txt"]
        assert corpus.skipped == {"not a regular file": 2}


def test_files_links_and_folders_are_let_be(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the river")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    for path in (tmp_path, tmp_path / "a.txt", tmp_path / "link.txt", tmp_path / "missing"):
        require_regular_file(path)
    assert [document.text for document in open_corpus(tmp_path / "link.txt")] == ["the river"]
