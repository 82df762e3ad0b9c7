"""Every command with URLs in place of folders and files; nothing is left on this machine but what is still work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.probe_files import WORDS_CSV, jsonl, probe, save_model, texts
from storages import clear, fault, get, names, put
from sweeps.small_sweeps import write as write_sweep
from topicscope import load_run
from topicscope.claims import theory_holds
from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.monitoring.series import CheckpointSeries
from topicscope.monitoring.series_run import probe_checkpoints
from topicscope.records.output import working_folder
from topicscope.sweeps.result import SweepResult
from topicscope.training.loop import train
from topicscope.training.recipe import load_recipe

RECIPE = """
name = "short"
[data]
num_topics = 3
words_per_topic = 3
topics_per_document = 2
length = 20
[model]
attention = "uniform"
[training]
steps = 40
batch_size = 4
checkpoint_every = 10
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "cache"))
    clear()
    yield tmp_path / "cache" / "runs"
    clear()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny-bert")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def left(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()] if cache.exists() else []


def test_probe_compare_and_report(
    model: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = put("memory://b/shards/0.jsonl", jsonl(tmp_path / "corpus", texts(8)).read_bytes())
    put("memory://b/shards/1.jsonl", jsonl(tmp_path / "corpus", texts(8, seed=1)).read_bytes())
    words = put("memory://b/words.csv", WORDS_CSV.encode())
    secret = "memory://me:pw@b/shards?token=secret"
    arguments = ["--corpus", "memory://b/shards", "--topics", words, "--permutations", 0, "--profile", 0]
    monkeypatch.setattr("sys.argv", ["topicscope", "probe", "x", "--corpus", secret, "--out", "memory://b/one"])
    assert probe(model, *arguments, "--out", "memory://b/one") == 0
    assert "report: memory://b/one/report.html" in capsys.readouterr().out
    document = json.loads(get("memory://b/one/result.json"))
    assert document["manifest"]["command"] == "topicscope probe x --corpus memory://b/shards --out memory://b/one"
    assert document["manifest"]["sources"]["corpus"]["name"] == "shards"
    assert probe(model, *arguments, "--out", "memory://b/one") == 2
    assert "the output folder is not empty" in capsys.readouterr().err
    assert probe(model, *arguments[2:], "--corpus", corpus, "--out", "memory://b/two", "--json") == 0
    capsys.readouterr()
    assert run(["compare", "memory://b/one", "memory://b/two", "--json"]) == 0
    assert {row["b"] for row in json.loads(capsys.readouterr().out)["rows"]} == {f"{model.name} (two)"}

    page = get("memory://b/one/report.html")
    put("memory://b/one/report.html", b"")
    assert run(["report", "memory://b/one"]) == 0
    assert get("memory://b/one/report.html") == page
    assert capsys.readouterr().out == "page: memory://b/one/report.html\n"
    assert run(["report", "memory://b/one", "memory://b/two", "--out", "memory://b/both.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": "memory://b/both.html"}
    assert b"two" in get("memory://b/both.html")
    assert run(["report", "memory://b/shards"]) == 2
    assert "memory://b/shards" in capsys.readouterr().err
    assert left(cache) == []


def test_topics(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = put("memory://b/corpus.jsonl", jsonl(tmp_path / "corpus", texts(12)).read_bytes())
    fit = ["topics", "fit", corpus, "--topics", "2", "--sweeps", "5", "--min-count", "1"]
    assert run([*fit, "-o", "faulty://b/topics.npz"]) == 0
    assert "saved to faulty:" in capsys.readouterr().out
    assert run(["topics", "show", "faulty://b/topics.npz"]) == 0
    assert "2 topics" in capsys.readouterr().out
    assert run([*fit, "-o", "faulty://b/topics.npz"]) == 2
    assert "the output file exists" in capsys.readouterr().err
    with fault("full"):
        assert run([*fit, "-o", "faulty://b/topics.npz", "--overwrite"]) == 1
    kept = working_folder("faulty://b/topics.npz")
    assert f"it is kept as {kept}" in capsys.readouterr().err
    assert kept.is_file()
    assert run([*fit, "-o", "faulty://b/topics.npz", "--overwrite"]) == 0
    assert left(cache) == []
    with fault("read only"):
        assert run([*fit, "-o", "faulty://b/new.npz"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_train(recipe: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    url = "faulty://b/run"
    with fault("full", 2):
        assert run(["train", str(recipe), "--out", url]) == 1
    assert "could not be copied" in capsys.readouterr().err
    with pytest.raises(InputError, match="not copied to the end"):
        load_run(url)
    assert run(["train", str(recipe), "--out", url]) == 2
    assert run(["train", str(recipe), "--out", url, "--resume"]) == 0
    assert f"page: {url}/report.html".replace("//", "///") in capsys.readouterr().out
    assert load_run(url).summary["steps"] == 40
    assert "report.html" in names(url)
    assert left(cache) == []
    assert run(["report", url]) == 0
    # A finished run is read, also on another machine.
    assert run(["train", str(recipe), "--out", url, "--resume"]) == 0
    assert left(cache) == []
    other = ["train", str(recipe), "--out", url, "--resume", "--set", "training.steps=50"]
    assert run(other) == 2
    assert run([*other[:-3], "--overwrite", *other[-2:]]) == 0
    assert load_run(url).summary["steps"] == 50

    def stops(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("topicscope.training.run.Meter.measure", stops)
        assert run(["train", str(recipe), "--out", "memory://b/stopped"]) == 130
    assert "to go on: the same command with --out memory://b/stopped --resume" in capsys.readouterr().err
    assert names("memory://b/stopped") == []
    assert run(["train", str(recipe), "--out", "memory://b/stopped", "--resume"]) == 0
    assert "summary.json" in names("memory://b/stopped")


def test_train_from_python(recipe: Path, cache: Path) -> None:
    record = train(load_recipe(recipe, ()), out="memory://b/python")
    assert load_run("memory://b/python").summary == record.summary
    assert left(cache) == []


def test_reproduce(cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory_holds, "QUICK", theory_holds.LEAST)
    url = "memory://b/claims"
    command = ["reproduce", "theory-holds", "--quick", "--out", url]
    assert run(command) == 0
    assert f"page: {url}/reproduction.html" in capsys.readouterr().out
    assert {"claims.json", "manifest.json", "reproduction.html", "finished/theory-holds.json"} <= set(names(url))
    assert run(command) == 2
    assert "add --resume" in capsys.readouterr().err
    assert run([*command, "--resume"]) == 0
    assert run(["report", url]) == 0
    assert left(cache) == []


def test_checkpoints(model: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "words.csv").write_text(WORDS_CSV)
    corpus = jsonl(tmp_path / "corpus.jsonl", texts(8))
    options: dict[str, Any] = {"topics": tmp_path / "words.csv", "controls": 0, "permutations": 0, "profile": 0}
    series = probe_checkpoints([str(model)], corpus, out="memory://b/series", **options)
    name = series.checkpoints[0]["name"]
    assert len(series.result(name).documents) == len(CheckpointSeries.load("memory://b/series").result(name).documents)
    assert "series.json" in names("memory://b/series")
    del series
    assert left(cache) == []


def test_sweep(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "memory://b/sweep"
    spec = write_sweep(tmp_path)
    assert run(["sweep", str(spec), "--out", url]) == 0
    assert f"page: {url}/report.html" in capsys.readouterr().out
    assert {"sweep.json", "table.csv", "report.html"} <= set(names(url))
    assert not [name for name in names(url) if name.endswith("lock")]
    done = SweepResult.load(url)
    assert run(["sweep", str(spec), "--out", url, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["kept"] == len(done.points)
    assert run(["report", url]) == 0
    assert run(["sweep", str(spec), "--out", url]) == 2
    assert left(cache) == []
