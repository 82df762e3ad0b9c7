"""`topicscope theory …` from outside: the numbers, the verdicts, the pictures and the refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope import theory
from topicscope.cli import run

BASE = ("--topics", "10", "--words-per-topic", "10", "--topics-per-document", "2")
COMMANDS = ["value-matrix", "embedding", "attention", "landscape", "dynamics", "bayes"]


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["theory", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_a_table_and_one_json_document(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", command, *BASE]) == 0
    table = capsys.readouterr().out
    document = as_json(capsys, command, *BASE)
    assert document["setting"]["num_topics"] == 10
    assert document["quantities"]
    for name, value in document["quantities"].items():
        assert name in table
        assert f"{value:.10g}" in table
    assert all(check["status"].startswith("holds") for check in document["checks"])


def test_values_are_the_librarys(capsys: pytest.CaptureFixture[str]) -> None:
    setting = theory.Setting(10, 10, 2, 0.15, 0.1, 0.1)
    attention = as_json(capsys, "attention", *BASE, "--value", "diagonal")["quantities"]
    assert attention["β, same word"] == theory.topicwise_attention_optimum(setting, "diagonal").beta
    low_rank = as_json(capsys, "embedding", *BASE, "--dimension", "4")["quantities"]
    assert low_rank["excess"] == theory.embedding_optimum(setting, 4).excess
    ridge = as_json(capsys, "value-matrix", *BASE, "--ridge", "0.01")["quantities"]
    assert ridge["W, same topic"] == theory.value_matrix_blocks(setting, 0.01).same
    other = as_json(capsys, "bayes", *BASE, "--p-mask", "0.3", "--p-correct", "0.2", "--p-random", "0.05")
    assert other["quantities"]["Bayes"] == theory.bayes_loss(theory.Setting(10, 10, 2, 0.3, 0.2, 0.05))
    token = as_json(capsys, "value-matrix", *BASE, "--document-length", "7", "--weighting", "token")
    expected = theory.value_matrix_loss(theory.Setting(10, 10, 2, 0.15, 0.1, 0.1, 7, "token"))
    assert token["quantities"]["least loss"] == expected
    assert [check["theorem"] for check in token["checks"]] == ["value-matrix", "finite-value-matrix"]


def test_landscape_holds_the_grid_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "deep" / "landscape.png"
    options = ("--document-length", "40", "--points", "9", "--alpha-max", "8", "--beta-max", "4", "-o", str(picture))
    document = as_json(capsys, "landscape", *BASE, *options)
    grid = document["grid"]
    loss = np.array(grid["loss"])
    assert loss.shape == (9, 9)
    assert (grid["alphas"][-1], grid["betas"][-1]) == (8.0, 4.0)
    assert document["quantities"]["least on the grid"] == loss.min()
    assert document["output"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_dynamics_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "dynamics.png"
    assert run(["theory", "dynamics", *BASE, "-o", str(picture)]) == 0
    assert "drawn" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_tau_equal_T_returns_the_ridge_limit_and_names_the_assumption(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--topics", "3", "--words-per-topic", "2", "--topics-per-document", "3")
    document = as_json(capsys, "value-matrix", *options)
    assert document["quantities"]["same - different"] == 0.0
    assert document["checks"][0]["violated_assumptions"] == ["τ < T"]
    assert document["checks"][0]["status"] == "fails (violated: τ < T)"


def test_a_million_words_are_no_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--topics", "100000", "--words-per-topic", "10", "--topics-per-document", "2")
    document = as_json(capsys, "value-matrix", *options)
    assert document["quantities"]["same - different"] == pytest.approx(1 / 8.65)
    assert document["checks"][0]["status"].startswith("not measured")
    assert document["checks"][0]["deviation"] is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--topics", "3", "--words-per-topic", "2", "--topics-per-document", "5"), ("topics_per_document", "5", "3")),
        ((*BASE, "--p-mask", "1.0"), ("p_mask", "1.0", "0 < p_mask < 1")),
        ((*BASE, "--p-correct", "0.6", "--p-random", "0.6"), ("p_correct + p_random", "1.2", "< 1")),
        ((*BASE, "--document-length", "0"), ("document_length", "0", ">= 1")),
        ((*BASE, "--document-length", "10.6"), ("--document-length", "10.6", "whole number")),
        (("--topics", "2.5", *BASE[2:]), ("--topics", "2.5", "whole number")),
        ((*BASE, "--weighting", "both"), ("weighting", "both", "document")),
        ((*BASE, "--ridge", "-1"), ("ridge", "-1", ">= 0")),
    ],
)
def test_impossible_settings_exit_2(
    options: tuple[str, ...], told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["theory", "value-matrix", *options]) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in told)


def test_what_a_finite_length_forbids_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", "dynamics", *BASE, "--document-length", "10"]) == 2
    assert "document_length = 10" in capsys.readouterr().err
    assert run(["theory", "landscape", *BASE, "--points", "1"]) == 2
    assert run(["theory", "embedding", *BASE, "--dimension", "0"]) == 2
