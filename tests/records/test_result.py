"""What every kind of result can do: it is saved as data, loaded by its record, reported with a page of its own."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from experiments.small_sweeps import write
from lab.laboratory import RECIPES
from topicscope.errors import InputError
from topicscope.lab import load_recipe
from topicscope.records import Result

TINY_RUN = ("training.steps=3", "training.batch_size=4", "history.documents=5")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    """One of each kind that is made in this process."""
    base = tmp_path_factory.mktemp("results")
    (base / "words.csv").write_text(WORDS_CSV)
    model, tokenizer = tiny.build("bert")
    probed = topicscope.probe(model, tokenizer, texts(12), topics=base / "words.csv", controls=0)
    model.save_pretrained(base / "models" / "checkpoint-1")
    tokenizer.save_pretrained(base / "models" / "checkpoint-1")
    series = topicscope.probe_checkpoints(
        str(base / "models"), texts(12), topics=base / "words.csv", controls=0, out=base / "series"
    )
    return {
        "probe": probed,
        "comparison": topicscope.compare(probed, probed),
        "circuits": topicscope.circuits(model, tokenizer, topics=base / "words.csv"),
        "run": topicscope.train(load_recipe(RECIPES / "two-stages.toml", TINY_RUN)),
        "sweep": topicscope.sweep(write(base)),
        "series": series,
    }


def require_same(first: Result, second: Result) -> None:
    assert type(first) is type(second)
    assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
    pd.testing.assert_frame_equal(first.table(), second.table(), check_dtype=False)


KINDS = ("probe", "comparison", "circuits", "run", "sweep", "series")


@pytest.mark.parametrize("kind", KINDS)
def test_load_gives_back_what_save_wrote(kind: str, results: Mapping[str, Result], tmp_path: Path) -> None:
    found = results[kind]
    folder = found.save(tmp_path / "saved")
    loaded = topicscope.load(folder)
    require_same(found, loaded)
    assert loaded.folder == folder
    assert json.loads((folder / found.layout.records[0]).read_text())["kind"] == kind
    loaded.save(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_save_draws_nothing(
    kind: str, results: Mapping[str, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a figure was drawn")

    monkeypatch.setattr("matplotlib.figure.Figure.__init__", refuse)
    monkeypatch.setattr("jinja2.Template.render", refuse)
    folder = results[kind].save(tmp_path / "saved")
    assert not [path for path in folder.iterdir() if path.suffix in (".png", ".html")]
    with pytest.raises(AssertionError, match="drawn"):  # what is refused is what draws
        results[kind].plot()


@pytest.mark.parametrize("kind", ["probe", "run", "sweep", "series"])
def test_report_adds_the_page_and_lists_it(kind: str, results: Mapping[str, Result], tmp_path: Path) -> None:
    folder = results[kind].save(tmp_path / "saved")
    result = topicscope.load(folder)
    page = result.report()
    assert page == folder / "report.html"
    assert result.report(tmp_path / "elsewhere.html").read_bytes() == page.read_bytes()
    assert {page.name, *result.pictures()} <= set(json.loads((folder / "files.json").read_text())["files"])
    result.save(folder, overwrite=True)  # the page is not taken for somebody else's file
    assert not page.exists()


def test_report_needs_a_folder_or_a_path(results: Mapping[str, Result]) -> None:
    with pytest.raises(InputError, match="not stored in a folder"):
        results["run"].report()
    with pytest.raises(InputError, match="no page for a result of topicscope circuits"):
        results["circuits"].report("page.html")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record | {"kind": "other"}, "not a result of"),
        (lambda record: record | {"schema_version": 99}, "not a result of"),
        (lambda record: [record], "not a result of"),
        (lambda record: {name: record[name] for name in ("kind", "schema_version")}, "damaged"),
    ],
)
def test_load_refuses_another_or_damaged_record(
    kind: str, change: Callable[[dict], object], words: str, results: Mapping[str, Result], tmp_path: Path
) -> None:
    folder = results[kind].save(tmp_path / "saved")
    record = folder / results[kind].layout.records[0]
    record.write_text(json.dumps(change(json.loads(record.read_text()))))
    with pytest.raises(InputError, match=words):
        topicscope.load(folder)


def test_load_says_what_it_expects_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no saved result") as caught:
        topicscope.load(tmp_path)
    assert "topicscope probe" in str(caught.value.expected)
