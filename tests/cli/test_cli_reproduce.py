import json
import re

import pytest

from topicscope.claims import theory_holds
from topicscope.cli import run


@pytest.fixture(autouse=True)
def _few(monkeypatch) -> None:
    monkeypatch.setattr(theory_holds, "QUICK", theory_holds.LEAST)


def test_json_is_the_file(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "theory-holds", "--quick", "--json", "--out", str(out)]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((out / "claims.json").read_text())
    assert [(entry["id"], entry["verdict"]) for entry in document["claims"]] == [("theory-holds", "confirmed")]
    assert run([*words, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_the_table_shows_rows_and_verdicts(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["reproduce", "theory-holds", "--quick", "--out", str(tmp_path / "out"), "--progress", "json"]) == 0
    shown = capsys.readouterr()
    assert "Theorem 2 (Knowl 2): share that holds inside its assumptions" in shown.out
    assert "measured ± error" in shown.out
    assert "confirmed: 4 of 4 comparisons hold" in shown.out
    assert str(tmp_path / "out" / "reproduction.html") in shown.out
    assert (tmp_path / "out" / "figures" / "theory-holds.pdf").is_file()
    summary = shown.out.partition("Summary")[2]
    assert re.search(r"theory-holds +Theorem 1.*- +1 +1 +confirmed", summary)
    events = [json.loads(line) for line in shown.err.splitlines()]
    assert {event["task"] for event in events} == {"claims", "theory-holds"}


def test_bad_usage(tmp_path, capsys) -> None:
    assert run(["reproduce", "value-blok", "--out", str(tmp_path / "a")]) == 2
    assert "did you mean value-block?" in capsys.readouterr().err
    assert run(["reproduce", "--seeds", "1", "--out", str(tmp_path / "a")]) == 2
    assert run(["reproduce", "--resume"]) == 2
    (tmp_path / "b").write_text("mine")
    assert run(["reproduce", "theory-holds", "--out", str(tmp_path / "b")]) == 2
    assert not (tmp_path / "a").exists()
