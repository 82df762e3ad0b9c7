"""What a statement is: its words, its assumptions, and a measure of how far it is from true in a setting.

Named assumptions on a setting, shared by the theorems and by the results that report which of them are violated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from topicscope.synthetic import Setting


@dataclass(frozen=True)
class Assumption:
    """One hypothesis of a theorem: a name as a person would write it, and the test."""

    name: str
    holds: Callable[[Setting], bool]


def violated(assumptions: tuple[Assumption, ...], setting: Setting) -> tuple[str, ...]:
    """The names of those that the setting does not meet, in order."""
    return tuple(assumption.name for assumption in assumptions if not assumption.holds(setting))


INFINITE_DOCUMENTS = Assumption("N = ∞", lambda s: s.document_length is None)
SPARSE = Assumption("τ < T", lambda s: s.topics_per_document < s.num_topics)
# τ → ∞ with τ = o(T), as far as one finite setting can say it. Theorem 3: every failure found has τ/T > .67.
FEW_OF_MANY = Assumption("2 ≤ τ ≤ T/2", lambda s: 2 <= s.topics_per_document <= s.num_topics / 2)
# Theorem 4's o(T) hides √v: β*/(λ4 T) → (τ√v/T) p_r/((1-p_c) a (a+r)), and the last factor stays below 4/3.
FEWER_OF_MANY = Assumption(
    "2 ≤ τ ≤ 3T/(4√v)",
    lambda s: 2 <= s.topics_per_document <= 0.75 * s.num_topics / math.sqrt(s.words_per_topic),
)
MANY_WORDS = Assumption("v > (1/a + 1)² + 1", lambda s: s.words_per_topic > (1 / s.a + 1) ** 2 + 1)
MANY_WORDS_DIAGONAL = Assumption("v > (1 + a)² + 1", lambda s: s.words_per_topic > (1 + s.a) ** 2 + 1)
LOW_MASK_RATE = Assumption("p_m < 1/2", lambda s: s.p_mask < 0.5)
EQUAL_RATES = Assumption("p_c = p_r in (0, 1/2)", lambda s: 0 < s.p_correct == s.p_random < 0.5)
SOME_CORRECT = Assumption("p_c > 0", lambda s: s.p_correct > 0)
FINITE_DOCUMENTS = Assumption("N < ∞", lambda s: s.document_length is not None)
SOME_WORD_SHOWN = Assumption("N ≥ 2 or p_c + p_r > 0", lambda s: s.document_length != 1 or s.p_mask_token < 1)
SEVERAL_WORDS = Assumption("v ≥ 2", lambda s: s.words_per_topic >= 2)

THEOREM_1 = (INFINITE_DOCUMENTS, SPARSE)
THEOREM_2 = (INFINITE_DOCUMENTS, SPARSE)
THEOREM_3 = (INFINITE_DOCUMENTS, FEW_OF_MANY, MANY_WORDS, LOW_MASK_RATE, EQUAL_RATES)
THEOREM_4 = (INFINITE_DOCUMENTS, FEWER_OF_MANY, MANY_WORDS_DIAGONAL, LOW_MASK_RATE, EQUAL_RATES)


Kind = Literal["minimiser", "bound", "limit", "trajectory"]


@dataclass(frozen=True)
class TheoremReport:
    """What a theorem came to in one setting; it holds when deviation ≤ tolerance."""

    theorem: str
    violated_assumptions: tuple[str, ...]
    deviation: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the statement is true in this setting, whatever its assumptions say."""
        return self.deviation <= self.tolerance

    @property
    def status(self) -> str:
        """ "holds" or "fails", with the violated assumptions named."""
        verdict = "holds" if self.holds else "fails"
        names = "; ".join(self.violated_assumptions)
        return f"{verdict} (violated: {names})" if names else verdict


@dataclass(frozen=True)
class Theorem:
    """One statement.

    | field | meaning |
    | --- | --- |
    | id | short name, stable |
    | statement | what it says, in plain text |
    | reference | where it comes from; "ours" where the paper does not have it |
    | assumptions | named predicates on a Setting |
    | kind | minimiser (gradient vanishes, and nothing else ties), bound, limit or trajectory |
    | deviation | how far from true in a setting: largest absolute gradient, relative overshoot of a bound, relative
    error |
    | tolerance | the deviation that rounding or the finite stand-in for a limit explains |
    """

    id: str
    statement: str
    reference: str
    assumptions: tuple[Assumption, ...]
    kind: Kind
    deviation: Callable[[Setting], float]
    tolerance: float

    def check(self, setting: Setting) -> TheoremReport:
        """Measure the statement in one setting, inside its assumptions or outside."""
        broken = violated(self.assumptions, setting)
        return TheoremReport(self.id, broken, float(self.deviation(setting)), self.tolerance)
