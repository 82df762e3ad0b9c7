"""Named assumptions on a setting, shared by the theorems and by the results that report which of them are violated."""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
