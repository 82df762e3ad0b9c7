"""Bad input to `topicscope probe`: exit 2, a message that says what, where and what to do, and nothing written."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import transformers

import tiny
from cli.probe_files import WORDS_CSV, jsonl, probe, save_model, texts

FIT = ("--sweeps", 5, "--min-count", 1, "--topics")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "corpus.jsonl", texts(6))


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_text(WORDS_CSV)
    return path


class Refused:
    """Runs a probe that must be refused, checks that nothing was written, and returns the message."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: object) -> str:
        before = sorted(self.folder.rglob("*"))
        self.capsys.readouterr()
        code = probe(*arguments, "--out", self.folder / "deep" / "run")
        printed = self.capsys.readouterr()
        assert code == 2, printed.err
        assert sorted(self.folder.rglob("*")) == before
        assert printed.out == ""
        lines = printed.err.splitlines()
        assert lines[0].startswith("error: ")
        labels = ("  received: ", "  expected: ", "  where: ", "  what to do: ")
        assert all(line.startswith(labels) for line in lines[1:]), lines
        assert len(lines) >= 2, "a summary alone helps nobody"
        return printed.err


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    return Refused(tmp_path, capsys)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("c.txt", b"", ["the corpus is empty", "where: c.txt"]),
        ("c.txt", b"\n  \n", ["the corpus is empty", "received: "]),
        ("c.txt", b"river sea\nking \xff queen\n", ["UTF-8", "c.txt", "line 2", "byte", "--encoding"]),
        ("c.jsonl", b'{"text": "river"}\nriver sea\n', ["not a JSON object", "c.jsonl, line 2", "--on-error skip"]),
        ("c.jsonl", b'{"body": "river"}\n', ["text", "c.jsonl, line 1", "body", "--text-column"]),
        ("c.csv", b"id,body\n1,river\n", ["text", "c.csv", "--text-column"]),
        ("c.pdf", b"%PDF", ["c.pdf", "expected: "]),
        ("c.txt.gz", gzip.compress(b"river sea\n" * 99, mtime=0)[:-9], ["c.txt.gz", "received: "]),
        ("c.parquet", b"river", ["c.parquet"]),
        ("c.xml", b"<html>river</html>", ["c.xml"]),
    ],
)
def test_text_that_cannot_be_read(
    name: str, content: bytes, parts: list[str], refused: Refused, model: Path, words: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    message = refused(model, "--corpus", tmp_path / name, "--topics", words)
    assert [part for part in parts if part.lower() not in message.lower()] == [], message


def test_another_encoding_reads_what_utf_8_could_not(model: Path, words: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_bytes(("river sea king queen café.\n" * 6).encode("latin-1"))
    assert probe(model, "--corpus", path, "--topics", words, "--out", tmp_path / "run", "--encoding", "latin-1") == 0


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--corpus", "nowhere.txt"), ["nowhere.txt"]),
        ((*FIT, 2, "--threshold", 0), ["--threshold", "received: 0", "0 < threshold <= 1"]),
        ((*FIT, 2, "--threshold", 0.1, 1.5), ["--threshold", "received: 1.5"]),
        ((*FIT, 2, "--threshold", "nan"), ["--threshold", "received: nan"]),
        ((*FIT, 7), ["more topics than documents", "6", "7"]),
        ((*FIT, 2, "--language", "xx"), ["language", "xx"]),
        (("--max-units", 0), ["--max-units", "received: 0"]),
        (("--batch-size", 0), ["--batch-size", "received: 0"]),
        (("--topics", "nowhere.npz"), ["nowhere.npz"]),
        (("--topics", 0), ["--topics", "received: 0"]),
        (("--topic-seeds", 2), ["--topic-seeds"]),
        (("--device", "abacus"), ["device", "abacus", "cpu"]),
        (("--dtype", "float12"), ["dtype", "float12", "float32"]),
    ],
)
def test_options_that_cannot_be_used(
    arguments: tuple[object, ...], parts: list[str], refused: Refused, model: Path, words: Path, corpus: Path
) -> None:
    given = [*arguments] if "--corpus" in arguments else [*arguments, "--corpus", corpus]
    message = refused(model, *given, *(() if "--topics" in arguments else ("--topics", words)))
    assert [part for part in parts if part not in message] == [], message


