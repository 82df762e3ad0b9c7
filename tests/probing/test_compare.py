"""Differences between results: against a brute-force jackknife, with controls that must show nothing."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import THEMES, WORDS_CSV, jsonl, probe, save_model, texts
from topicscope.cli import run
from topicscope.errors import InputError
from topicscope.probing.results import ProbeResult
from topicscope.probing.results.compare import Comparison

Probe = Callable[..., ProbeResult]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ProbeResult]:
    """Three models on one text, and the first of them on another text."""
    words = tmp_path_factory.mktemp("topics") / "words.csv"
    words.write_text(WORDS_CSV)

    def measure(strength: float, seed: int, documents: list[str], family: str = "bert", **options: Any) -> ProbeResult:
        model, tokenizer = tiny.build(family, seed=seed)
        table = model.get_input_embeddings().weight.data
        for number, theme in enumerate(THEMES.values()):
            table[[tokenizer.convert_tokens_to_ids(word) for word in theme]] += strength * torch.eye(32)[number]
        return topicscope.probe(model, tokenizer, documents, **({"topics": words, "controls": 0} | options))

    documents = texts(40)
    return {
        "plain": measure(0, 0, documents),
        "close": measure(0.05, 0, documents),
        "planted": measure(3, 0, documents),
        "elsewhere": measure(0, 0, texts(25, seed=7)),
        "causal": measure(0, 0, documents, "gpt2"),
        "fitted": measure(0, 0, documents, topics=3, sweeps=20, min_count=1, threshold=(0.1, 0.2), topic_seeds=2),
    }


def row(comparison: Comparison, quantity: str = "attention_ratio") -> dict[str, Any]:
    (found,) = comparison.rows[comparison.rows["quantity"] == quantity].to_dict(orient="records")
    return {str(key): value for key, value in found.items()}


def ratio(frame: pd.DataFrame) -> float:
    total = frame[[c for c in frame if c.startswith(("sum_", "count_"))]].sum()
    same = (total["sum_same_word"] + total["sum_same_topic"]) / (total["count_same_word"] + total["count_same_topic"])
    return float(same / (total["sum_different_topic"] / total["count_different_topic"]))


def jackknife(first: ProbeResult, second: ProbeResult) -> float:
    """Standard error of the difference from leaving each document out of both."""
    a, b = first.documents, second.documents
    ids = sorted(set(a["document_id"]) | set(b["document_id"]))
    left = [ratio(b[b["document_id"] != i]) - ratio(a[a["document_id"] != i]) for i in ids]
    n = len(left)
    return math.sqrt((n - 1) / n * sum((x - np.mean(left)) ** 2 for x in left))


def test_a_result_does_not_differ_from_itself(results: dict[str, ProbeResult]) -> None:
    found = row(topicscope.compare(results["plain"], results["plain"]))
    assert (found["difference"], found["se"], found["paired"], found["documents"]) == (0, 0, True, 40)


@pytest.mark.parametrize("other", ["close", "planted"])
def test_paired_errors_are_those_of_a_brute_force_jackknife(other: str, results: dict[str, ProbeResult]) -> None:
    found = row(topicscope.compare(results["plain"], results[other]))
    assert found["ratio_a"] == pytest.approx(results["plain"].headline["attention_ratio"], rel=1e-9)
    assert found["ratio_b"] == pytest.approx(results[other].headline["attention_ratio"], rel=1e-9)
    assert found["difference"] == pytest.approx(found["ratio_b"] - found["ratio_a"], rel=1e-9)
    assert found["se"] == pytest.approx(jackknife(results["plain"], results[other]), rel=0.1)


def test_pairing_shows_what_two_intervals_cannot(results: dict[str, ProbeResult]) -> None:
    """The same text moves both ratios; unpaired errors of the same two results are larger."""
    a, b = results["plain"], results["close"]
    paired = row(topicscope.compare(a, b))
    apart = math.hypot(a.headline["attention_ratio_se"], b.headline["attention_ratio_se"])
    assert paired["se"] < 0.8 * apart


def test_other_texts_are_not_paired_and_the_notes_say_so(results: dict[str, ProbeResult]) -> None:
    comparison = topicscope.compare(results["plain"], results["elsewhere"])
    found = row(comparison)
    errors = [results[name].headline["attention_ratio_se"] for name in ("plain", "elsewhere")]
    assert not found["paired"]
    assert found["documents"] == 25
    assert found["se"] == pytest.approx(math.hypot(*errors), rel=1e-9)
    assert any("not paired" in note for note in comparison.notes)
    assert "not paired" in str(comparison)
    assert "not paired" in comparison._repr_html_()


def test_documents_that_only_one_result_read_count(results: dict[str, ProbeResult], tmp_path: Path) -> None:
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    model, tokenizer = tiny.build("bert", seed=1)
    part = topicscope.probe(model, tokenizer, texts(40), topics=words, controls=0, max_units=60, seed=3)
    found = topicscope.compare(results["plain"], part)
    assert len(part.documents) < 40
    assert row(found)["documents"] == 40
    assert row(found)["se"] == pytest.approx(jackknife(results["plain"], part), rel=0.1)
    assert any("--max-units" in note for note in found.notes)


def test_parts_of_other_names_and_position_corrected_ratios(results: dict[str, ProbeResult]) -> None:
    mixed = topicscope.compare(results["plain"], results["causal"])
    assert set(mixed.rows["part"]) == {"encoder / decoder"}
    assert set(mixed.rows["quantity"]) == {"attention_ratio", "attention_ratio_distinct"}
    found = row(topicscope.compare(results["causal"], results["causal"]), "attention_ratio_position_corrected")
    assert found["ratio_a"] == pytest.approx(results["causal"].headline["attention_ratio"], rel=1e-9)


def test_thresholds_and_topic_seeds(results: dict[str, ProbeResult]) -> None:
    comparison = topicscope.compare(results["fitted"], results["fitted"])
    assert list(comparison.rows["threshold"].unique()) == [0.1, 0.2]
    measured = results["fitted"].table().query("source == 'measured'")
    ratios = comparison.rows[comparison.rows["quantity"] == "attention_ratio"]["ratio_a"]
    np.testing.assert_allclose(ratios, measured["attention_ratio"], rtol=1e-9)
    with pytest.raises(InputError, match="no part and threshold in common"):
        topicscope.compare(results["fitted"], results["plain"])


def test_less_than_two_or_no_result(results: dict[str, ProbeResult], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        topicscope.compare(results["plain"])
    with pytest.raises(InputError, match="file not found"):
        topicscope.compare(tmp_path / "nowhere", results["plain"])


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    corpus = jsonl(tmp_path / "corpus.jsonl", texts())
    for family in ("bert", "roberta", "electra"):
        folder = save_model(tmp_path / "models" / family, family)
        assert probe(folder, "--corpus", corpus, "--topics", words, "--out", tmp_path / family) == 0
    capsys.readouterr()
    folders = [str(tmp_path / family) for family in ("bert", "roberta", "electra")]
    assert run(["compare", *folders, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "comparison"
    assert [(r["a"], r["b"]) for r in document["rows"][::2]] == [("bert", "roberta"), ("bert", "electra")]
    assert all(r["paired"] for r in document["rows"])
    assert run(["compare", *folders]) == 0
    shown = capsys.readouterr().out
    assert "paired over documents" in shown
    assert f"{document['rows'][0]['difference']:+.4f}" in shown
    assert run(["compare", folders[0]]) == 2
    assert run(["compare", folders[0], str(tmp_path / "nowhere")]) == 2
