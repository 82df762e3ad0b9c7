"""Claims about theorems are confirmed as they are, and not when sabotaged."""

from dataclasses import replace

import numpy as np
import pytest

from claims.sabotage import Shuffled, Untrained, answers
from topicscope.claims import theory_holds, value_block
from topicscope.claims.claim import Context
from topicscope.theory import THEOREMS, moments


def test_theorems_hold_and_a_wrong_one_does_not(monkeypatch) -> None:
    monkeypatch.setattr(theory_holds, "QUICK", theory_holds.LEAST)
    claim = theory_holds.CLAIM
    result = claim.run(Context(quick=True))
    assert result.verdict == "confirmed"
    outside = [row["measured"] for row in result.rows if "outside" in row["quantity"]]
    assert len(outside) == 4
    assert all(share < 1 for share in outside)


def test_a_theorem_without_its_assumptions_is_caught(monkeypatch) -> None:
    theorem = next(t for t in THEOREMS if t.id == "value-matrix")
    loose = replace(theorem, assumptions=theorem.assumptions[1:])  # N = ∞ dropped
    inside, _ = theory_holds.share_holding(loose, 20, np.random.default_rng(0))
    assert not all(inside)
    monkeypatch.setattr(theory_holds, "QUICK", theory_holds.LEAST)
    monkeypatch.setattr(theory_holds, "PAPER", ("value-matrix",))
    monkeypatch.setattr(theory_holds, "THEOREMS", (loose,))
    assert theory_holds.CLAIM.run(Context(quick=True)).verdict == "not_confirmed"


def test_few_settings_are_not_enough(monkeypatch) -> None:
    monkeypatch.setattr(theory_holds, "QUICK", theory_holds.LEAST - 1)
    monkeypatch.setattr(theory_holds, "PAPER", ("value-matrix",))
    assert theory_holds.CLAIM.run(Context(quick=True)).verdict == "not_confirmed"


@pytest.mark.parametrize(
    ("context", "met"), [(Context, [True] * 5), (Untrained, [False] * 5), (Shuffled, [True, False, False, True, False])]
)
def test_value_matrix_in_the_population(context, met) -> None:
    rows = value_block.population_rows(context(seeds=2))
    judge = {criterion.id: criterion.met for criterion in value_block.CLAIM.criteria}
    assert [judge[row["criterion"]](row) for row in rows] == met


def test_value_block_without_training_is_not_confirmed() -> None:
    result = value_block.CLAIM.run(Untrained(seeds=2, quick=True))
    assert result.verdict == "not_confirmed"
    assert answers(value_block.CLAIM, result.rows) == {criterion.id: False for criterion in value_block.CLAIM.criteria}


def test_finite_documents_have_a_spike_that_l2_takes_away() -> None:
    """The closed form against matrices solved anew, and training against the closed form."""
    found = {row["quantity"].partition(", ")[2]: row["measured"] for row in value_block.spike_rows()}
    height = {name.rpartition("height, ")[2]: value for name, value in found.items()}
    for length, words in ((100, "N = 100"), (10_000, "N = 10,000")):
        for ridge, text in ((0.0, "no L2"), (1e-4, "L2 0.0001"), (1e-3, "L2 0.001")):
            setting = replace(value_block.SETTING, document_length=length)
            seen = moments(setting)
            W = seen.cross.T @ np.linalg.pinv(seen.input_second + ridge * np.eye(101), rcond=1e-13)
            spike = (W[1, 1] - W[1, 2]) / (W[1, 2] - W[1, 99])
            assert height[f"{words}, {text}"] == pytest.approx(spike, rel=1e-6)
    assert height["N = 100, no L2"] > 1
    assert height["N = 10,000, no L2"] > 1
    assert height["N = 10,000, L2 0.0001"] < 0.01 < height["N = 100, L2 0.001"] < 0.2
    assert height["N = ∞, no L2"] == 0


@pytest.mark.long
def test_training_goes_to_the_spike() -> None:
    rows = value_block.finite_rows(Context(seeds=3, quick=True))
    assert answers(value_block.CLAIM, rows) == {"finite": True}
    assert len(rows) == 9
