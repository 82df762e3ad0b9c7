"""Claims about theorems are confirmed as they are, and not when sabotaged."""

from dataclasses import replace

import numpy as np
import pytest

from claims.sabotage import Shuffled, Untrained
from topicscope.claims import theory_holds, value_block
from topicscope.claims.context import Context
from topicscope.theory.theorems import THEOREMS


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
    assert value_block.CLAIM.run(Untrained(seeds=2)).verdict == "not_confirmed"
