"""The verdict is two-sided and needs both the shuffles and the controls."""

import math

import pytest

from topicscope.probing.statistics import TESTED, attention_verdict
from topicscope.probing.statistics.verdict import HIGHER, LOWER, NONE, NOT_TESTED

ABOVE, BELOW, AMONG = (1.1, 1.3), (0.7, 0.9), (0.98, 1.2)


def row(
    p: float, z: float, interval: tuple[float, float], control: tuple[float, float, float] = (1.0, 0.99, 1.01)
) -> dict:
    """A row of the table."""
    names = (f"{TESTED}_low", f"{TESTED}_high", f"control_{TESTED}", f"control_{TESTED}_low", f"control_{TESTED}_high")
    return {"permutation_p": p, "permutation_z": z, **dict(zip(names, (*interval, *control), strict=True))}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (row(0.01, 5, ABOVE), HIGHER),
        (row(0.01, -5, BELOW), LOWER),
        (row(0.06, 2, ABOVE), NONE),  # the errors clustered by document alone are fooled
        (row(0.01, 5, AMONG), NONE),
        (row(0.01, -5, ABOVE), NONE),  # a contradiction is no structure
        (row(0.01, 5, ABOVE, (1.2, 1.1, 1.3)), NONE),  # the architecture does as well
        (row(0.01, -5, (1.02, 1.1), (1.2, 1.15, 1.25)), LOWER),
        (row(0.01, 5, ABOVE, (1.0, math.nan, math.nan)), HIGHER),  # one control
        (row(0.01, 5, ABOVE, (math.nan, math.nan, math.nan)), NOT_TESTED),
        (row(math.nan, math.nan, ABOVE), NOT_TESTED),
        (row(0.01, 5, (math.nan, math.nan)), NOT_TESTED),
    ],
)
def test_verdicts(found: dict, verdict: str) -> None:
    assert attention_verdict(found)[0] == verdict


def test_reasons_are_given() -> None:
    assert "p = 0.01" in attention_verdict(row(0.01, 5, ABOVE))[1]
    assert "shuffled" in attention_verdict({})[1]
