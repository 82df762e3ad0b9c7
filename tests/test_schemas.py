"""Every JSON document that we write meets its schema in `schemas/`; the documents are made here, small and fresh."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from golden import adapter
from golden.material import CORPUS, TOPICS, WORD_LIST, save_model, write_material
from golden.recording import command_line, succeed

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
RECIPE = """
name = "tiny"
[data]
num_topics = 2
words_per_topic = 2
topics_per_document = 1
length = 8
[model]
attention = "uniform"
[training]
loss = "squared"
steps = 3
batch_size = 2
[history]
documents = 3
[references]
W_V = "finite-n"
"""
SWEEP = 'recipe = "tiny.toml"\nseeds = 2\n[grid]\n"training.learning_rate" = [0.01, 0.1]\n'
PROBE = ("--corpus", CORPUS, "--topics", TOPICS, "--threshold", 0.35, "--permutations", 20, "--profile", 4)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_material(folder)
    save_model(folder / "bert")
    for step in (1, 2):
        save_model(folder / "checkpoints" / f"checkpoint-{step}", seed=step)
    (folder / "tiny.toml").write_text(RECIPE)
    (folder / "sweep.toml").write_text(SWEEP)
    return folder


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def check(name: str, *documents: Any) -> None:
    """Every document meets the schema, which is one itself."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert documents
    for document in documents:
        errors = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)]
        assert not errors, f"{name}: " + "; ".join(errors[:5])


def printed(*arguments: object) -> Any:
    return json.loads(succeed(*arguments, "--json"))


def written(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def lines(path: str | Path) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_probe_compare_and_report() -> None:
    with adapter.undrawn():
        for name, options in (("a", ("--controls", 1)), ("b", ("--controls", 0, "--exclude-sinks"))):
            check("probe-result", printed("probe", "bert", *PROBE, *options, "--progress", "none", "--out", name))
            check("probe-result", written(Path(name) / "result.json"))
            check("result-files", written(Path(name) / "files.json"))
        check("comparison", printed("compare", "a", "b"))
        check("report", printed("report", "a"))


def test_circuits() -> None:
    check("circuits", printed("circuits", "bert", "--topics", TOPICS, "--threshold", 0.2, 0.35))


def test_a_series_of_checkpoints() -> None:
    with adapter.undrawn():
        options = (*PROBE, "--controls", 0, "--progress", "none", "--out", "series")
        check("series", printed("probe", "--checkpoints", "checkpoints", *options))
        check("series", written("series/series.json"))
        check("result-files", written("series/files.json"))


def test_training_runs() -> None:
    check("run-summary", printed("train", "tiny.toml", "--seeds", 2, "--out", "run", "--progress", "none"))
    for name in ("summary", "manifest", "recipe"):
        check(f"run-{name}", written(f"run/{name}.json"))
    check("run-history", *lines("run/history.jsonl"))
    check("result-files", written("run/files.json"))


def test_sweeps() -> None:
    check("sweep-plan", printed("sweep", "sweep.toml", "--dry-run"))
    check("sweep", printed("sweep", "sweep.toml", "--out", "sweep", "--progress", "none"))
    check("sweep", written("sweep/sweep.json"))
    check("result-files", written("sweep/files.json"))
    check("sweep-row", *map(written, sorted(Path("sweep/rows").glob("*.json"))))
    check("run-summary", *map(written, sorted(Path("sweep/runs").glob("*/summary.json"))))


def test_topics() -> None:
    fit = ("--topics", 3, "--sweeps", 5, "--min-count", 1, "-o", "fitted.npz", "--progress", "none")
    check("topics", printed("topics", "fit", CORPUS, *fit), printed("topics", "show", "fitted.npz"))
    check("topics", printed("topics", "show", WORD_LIST), printed("topics", "show", TOPICS))


@pytest.mark.parametrize("name", ["value-matrix", "embedding", "attention", "landscape", "dynamics", "bayes"])
def test_theory(name: str) -> None:
    check("theory", printed("theory", name, "--topics", 3, "--words-per-topic", 2, "--topics-per-document", 2))


def test_claims() -> None:
    check("claims", printed("reproduce", "theory-holds", "--quick", "--out", "reproduction", "--progress", "none"))


def test_the_history_of_a_monitor() -> None:
    from golden.suite_watch import monitored

    monitored(Path("monitor"), steps=2)
    check("monitor-history", *lines("monitor/topic_structure.jsonl"))


def test_progress_as_lines_of_json() -> None:
    code, _, err = command_line("train", "tiny.toml", "--out", "shown", "--progress", "json", "--json")
    assert code == 0
    check("progress", *map(json.loads, err.splitlines()))


@pytest.mark.parametrize("change", ["a field is gone", "another field", "another type", "another version"])
def test_another_document_is_refused(change: str) -> None:
    document = printed("sweep", "sweep.toml", "--dry-run")
    changes: dict[str, Callable[[], object]] = {
        "a field is gone": lambda: document.pop("repeated"),
        "another field": lambda: document.update(extra=1),
        "another type": lambda: document.update(repeated="none"),
        "another version": lambda: document["points"][0].update(id=3),
    }
    changes[change]()
    with pytest.raises(AssertionError, match="sweep-plan"):
        check("sweep-plan", document)


def test_every_schema_is_checked_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    in_a_loop = {"run-summary", "run-manifest", "run-recipe"}
    checked = {path.stem for path in SCHEMAS.glob("*.json") if f'check("{path.stem}"' in source}
    assert checked | in_a_loop == {path.stem for path in SCHEMAS.glob("*.json")}
