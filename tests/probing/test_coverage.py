"""95 % intervals hold the truth 95 times in 100, also with few documents of very different lengths."""

import pytest

from probing import coverage


@pytest.mark.long
@pytest.mark.parametrize("spread", coverage.SPREADS.values(), ids=list(coverage.SPREADS))
@pytest.mark.parametrize("documents", coverage.SIZES)
def test_intervals_cover_the_truth(documents: int, spread: float) -> None:
    found = coverage.measure(documents, spread)
    low, high = (0.935, 0.965) if documents >= coverage.FEW else (0.93, 0.97)
    assert low <= found.clustered <= high
    assert found.independent < 0.85


def test_intervals_cover_the_truth_and_independent_pairs_do_not() -> None:
    found = coverage.measure(120, coverage.SPREADS["lengths as of articles"])
    assert 0.935 <= found.clustered <= 0.965
    assert found.independent < 0.85


def test_few_uneven_documents_need_the_effective_number() -> None:
    found = coverage.measure(15, coverage.SPREADS["a few very long ones"])
    assert found.effective < 10
    assert found.clustered > 0.93
    assert found.plain < 0.90
