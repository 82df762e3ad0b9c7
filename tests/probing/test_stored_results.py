"""Results at URLs: those of a folder, never half of one, and nothing lost when the storage fails."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import topicscope
from cli.probe_files import jsonl, save_model, texts, undrawn
from probing.test_probe_resume import Stop, StopsAt, same
from storages import clear, fault, get, names, put
from topicscope.errors import InputError, RunError
from topicscope.probing import passes
from topicscope.probing.result import ProbeResult
from topicscope.records.output import working_folder

URL = "faulty://bucket/runs/one"
FILES = ["documents.parquet", "heads.csv", "heads.png", "moments.npz", "report.html", "result.json"]


@pytest.fixture(autouse=True)
def _storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "cache"))
    clear()
    with undrawn():
        yield
    clear()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("given")
    (folder / "words.csv").write_text("word,topic\nriver,w\nsea,w\nship,w\nking,k\nwar,k\narmy,k\nmusic,m\nsong,m\n")
    options = {"documents": jsonl(folder / "corpus.jsonl", texts(16)), "topics": folder / "words.csv"}
    return str(save_model(folder / "tiny-bert")), options | {"controls": 0, "permutations": 0, "profile": 0}


def left_here(tmp_path: Path) -> list[str]:
    runs = tmp_path / "cache" / "runs"
    return sorted(path.name for path in runs.rglob("*") if path.is_file()) if runs.exists() else []


@pytest.mark.parametrize("url", ["memory://bucket/runs/one", "file://{}/store/one"])
def test_a_result_at_a_url_is_that_of_a_folder(url: str, given: Any, tmp_path: Path) -> None:
    model, options = given
    url = url.format(tmp_path)
    there = topicscope.probe(model, **options, out=url)
    here = topicscope.probe(model, **options, out=tmp_path / "here")
    assert names(url) == sorted(path.name for path in (tmp_path / "here").iterdir())
    assert set(names(url)) >= set(FILES) - {"heads.png", "report.html"}
    for name in names(url):
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(get(f"{url}/{name}"))
    same(tmp_path / "here", tmp_path / "copy")
    loaded = ProbeResult.load(url)
    for result in (there, loaded):
        pd.testing.assert_frame_equal(result.table(), here.table())
        pd.testing.assert_frame_equal(result.documents, here.documents)
    assert len(topicscope.compare(url, tmp_path / "here").rows) > 0
    del there, loaded, result
    assert left_here(tmp_path) == []


def test_what_is_there_is_not_replaced_unless_asked(given: Any, tmp_path: Path) -> None:
    model, options = given
    put(f"{URL}/other/file.txt", b"mine")
    for more in ({}, {"resume": True}):
        with pytest.raises(InputError, match=r"(?s)output folder is not empty.*faulty:.*--overwrite"):
            topicscope.probe(model, **options, out=URL, **more)
    assert names(URL) == ["other/file.txt"]
    assert left_here(tmp_path) == []
    topicscope.probe(model, **options, out=URL, overwrite=True)
    assert "other/file.txt" not in names(URL)
    with pytest.raises(InputError, match="output folder is not empty"):
        topicscope.probe(model, **options, out=URL)
    put("faulty://bucket/file", b"a file")
    with pytest.raises(InputError, match="output path is a file"):
        topicscope.probe(model, **options, out="faulty://bucket/file")


@pytest.mark.parametrize(
    ("how", "words"),
    [("read only", "cannot be written.*no permission"), ("forbidden", "cannot be used.*Access Denied")],
)
def test_a_storage_that_cannot_be_written_is_named_before_any_work(
    how: str, words: str, given: Any, tmp_path: Path
) -> None:
    _, options = given
    with fault(how), pytest.raises(InputError, match=rf"(?s){words}"):
        topicscope.probe("/no/such/model", **options, out=URL)
    assert left_here(tmp_path) == []
    with pytest.raises(InputError, match="no name"):
        topicscope.probe("/no/such/model", **options, out="memory://")


@pytest.mark.parametrize(("how", "puts"), [("full", 3), ("truncates", 0)])
def test_a_copy_that_breaks_off_loses_nothing(how: str, puts: int, given: Any, tmp_path: Path) -> None:
    model, options = given
    with fault(how, puts), pytest.raises(RunError, match=r"(?s)could not be copied.*--resume") as raised:
        topicscope.probe(model, **options, out=URL)
    folder = working_folder(URL)
    assert str(folder) in str(raised.value)
    assert (folder / "result.json").is_file()
    with pytest.raises(InputError, match=r"(?s)not copied to the end.*--resume"):
        ProbeResult.load(URL)
    with pytest.raises(InputError, match="half of a result"):
        topicscope.probe(model, **options, out=URL)
    # The model is not asked again: what was computed is copied.
    result = topicscope.probe(model, **options, out=URL, resume=True)
    pd.testing.assert_frame_equal(ProbeResult.load(URL).table(), result.table())
    assert result.complete
    del result
    assert left_here(tmp_path) == []
    assert ".unfinished" not in names(URL)


def test_an_interrupted_run_is_kept_here_and_goes_on(
    given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, options = given
    monkeypatch.setattr(passes, "UNITS_PER_CHUNK", 16)
    stops = StopsAt("reading", 40, KeyboardInterrupt)
    stopped = topicscope.probe(model, **options, batch_size=4, out=URL, progress=stops)
    assert stopped.interrupted
    assert len(stopped.documents) > 0
    assert (working_folder(URL) / "result.json").is_file()
    assert names(URL) == []
    with pytest.raises(InputError, match=r"(?s)was not finished.*faulty:.*--resume.*--overwrite"):
        topicscope.probe(model, **options, batch_size=4, out=URL)
    result = topicscope.probe(model, **options, batch_size=4, out=URL, resume=True)
    whole = topicscope.probe(model, **options, batch_size=4)
    pd.testing.assert_frame_equal(result.documents, whole.documents)
    assert "result.json" in names(URL)
    del result
    assert left_here(tmp_path) == []


def test_a_run_that_died_goes_on(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, options = given
    monkeypatch.setattr(passes, "UNITS_PER_CHUNK", 16)
    monkeypatch.setattr(passes, "SECONDS_PER_SHARD", 0)
    with pytest.raises(Stop):
        topicscope.probe(model, **options, batch_size=4, out=URL, progress=StopsAt("reading", 40))
    assert names(URL) == []
    # --overwrite starts anew.
    topicscope.probe(model, **options, batch_size=4, out=URL, overwrite=True)
    assert left_here(tmp_path) == []
    assert "result.json" in names(URL)


def test_a_finished_result_is_read_from_its_url(given: Any, tmp_path: Path) -> None:
    model, options = given
    first = topicscope.probe(model, **options, out=URL)
    written = {name: get(f"{URL}/{name}") for name in names(URL)}
    again = topicscope.probe(model, **options, out=URL, resume=True)
    assert {name: get(f"{URL}/{name}") for name in names(URL)} == written
    pd.testing.assert_frame_equal(again.documents, first.documents)
    with pytest.raises(InputError, match="another run"):
        topicscope.probe(model, **options | {"seed": 7}, out=URL, resume=True)
    del first, again
    assert left_here(tmp_path) == []


def test_no_result_there() -> None:
    with pytest.raises(InputError, match=r"(?s)no saved result.*memory://bucket/nothing"):
        ProbeResult.load("memory://bucket/nothing")
    put("memory://bucket/some/file.txt", b"")
    with pytest.raises(InputError):
        ProbeResult.load("memory://bucket/some")
    assert json.dumps(names("memory://bucket/some")) == '["file.txt"]'
