"""`topicscope circuits` on a tiny model."""

import json
from dataclasses import replace

import pytest

from cli.probe_files import WORDS_CSV, save_model
from topicscope.cli import circuits as command
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
    """No number is broken into two lines, however long the numbers of a real model are."""

    def long_numbers(*given, **options):
        found = find(*given, **options)
        values = {"difference": -1.234e-5, "z": -142.64, "z_banded": -140.16, "z_turned": -113.26}
        return replace(found, rows=found.rows.assign(**values))

    find = command.find_circuits
    monkeypatch.setattr(command, "find_circuits", long_numbers)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "words.csv")]) == 0
    out = capsys.readouterr().out
    assert "Circuits of" in out
    titles = [f"decoder, θ = -, {place}: {circuit}," for place in ("raw", "layer") for circuit in ("OV", "QK")]
    assert all(title in out for title in titles)
    cells = ["-1.2e-05", "-142.6", "-140.2", "-113.3", "+0", "-4"]
    assert [line.split() for line in out.splitlines() if "-113" in line] == [["0", *cells], ["1", *cells]] * 4


def test_bad_topics(folder, capsys):
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    (folder / "one.csv").write_text("word,topic\nriver,water\nsea,water\n")
    assert run(["circuits", str(folder / "model"), "--topics", str(folder / "one.csv")]) == 2
    assert "at least two topics" in capsys.readouterr().err
