"""Text and topics at URLs, results on this machine: the URL of a result is refused at once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.probe_files import WORDS_CSV, jsonl, probe, save_model, texts
from storages import clear, put
from topicscope.cli import run

URL = "s3://me:pw@bucket/run?token=secret"


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    clear()
    yield
    clear()


def test_text_and_topics_at_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put("memory://b/shards/0.jsonl", jsonl(tmp_path / "corpus", texts(8)).read_bytes())
    put("memory://b/shards/1.jsonl", jsonl(tmp_path / "corpus", texts(8, seed=1)).read_bytes())
    words = put("memory://b/words.csv", WORDS_CSV.encode())
    secret = "memory://me:pw@b/shards?token=secret"
    monkeypatch.setattr("sys.argv", ["topicscope", "probe", "x", "--corpus", secret, "--out", "one"])
    arguments = ["--corpus", "memory://b/shards", "--topics", words, "--permutations", 0, "--profile", 0]
    assert probe(save_model(tmp_path / "tiny-bert"), *arguments, "--out", tmp_path / "one") == 0
    assert f"report: {tmp_path}/one/report.html" in capsys.readouterr().out
    document = json.loads((tmp_path / "one" / "result.json").read_text())
    assert document["manifest"]["command"] == "topicscope probe x --corpus memory://b/shards --out one"
    assert document["manifest"]["sources"]["corpus"]["name"] == "shards"


def test_topics_of_text_at_a_url_and_a_topics_file_at_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = put("memory://b/corpus.jsonl", jsonl(tmp_path / "corpus", texts(12)).read_bytes())
    file = tmp_path / "topics.npz"
    assert run(["topics", "fit", corpus, "--topics", "2", "--sweeps", "5", "--min-count", "1", "-o", str(file)]) == 0
    assert f"saved to {file}" in capsys.readouterr().out
    assert run(["topics", "show", put("memory://b/topics.npz", file.read_bytes())]) == 0
    assert "2 topics" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "probe missing --out",
        "probe --checkpoints missing --out",
        "train missing.toml --out",
        "sweep missing.toml --out",
        "reproduce missing --out",
        "circuits missing --topics missing --out",
        "report missing --out",
        "topics fit missing.txt -o",
        "report",
        "report missing",
        "compare missing",
    ],
)
def test_a_url_of_a_result_is_refused_before_any_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*command.split(), URL]) == 2
    said = capsys.readouterr().err
    writes = command.rsplit(maxsplit=1)[-1] in ("--out", "-o")
    assert f"results are {'written to' if writes else 'read from'} this machine only" in said
    assert "received: s3://bucket/run\n" in said
    assert "of this machine\n" in said
    assert "aws s3" in said
    assert list(tmp_path.iterdir()) == []
