"""Every family through the whole probe: the twin, padding, random weights, and structure where it was put."""

import numpy as np
import pytest

from probing import conformance
from probing.trained import Training

INVERTED = ("causal", "sequence")


@pytest.mark.parametrize("family", conformance.FAMILIES)
def test_a_family_conforms(family: str) -> None:
    """Planted scores differ between key-value heads: each group of query heads shows its own (symptom 13)."""
    found = conformance.measure(family)
    assert found.twin < 1e-4
    assert found.padding < 1e-4
    assert found.random == pytest.approx([1] * len(found.parts), abs=0.05)
    for known, ratio in found.planted:
        assert known > 1.3, "something was planted"
        assert ratio == pytest.approx(known, rel=1e-4)
    assert found.planted_heads < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("training", conformance.TRAININGS, ids=lambda training: training.name)
def test_structure_is_found_where_it_was_learned(training: Training) -> None:
    """Models trained on topic-model text attend more within topics, or less where each token shows its own."""
    found = conformance.learned(training)
    assert found.difference > 0.3
    by_part = dict(zip(found.parts, zip(found.ratios, found.directions, strict=True), strict=True))
    if training.objective not in INVERTED:
        ratio, direction = by_part[found.parts[0]]
        assert ratio > 1.2
        assert direction == "higher"
        assert "inverted" not in found.text.replace("inverted in the", "")
        return
    for part in ("decoder", "cross") if training.objective == "sequence" else ("decoder",):
        ratio, direction = by_part[part]
        assert 0.1 < ratio < 0.85
        assert direction == "lower"
    assert "The structure is inverted" in found.text


def test_the_planted_structure_is_needed() -> None:
    """Without it the same comparison fails: the known ratios are not what a random model shows."""
    found = conformance.measure("bert")
    assert abs(found.planted[0][0] - found.random[0]) > 1
    assert not np.isclose(found.planted[0][0], 1, rtol=0.05)
