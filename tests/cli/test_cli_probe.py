"""`topicscope probe` from outside: what it reads, writes, prints, and does again alike."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli.probe_files import FORMATS, THEMES, WORDS_CSV, corpus_file, jsonl, numbers, probe, result, save_model, texts
from topicscope.cli import probe as cli_probe
from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.probing import ProbeConfig, ProbeOverrides
from topicscope.probing.execution.forward_pass import UNITS_PER_CHUNK
from topicscope.probing.results import ProbeResult

FILES = {"result.json", "heads.csv", "circuits.csv", "documents.parquet", "moments.npz", "heads.png"}
FILES |= {"embedding_map.npz", "report.html", "files.json"}
LDA = ("--topics", 3, "--sweeps", 20, "--min-count", 1, "--threshold", 0.1, 0.2)
MAIN = "from topicscope.cli import main; main()"
NO_NETWORK = """
import socket
def forbidden(*_, **__):
    raise AssertionError("the network was touched")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = forbidden
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_text(WORDS_CSV)
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "corpus.jsonl", texts())


def test_several_thresholds_after_one_option_and_one_json_document(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    options = ("--corpus", corpus, "--id-column", "id", *LDA, "--topic-seeds", 2, "--out", out)
    assert probe(model, *options, "--json", controls=1) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == result(out)
    assert printed.err == ""
    document = result(out)
    measured = [row for row in document["table"] if row["source"] == "measured"]
    assert [row["threshold"] for row in measured] == [0.1, 0.2]
    assert document["manifest"]["options"]["threshold"] == [0.1, 0.2]
    assert document["manifest"]["options"]["topic_seeds"] == 2
    assert document["manifest"]["sources"]["corpus"]["name"] == "corpus.jsonl"
    assert {path.name for path in out.iterdir()} == FILES | {"topics.npz", "topics-1.npz"}
    ids = pd.read_parquet(out / "documents.parquet")["document_id"]
    assert set(ids) == {f"doc{i}" for i in range(12)}


def test_the_terminal_shows_the_answer_the_tables_and_the_papers_rows(
    model: Path, corpus: Path, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    out = tmp_path / "run"
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", out, controls=2) == 0
    shown = capsys.readouterr().out
    document = result(out)
    row = document["table"][0]
    assert shown.startswith(document["headline"]["text"])
    embeddings = document["embeddings"][0]
    errors = {
        "attention_ratio": row["attention_ratio_se"],
        "embedding_cosine_raw_difference": embeddings["difference_se"],
    }
    for name, error in errors.items():
        decimals = 1 - math.floor(math.log10(error))  # two digits of the error
        assert f"{row[name]:.{decimals}f} ± {error:.{decimals}f}" in shown
    assert "Li, Li and Risteski, 2023" in shown
    assert f"report: {out / 'report.html'}\n" in shown
    assert all(f"warning: {warning}"[:60] in shown for warning in document["warnings"])


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_causal_and_several_parts_are_shown(
    family: str, corpus: Path, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    folder = save_model(tmp_path / family, family)
    assert probe(folder, "--corpus", corpus, "--topics", words, "--out", tmp_path / "run") == 0
    shown = capsys.readouterr().out
    assert "position" in shown
    parts = {row["part"] for row in result(tmp_path / "run")["table"] if row["source"] == "measured"}
    assert len(parts) == (3 if family == "bart" else 1)
    assert all(part in shown for part in parts)


def test_every_format_gives_the_same_numbers(model: Path, words: Path, tmp_path: Path) -> None:
    documents, found = texts(), {}
    for kind in FORMATS:
        folder = tmp_path / kind
        folder.mkdir()
        path = corpus_file(folder, kind, documents)
        assert probe(model, "--corpus", path, "--topics", words, "--out", folder / "run") == 0, kind
        found[kind] = numbers(result(folder / "run"))
    assert all(found[kind] == found["txt"] for kind in FORMATS)
    other = corpus_file(tmp_path, "txt", texts(seed=1))
    assert probe(model, "--corpus", other, "--topics", words, "--out", tmp_path / "run") == 0
    assert numbers(result(tmp_path / "run"))["table"] != found["txt"]["table"]


def test_topics_saved_by_one_run_serve_the_next(model: Path, corpus: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert probe(model, "--corpus", corpus, *LDA, "--out", first) == 0
    options = ("--topics", first / "topics.npz", "--threshold", 0.1, 0.2)
    assert probe(model, "--corpus", corpus, *options, "--out", second) == 0
    assert numbers(result(first)) == numbers(result(second))


def test_a_matrix_of_weights_equals_the_word_list_it_was_made_of(
    model: Path, corpus: Path, words: Path, tmp_path: Path
) -> None:
    """Topics that never share a word: all words kept (threshold 1) is the labelled list, whatever the row sums."""
    header = [word for theme in THEMES.values() for word in theme]
    rows = [[str(scale * (word in THEMES[theme])) for word in header] for scale, theme in enumerate(THEMES, start=1)]
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", tmp_path / "list") == 0
    assert probe(model, "--corpus", corpus, "--topics", matrix, "--threshold", 1, "--out", tmp_path / "matrix") == 0
    by_list, by_matrix = result(tmp_path / "list"), result(tmp_path / "matrix")
    assert by_matrix["table"][0]["threshold"] == 1
    assert by_matrix["table"][0] | {"threshold": None} == by_list["table"][0]
    assert "divided by its sum" in json.dumps(by_matrix["manifest"]["sources"]["topics"])


def test_one_seed_gives_identical_numbers_and_another_seed_others(model: Path, corpus: Path, tmp_path: Path) -> None:
    def run(name: str, seed: int) -> dict[str, Any]:
        options = ("--corpus", corpus, *LDA, "--max-units", 30, "--seed", seed, "--out", tmp_path / name)
        assert probe(model, *options, controls=1) == 0
        return numbers(result(tmp_path / name))

    first, second, other = run("a", 1), run("b", 1), run("c", 2)
    assert first == second
    assert first["table"] != other["table"]
    assert first["controls"] != other["controls"]
    for name in ("moments.npz", "topics.npz"):
        with np.load(tmp_path / "a" / name) as a, np.load(tmp_path / "b" / name) as b:
            assert all(np.array_equal(a[key], b[key]) for key in a.files if key != "provenance")


def test_every_option_reaches_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that is parsed and then forgotten would be believed."""
    given: dict[str, Any] = {
        "threshold": (0.1, 0.3),
        "unit": "passage",
        "max_units": 7,
        "controls": 2,
        "permutations": 11,
        "exclude_sinks": True,
        "topic_seeds": 3,
        "overlap": "keep",
        "pieces": "merge",
        "layers": (1,),
        "heads": (0, 2),
        "contextual": True,
        "profile": 9,
        "language": "fr",
        "min_count": 2,
        "sweeps": 13,
        "seed": 5,
        "batch_tokens": 99,
        "batch_size": 4,
        "shard_units": 50,
    }
    loading = {"device": "cuda", "dtype": "float16", "revision": "main", "trust_remote_code": "it"}
    given |= loading
    defaults = ProbeConfig()
    assert given.keys() == ProbeOverrides.__annotations__.keys() - {"padding"}, "padding has no option"
    assert all(getattr(defaults, name) != value for name, value in given.items())
    words: list[object] = []
    for name, value in given.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else value if isinstance(value, tuple) else [value]
    heard: dict[str, Any] = {}

    def stop(*_: object, **options: Any) -> None:
        heard.update(options)
        raise InputError("stop here")

    monkeypatch.setattr(cli_probe, "run_probe", stop)
    assert run(["probe", "minilm", *map(str, words)]) == 2
    assert heard["config"] == ProbeConfig(**given)


def test_without_out_the_result_goes_under_topicscope_runs(
    model: Path, corpus: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert probe(model, "--corpus", corpus, "--topics", words) == 0
    (folder,) = (elsewhere / "topicscope-runs").iterdir()
    assert folder.name.startswith("tiny-bert-20")
    assert {path.name for path in folder.iterdir()} >= FILES


def test_a_folder_that_is_not_empty_is_left_alone_unless_told(
    model: Path, corpus: Path, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "precious").write_text("mine")
    options = ("--corpus", corpus, "--topics", words, "--out", out)
    assert probe(model, *options) == 2
    message = capsys.readouterr().err
    assert f"{out}\n" in message
    assert "--overwrite" in message
    assert probe(model, *options, "--overwrite") == 2
    assert "precious" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["precious"]
    (out / "precious").unlink()
    assert probe(model, *options) == 0
    before = (out / "result.json").read_text()
    assert probe(model, *options, "--overwrite", "--seed", 5) == 0
    assert {path.name for path in out.iterdir()} == FILES
    assert (out / "result.json").read_text() != before


def test_bad_lines_are_skipped_and_counted_in_the_result(
    model: Path, corpus: Path, words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = tmp_path / "clean"
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", clean) == 0
    corpus.write_text(corpus.read_text() + 'not json\n{"id": "x"}\n')
    out = tmp_path / "run"
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", out) == 2
    assert f"{corpus}, line 13\n" in capsys.readouterr().err
    assert not out.exists()
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", out, "--on-error", "skip") == 0
    assert sum(result(out)["coverage"]["text"]["skipped"].values()) == 2
    assert result(out)["table"] == result(clean)["table"]


def test_symptom_27_a_folder_never_touches_the_network(
    model: Path, corpus: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    for name in ("create_connection", "getaddrinfo", "socket"):
        monkeypatch.setattr(socket, name, forbidden)
    assert probe(model, "--corpus", corpus, "--topics", words, "--out", tmp_path / "run", controls=1) == 0


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


@pytest.mark.process
def test_symptom_27_a_hub_name_found_in_the_cache_gives_the_numbers_of_the_folder(
    model: Path, corpus: Path, words: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "cache" / "models--tiny--bert"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123abc")
    shutil.copytree(model, repository / "snapshots" / "0123abc")
    options = ["--corpus", str(corpus), "--topics", str(words)]
    assert probe(model, *options, "--out", tmp_path / "by-folder", controls=1) == 0
    options += ["--controls", "1"]
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK + MAIN, "probe", "tiny/bert", *options, "--out", str(tmp_path / "by-name")],
        env=environment(HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path / "cache")),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    by_name, by_folder = result(tmp_path / "by-name"), result(tmp_path / "by-folder")
    assert numbers(by_name) == numbers(by_folder)
    assert by_name["model"]["name"] == "tiny/bert"
    assert by_name["model"]["weights_hash"] == by_folder["model"]["weights_hash"]


@pytest.mark.process
def test_ctrl_c_keeps_what_was_read_and_progress_is_json_lines(model: Path, words: Path, tmp_path: Path) -> None:
    """A real SIGINT in the middle of the reading, which would take minutes."""
    corpus, out = jsonl(tmp_path / "long.jsonl", texts(4000)), tmp_path / "run"
    command = [sys.executable, "-c", MAIN, "probe", str(model), "--corpus", str(corpus), "--topics", str(words)]
    command += ["--batch-size", "4", "--out", str(out), "--progress", "json", "--json"]
    events = []
    with (
        open(tmp_path / "stdout", "w+") as stdout,
        subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment()) as job,
    ):
        assert job.stderr is not None
        for line in job.stderr:
            events.append(json.loads(line))
            if events[-1]["task"] == "reading" and (events[-1]["done"] or 0) > UNITS_PER_CHUNK:
                break
        job.send_signal(signal.SIGINT)
        rest = job.stderr.read()
        assert job.wait(timeout=60) == 130, rest
    assert out.is_dir(), rest
    assert "Traceback" not in rest
    last = events[-1]
    assert 0 < last["done"] < last["total"]
    # The estimate of the time left is the rate so far, carried on.
    assert last["left_s"] == pytest.approx(last["elapsed_s"] / last["done"] * (last["total"] - last["done"]), rel=0.02)
    assert all({"event", "task", "done", "total", "unit", "elapsed_s", "left_s"} <= set(event) for event in events)
    kept = ProbeResult.load(out)
    assert kept.interrupted
    assert 0 < kept.headline["documents"] < 4000
    assert json.loads((tmp_path / "stdout").read_text())["interrupted"] is True
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
