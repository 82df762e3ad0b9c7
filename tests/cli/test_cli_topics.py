"""`topicscope topics fit|show` from outside: what is written, printed, refused and left alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.cli import run
from topicscope.topics import load_topics

ANIMALS, SEA = "cat dog cow horse sheep", "ship wave sailor harbour anchor"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    documents = [{"id": f"d{i}", "text": f"{ANIMALS}\n\n{SEA}", "body": ANIMALS} for i in range(20)]
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def fit(*arguments: object) -> int:
    return run(["topics", "fit", *map(str, arguments), "--sweeps", "30", "--min-count", "1", "--progress", "none"])


def test_fit_writes_the_topics_and_show_reads_them(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "deep" / "topics.npz"
    assert fit(corpus, "--topics", 2, "-o", output, "--seed", 3) == 0
    printed = capsys.readouterr().out
    assert "sailor" in printed
    assert "40 documents" in printed, "LDA documents are passages"
    topics = load_topics(output)
    assert {frozenset(words) for words in topics.top_words(5)} == {frozenset(ANIMALS.split()), frozenset(SEA.split())}
    assert topics.provenance["corpus"]["name"] == "corpus.jsonl"
    assert len(topics.provenance["corpus"]["sha256"]) == 64
    assert (topics.provenance["seed"], topics.provenance["sweeps"]) == (3, 30)

    assert run(["topics", "show", str(output), "--words", "3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["top_words"] == topics.top_words(3)
    assert shown["provenance"] == topics.provenance
    assert run(["topics", "show", str(output)]) == 0
    assert "harbour" in capsys.readouterr().out


def test_fit_twice_gives_the_same_numbers(corpus: Path, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        assert fit(corpus, "--topics", 3, "-o", tmp_path / name) == 0
    a, b = (load_topics(tmp_path / name) for name in ("a.npz", "b.npz"))
    np.testing.assert_array_equal(a.model.phi, b.model.phi)
    assert {**a.provenance, "created": ""} == {**b.provenance, "created": ""}


def test_json_is_one_document_and_columns_can_be_named(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(corpus, "--topics", 1, "-o", tmp_path / "t.npz", "--text-column", "body", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert sorted(document["top_words"][0]) == sorted(ANIMALS.split())
    assert document["file"] == str(tmp_path / "t.npz")


def test_bad_lines_are_skipped_and_counted(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus.write_text(corpus.read_text() + "not json\n")
    output = tmp_path / "t.npz"
    assert fit(corpus, "--topics", 2, "-o", output) == 2
    assert "corpus.jsonl" in capsys.readouterr().err
    assert not output.exists()
    assert fit(corpus, "--topics", 2, "-o", output, "--on-error", "skip") == 0
    assert sum(load_topics(output).provenance["corpus"]["skipped"].values()) == 1


def test_an_output_that_exists_is_left_alone(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "t.npz"
    output.write_text("precious")
    assert fit(corpus, "--topics", 2, "-o", output) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert output.read_text() == "precious"
    assert fit(corpus, "--topics", 2, "-o", output, "--overwrite") == 2, "it is no topics file"
    assert output.read_text() == "precious"
    output.unlink()
    assert fit(corpus, "--topics", 3, "-o", output) == 0
    assert fit(corpus, "--topics", 2, "-o", output, "--overwrite") == 0
    assert load_topics(output).model.num_topics == 2
    assert fit(corpus, "--topics", 2, "-o", tmp_path) == 2
    assert fit(corpus, "--topics", 2, "-o", corpus / "t.npz") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topics", "41"], "more topics than documents"),
        (["--topics", "0"], "number of topics"),
        (["--language", "xx"], "no stop words"),
        (["--text-column", "nothing"], "nothing"),
        (["--topics", "many"], "many"),
    ],
)
def test_bad_input_writes_nothing(
    corpus: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert fit(corpus, "-o", tmp_path / "t.npz", *arguments) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_show_tells_what_is_wrong_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.npz"
    assert run(["topics", "show", str(path)]) == 2
    np.savez(path, schema_version=99, phi=np.ones((1, 1)))
    assert run(["topics", "show", str(path)]) == 2
    assert "another schema" in capsys.readouterr().err
    arrays: dict[str, Any] = {"phi": np.array([[np.nan]]), "words": np.array(["x"]), "alpha": np.ones(1)}
    np.savez(path, schema_version=1, provenance="{}", **arrays)
    assert run(["topics", "show", str(path)]) == 2
    assert "NaN" in capsys.readouterr().err


def test_show_reads_matrices_and_word_lists_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.csv"
    path.write_text("topic,cat,ship\nanimals,3,1\nsea,1,3\n")
    assert run(["topics", "show", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["labels"] == ["animals", "sea"]
    assert document["top_words"] == [["cat", "ship"], ["ship", "cat"]]
    path.write_text("word,topic\ncat,animals\nship,sea\ndog,animals\ncow,animals\n")
    assert run(["topics", "show", str(path), "--json", "--words", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["top_words"] == [["cat", "dog"], ["ship"]]
    assert run(["topics", "show", str(path)]) == 0
    assert "cat dog cow" in capsys.readouterr().out
    assert run(["topics", "show", str(path), "--words", "0"]) == 2


def test_ctrl_c_leaves_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "t.npz"
    command = [sys.executable, "-c", "from topicscope.cli import main; main()", "topics", "fit", str(corpus)]
    command += ["--topics", "2", "--sweeps", "100000000", "--min-count", "1", "-o", str(output), "--progress", "json"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as job:
        assert job.stderr is not None
        for line in job.stderr:
            if json.loads(line)["event"] == "progress" and json.loads(line)["task"] == "fit topics":
                break
        job.send_signal(signal.SIGINT)
        rest = job.stderr.read()
        assert job.wait(timeout=20) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not output.parent.exists()


def test_symptom_21_coherence_is_shown_for_each_topic_with_its_nan_count_and_reason(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "t.npz"
    assert fit(corpus, "--topics", 2, "-o", output) == 0
    assert "coherence: mean NPMI" in capsys.readouterr().out
    assert run(["topics", "show", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["coherence"]
    assert (found["nan_topics"], found["passages"], found["top_words"]) == (0, 40, 10)
    path = tmp_path / "words.csv"
    path.write_text("word,topic\ncat,animals\ndog,animals\nunicorn,tales\ndragon,tales\n")
    assert run(["topics", "show", str(path)]) == 0
    assert "coherence: unknown; --corpus TEXT" in capsys.readouterr().out
    assert run(["topics", "show", str(path), "--corpus", str(corpus)]) == 0
    printed = capsys.readouterr().out
    assert "NaN: 1 topics" in printed
    assert "topic tales: 1 of 1 pairs left out: in no passage: unicorn, dragon" in printed
    assert run(["topics", "show", str(path), "--corpus", str(corpus), "--json"]) == 0
    animals, tales = json.loads(capsys.readouterr().out)["coherence"]["topics"]
    assert (animals["npmi"], animals["reason"]) == (1.0, None)  # whoever reads of cats reads of dogs
    assert tales["npmi"] is None


def test_gensim_writes_the_same_kind_of_file(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.npz"
    arguments = ["topics", "fit", str(corpus), "--topics", "2", "-o", str(output), "--engine", "gensim"]
    assert run([*arguments, "--min-count", "1", "--progress", "none"]) == 0
    topics = load_topics(output)
    assert topics.provenance["engine"].startswith("gensim")
    assert topics.provenance["sweeps"] == 10
    assert {frozenset(words) for words in topics.top_words(5)} == {frozenset(ANIMALS.split()), frozenset(SEA.split())}
    assert run([*arguments[:-1], "sklearn"]) == 2


def test_a_streamed_fit_is_on_record(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "t.npz"
    arguments = [str(corpus), "--topics", "2", "-o", str(output), "--min-count", "1", "--progress", "none"]
    assert run(["topics", "fit", *arguments, "--engine", "gensim", "--stream", "--max-words", "7"]) == 0
    assert "40 documents" in capsys.readouterr().out
    known = load_topics(output).provenance
    assert (known["sweeps"], known["vocabulary_size"], known["max_words"]) == (1, 7, 7)
    assert known["dropped"]["words_beyond_the_vocabulary"] == 3
    assert len(known["corpus"]["sha256"]) == 64
    assert known["coherence"]["passages"] == 40


@pytest.mark.parametrize("engine", [["--engine", "gensim", "--stream"], ["--engine", "gensim"], []])
def test_a_sample_is_on_record_and_said(
    engine: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, whole = tmp_path / "t.npz", tmp_path / "whole.npz"
    assert fit(corpus, "--topics", 2, "-o", output, "--sample", 12, "--sample-seed", 4, *engine) == 0
    assert "a sample of 12 of 20 documents, drawn by seed 4" in capsys.readouterr().out
    assert fit(corpus, "--topics", 2, "-o", whole, "--sample", 50, *engine) == 0
    assert "all 20 documents: 50 were asked for" in capsys.readouterr().out
    sampled, all_of_it = (load_topics(path).provenance for path in (output, whole))
    assert (sampled["documents"], all_of_it["documents"]) == (24, 40)
    assert sampled["corpus"]["skipped"] == {"not sampled": 8}
    assert sampled["corpus"]["sample"]["sha256_of_the_whole"] == all_of_it["corpus"]["sha256"]
    assert sampled["corpus"]["sha256"] != all_of_it["corpus"]["sha256"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stream"], "--stream is of the engine gensim"),
        (["--stream", "--engine", "tomotopy"], "--sample N"),
        (["--max-words", "9"], "--max-words means nothing without --stream"),
        (["--sample-seed", "9"], "--sample-seed means nothing without --sample"),
        (["--sample", "0"], "bad option --sample"),
        (["--engine", "gensim", "--stream", "--max-words", "0"], "impossible option: max_words"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], said: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(corpus, "--topics", 2, "-o", tmp_path / "t.npz", *options) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "t.npz").exists()
