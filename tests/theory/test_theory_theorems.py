"""Every declared theorem, measured where its assumptions hold and where each is broken."""

from dataclasses import replace

import pytest

from topicscope import theory
from topicscope.synthetic import Setting
from topicscope.theory import THEOREMS, Theorem

P = (0.15, 0.1, 0.1)
BASE = Setting(12, 9, 2, *P)
SETTINGS = [
    BASE,
    Setting(40, 12, 5, 0.45, 0.3, 0.3),
    Setting(30, 8, 2, 0.05, 0.02, 0.02),
    Setting(6, 3, 2, 0.5, 0.05, 0.9),
    Setting(5, 1, 2, *P),
    Setting(5, 3, 1, 0.3, 0.2, 0.0),
    Setting(4, 4, 4, *P),
    Setting(1, 3, 1, *P),
    Setting(5, 3, 2, 0.3, 0.0, 0.2),
    Setting(2, 5, 1, 0.5, 0.1, 0.1),
    replace(BASE, document_length=1),
    replace(BASE, document_length=30),
    replace(BASE, document_length=200, weighting="token"),
]
# For each theorem and assumption, a setting that breaks only that one and in which the statement is false.
BROKEN = {
    ("embedding", "N = ∞"): replace(BASE, document_length=20),
    ("embedding", "τ < T"): replace(BASE, topics_per_document=12),
    ("low-rank-embedding", "N = ∞"): replace(BASE, document_length=20),
    ("value-matrix", "N = ∞"): replace(BASE, document_length=20),
    ("value-matrix", "τ < T"): replace(BASE, topics_per_document=12),
    ("finite-value-matrix", "N < ∞"): BASE,
    ("finite-value-matrix", "N ≥ 2 or p_c + p_r > 0"): Setting(4, 3, 2, 0.3, 0.0, 0.0, 1),
    ("block-attention", "2 ≤ τ ≤ T/2"): Setting(44396, 23, 30557, 0.498, 0.434, 0.434),
    ("diagonal-attention", "2 ≤ τ ≤ 3T/(4√v)"): Setting(10345, 154, 2927, 0.4923, 0.2216, 0.2216),
    ("diagonal-attention", "v > (1 + a)² + 1"): Setting(10, 4, 2, *P),
    ("block-attention", "N = ∞"): Setting(854, 31, 90, 0.39, 0.067, 0.067, 24, "token"),
    ("block-attention", "p_m < 1/2"): Setting(241, 35, 55, 0.9, 0.47, 0.47),
    ("block-attention", "p_c = p_r in (0, 1/2)"): Setting(365, 28, 26, 0.38, 0.05, 0.6),
    ("diagonal-attention", "N = ∞"): Setting(854, 31, 90, 0.39, 0.067, 0.067, 24, "token"),
    ("diagonal-attention", "p_m < 1/2"): Setting(9, 9, 2, 0.98, 0.005, 0.005),
    ("diagonal-attention", "p_c = p_r in (0, 1/2)"): Setting(15, 5, 2, 0.14, 0.002, 0.12),
    ("block-attention-limit", "N = ∞"): replace(BASE, document_length=20),
    ("block-attention-limit", "p_c > 0"): replace(BASE, p_correct=0.0),
    ("diagonal-attention-limit", "N = ∞"): replace(BASE, document_length=20),
    ("diagonal-attention-limit", "p_c > 0"): replace(BASE, p_correct=0.0),
    ("diagonal-attention-limit", "v ≥ 2"): replace(BASE, words_per_topic=1),
    ("stage-one", "N = ∞"): replace(BASE, document_length=20),
    ("stage-two", "N = ∞"): replace(BASE, document_length=20),
}
NAMES = [theorem.id for theorem in THEOREMS]


@pytest.mark.parametrize("theorem", THEOREMS, ids=NAMES)
def test_holds_wherever_its_assumptions_do(theorem: Theorem) -> None:
    reports = [theorem.check(setting) for setting in SETTINGS]
    inside = [report for report in reports if not report.violated_assumptions]
    assert len(inside) >= 2
    assert [report for report in inside if not report.holds] == []
    assert {report.status for report in inside} == {"holds"}


@pytest.mark.parametrize(("name", "assumption"), BROKEN, ids=[" / ".join(key) for key in BROKEN])
def test_fails_when_an_assumption_is_broken(name: str, assumption: str) -> None:
    theorem = THEOREMS[NAMES.index(name)]
    report = theorem.check(BROKEN[name, assumption])
    assert report.violated_assumptions == (assumption,)
    assert not report.holds
    assert report.status == f"fails (violated: {assumption})"


@pytest.mark.parametrize("theorem", THEOREMS, ids=NAMES)
def test_declares_itself(theorem: Theorem) -> None:
    assert theorem.statement.endswith(".")
    assert theorem.reference
    assert theorem.kind in ("minimiser", "bound", "limit", "trajectory")
    listed = {assumption for name, assumption in BROKEN if name == theorem.id}
    own = {assumption.name for assumption in theorem.assumptions}
    assert listed <= own
    # The one assumption of the paper's proofs without which nothing false was found.
    assert own - listed == ({"v > (1/a + 1)² + 1"} if theorem.id == "block-attention" else set())


def test_names_are_distinct() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_public_names_are_as_recorded_and_documented() -> None:
    assert all(getattr(theory, name).__doc__ for name in theory.__all__ if name not in ("THEOREMS", "Value"))
    assert len(theory.__all__) == len(set(theory.__all__))
