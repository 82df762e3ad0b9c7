"""Folders of results that were cut short, changed by hand or only half copied: an error of one screen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.probing.results import ProbeResult


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    (folder / "words.csv").write_text(WORDS_CSV)
    model, tokenizer = tiny.build("bert")
    options = {"controls": 0, "permutations": 0, "profile": 0}
    topicscope.probe(model, tokenizer, texts(4), topics=folder / "words.csv", out=folder / "whole", **options)
    return folder / "whole"


def without(key: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        record = json.loads((folder / "result.json").read_text())
        del record[key]
        (folder / "result.json").write_text(json.dumps(record))

    return change


def halved(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a list": lambda folder: (folder / "result.json").write_text("[]"),
    "a table of numbers": lambda folder: (folder / "result.json").write_text(
        json.dumps(json.loads((folder / "result.json").read_text()) | {"table": 3})
    ),
    "half a record": halved("result.json"),
    "half of the sums": halved("moments.npz"),
    "half of the documents": halved("documents.parquet"),
    "no documents": lambda folder: (folder / "documents.parquet").unlink(),
    "no heads": lambda folder: (folder / "heads.csv").unlink(),
    "empty heads": lambda folder: (folder / "heads.csv").write_bytes(b""),
    **{f"no {key}": without(key) for key in ("schema_version", "headline", "model", "table", "coverage", "manifest")},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_named(
    damage: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    DAMAGES[damage](tmp_path / "copy")
    with pytest.raises(InputError, match="copy"):
        _ = ProbeResult.load(tmp_path / "copy").documents
    assert run(["compare", str(whole), str(tmp_path / "copy")]) == 2
    assert "copy" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["result.json", "heads.png"])
def test_a_file_is_no_folder(name: str, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(whole), str(whole / name)]) == 2
    assert name in capsys.readouterr().err


def test_the_whole_one_is_read(whole: Path) -> None:
    assert len(ProbeResult.load(whole).documents) == 4
    assert run(["compare", str(whole), str(whole)]) == 0
