"""`topicscope report`: pages again from saved folders, several results side by side, and what it refuses."""

import shutil
from pathlib import Path

import pytest

from cli.probe_files import WORDS_CSV, jsonl, probe, save_model, texts
from lab.laboratory import RECIPES
from report.reproduction_folders import make, row
from topicscope.cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("report")
    (base / "words.csv").write_text(WORDS_CSV)
    corpus, model = jsonl(base / "corpus.jsonl", texts()), save_model(base / "model")
    assert probe(model, "--corpus", corpus, "--topics", base / "words.csv", "--out", base / "run") == 0
    return base / "run"


def test_a_page_drawn_again_is_the_page_of_the_probe(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    page = (folder / "report.html").read_bytes()
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "report.html").write_text("damaged")
    (tmp_path / "copy" / "documents.parquet").unlink()  # the largest file is not read
    assert run(["report", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy" / "report.html").read_bytes() == page
    assert str(tmp_path / "copy" / "report.html") in capsys.readouterr().out
    assert b'id="cells-blocks"' in page


def test_out_leaves_the_folder_alone(folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert run(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_bytes() == (folder / "report.html").read_bytes()
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_two_results_stand_side_by_side_with_their_differences(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "second")
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(folder), "second"]) == 0
    page = (tmp_path / "comparison.html").read_text()
    assert "2 results side by side" in page
    assert "+0.0000\u00a0±\u00a00.0000" in page  # a result differs from its copy by nothing
    assert page.count('picture plot"') == 2


def test_runs_and_reproductions_have_pages_too(tmp_path: Path) -> None:
    tiny = ("training.steps=3", "training.batch_size=4", "history.documents=5")
    sets = [word for override in tiny for word in ("--set", override)]
    words = ["train", str(RECIPES / "value-matrix.toml"), *sets, "--out", str(tmp_path / "run"), "--progress", "none"]
    assert run(words) == 0
    page = (tmp_path / "run" / "report.html").read_bytes()
    assert run(["report", str(tmp_path / "run"), "--out", str(tmp_path / "run.html")]) == 0
    assert (tmp_path / "run.html").read_bytes() == page
    make(tmp_path / "claims", {"landscape": ("confirmed", [row("minimum", 1.0, "a")])})
    assert run(["report", str(tmp_path / "claims"), "--out", str(tmp_path / "claims.html")]) == 0
    assert not (tmp_path / "claims" / "reproduction.html").exists()
    assert run(["report", str(tmp_path / "claims")]) == 0
    assert (tmp_path / "claims" / "reproduction.html").is_file()


def test_what_cannot_be_reported_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make(tmp_path / "claims", {"landscape": ("confirmed", [row("minimum", 1.0, "a")])})
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text('{"kind": "other"}')
    for arguments, words in [
        ([], "nothing to report"),
        ([tmp_path / "empty"], "no saved result"),
        ([tmp_path / "other"], "not a result of topicscope probe"),
        ([folder, tmp_path / "claims"], "only results of probes"),
        ([folder, "--out", tmp_path / "empty"], "the page is a folder"),
    ]:
        assert run(["report", *map(str, arguments)]) == 2
        assert words in capsys.readouterr().err


def test_a_history_has_no_page_and_says_how_it_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run_line = '{"kind": "run", "schema_version": 1, "start_step": 0, "model": {"name": "m"}}\n'
    (tmp_path / "topic_structure.jsonl").write_text(run_line)
    assert run(["report", str(tmp_path)]) == 2
    assert "no page for a history" in capsys.readouterr().err
    assert run(["report", str(tmp_path), str(tmp_path)]) == 2
    assert "only results of probes" in capsys.readouterr().err