def save_arrays(path: Path, **changes: object) -> Path:
    arrays = {
        "schema_version": np.array(1),
        "phi": np.array([[0.75, 0.25], [0.25, 0.75]]),
        "alpha": np.ones(2),
        "words": np.array(["river", "king"]),
        "provenance": np.array("{}"),
    }
    np.savez(path, **(arrays | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"schema_version": np.array(7)},
            ["another schema", "received: schema_version 7", "expected: schema_version 1"],
        ),
        ({"phi": np.array([[np.nan, 1.0], [0.5, 0.5]])}, ["NaN"]),
        ({"phi": np.array([[0.5, 0.5], [0.5, 0.5]])}, ["topics"]),
    ],
)
def test_topics_files_that_cannot_be_used(
    changes: dict[str, object], parts: list[str], refused: Refused, model: Path, corpus: Path, tmp_path: Path
) -> None:
    path = save_arrays(tmp_path / "topics.npz", **changes)
    message = refused(model, "--corpus", corpus, "--topics", path)
    assert [part for part in [*parts, "topics.npz"] if part not in message] == [], message


def test_that_very_topics_file_is_fine_without_the_fault(model: Path, tmp_path: Path) -> None:
    path = save_arrays(tmp_path / "topics.npz")
    corpus = jsonl(tmp_path / "corpus.jsonl", ["river king river king"] * 3)
    assert probe(model, "--corpus", corpus, "--topics", path, "--threshold", 0.5, "--out", tmp_path / "run") == 0


def test_words_that_the_tokenizer_does_not_know(refused: Refused, model: Path, words: Path, tmp_path: Path) -> None:
    corpus = jsonl(tmp_path / "c.jsonl", ["река мост море", "война меч король"])
    message = refused(model, "--corpus", corpus, "--topics", words)
    assert "known to the tokenizer" in message
    assert "where: tiny-bert" in message


def test_no_pair_at_any_threshold(refused: Refused, model: Path, words: Path, tmp_path: Path) -> None:
    corpus = jsonl(tmp_path / "c.jsonl", ["the old stone cafe", "the old stone garden"])
    message = refused(model, "--corpus", corpus, "--topics", words)
    assert "no same-topic" in message
    assert "--unit passage" in message


def test_models_that_cannot_be_used(
    refused: Refused, model: Path, words: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--corpus", corpus, "--topics", words)
    tiny.build("bert")[0].save_pretrained(tmp_path / "no-tokenizer")
    assert "no tokenizer" in refused(tmp_path / "no-tokenizer", *options)

    (tmp_path / "empty").mkdir()
    assert "config.json" in refused(tmp_path / "empty", *options)
    assert "there is no such model folder" in refused("./nowhere", *options)

    folder = tmp_path / "t5"
    transformers.T5Config(d_model=8, num_layers=1, num_heads=1, d_ff=8).save_pretrained(folder)
    tiny.tokenizer_for("bert").save_pretrained(folder)
    message = refused(folder, *options)
    assert "t5" in message
    assert "expected: " in message

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    message = refused("someone/unknown", *options)
    assert "received: someone/unknown" in message
    assert "HF_HUB_OFFLINE" in message


def test_outputs_that_cannot_be_written(
    model: Path, words: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the work and not after it: also a folder inside a file."""
    options = (model, "--corpus", corpus, "--topics", words, "--out")
    before = corpus.read_bytes()
    for out in (corpus, corpus / "run"):
        assert probe(*options, out, "--overwrite") == 2
        assert str(out) in capsys.readouterr().err
    assert corpus.read_bytes() == before


def test_resume_without_out_is_refused(
    model: Path, words: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh folder has nothing to resume; a run that silently started over would cost what was finished."""
    assert probe(model, "--corpus", corpus, "--topics", words, "--resume") == 2
    assert "--out DIR" in capsys.readouterr().err


def test_a_skipped_line_is_not_forgiven_when_nothing_is_left(
    refused: Refused, model: Path, words: Path, tmp_path: Path
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("no json\n" + json.dumps({"id": 1}) + "\n")
    message = refused(model, "--corpus", path, "--topics", words, "--on-error", "skip")
    assert "the corpus is empty" in message
    assert "left out" in message
