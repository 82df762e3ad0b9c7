"""`topicscope circuits` on a tiny model."""

import json

import pytest

from cli.probe_files import WORDS_CSV, save_model
from topicscope.cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("circuits")
    save_model(folder / "model", "gpt2")
    (folder / "words.csv").write_text(WORDS_CSV)
    return folder


def test_json_and_files(folder, capsys):
    arguments = ["circuits", str(folder / "model"), "--topics", str(folder / "words.csv")]
    assert run([*arguments, "--json", "--out", str(folder / "out")]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == "circuits"
    assert len(record["rows"]) == 2 * 2 * 2 * 5
    assert record == json.loads((folder / "out" / "circuits.json").read_text())
    assert run([*arguments, "--out", str(folder / "out")]) == 2
    assert "overwrite" in capsys.readouterr().err


def test_tables_fit_a_terminal(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "words.csv")]) == 0
    out = capsys.readouterr().out
    assert "Circuits of" in out
    assert "decoder, θ = -, raw" in out
    rows = [line for line in out.splitlines() if line.strip()[:1] in ("0", "1") and "+" in line]
    assert len(rows) == 4
    assert all(len(row.split()) >= 11 for row in rows)


def test_bad_topics(folder, capsys):
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    (folder / "one.csv").write_text("word,topic\nriver,water\nsea,water\n")
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "one.csv")]) == 2
    assert "at least two topics" in capsys.readouterr().err
