"""What a statement is: its words, its assumptions, and a measure of how far it is from true in a setting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from topicscope.synthetic import Setting
from topicscope.theory.assumptions import Assumption, violated

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
