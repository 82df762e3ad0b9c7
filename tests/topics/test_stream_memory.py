"""Memory of a streamed fit does not grow: ten times the documents, each with a word of its own, in as much memory."""

import pytest

from scripts import load_script


@pytest.mark.long
def test_ten_times_the_documents_and_words_need_no_more_memory() -> None:
    benchmark = load_script("benchmarks/topics.py")
    less, more = benchmark.memory([10_000, 100_000], words_held=20_000, batch=1024)
    assert less["tokens_of_forgotten_words"] == 0
    assert more["tokens_of_forgotten_words"] > 50_000
    assert more["tokens"] > 9 * less["tokens"]
    grown = more["peak_mb"] - less["peak_mb"]
    assert grown < 10, f"{grown:.1f} MB"


@pytest.mark.long
def test_without_the_bound_on_words_memory_does_grow() -> None:
    benchmark = load_script("benchmarks/topics.py")
    less, more = benchmark.memory([10_000, 100_000], words_held=1_000_000, batch=1024)
    assert more["tokens_of_forgotten_words"] == 0
    assert more["peak_mb"] - less["peak_mb"] > 12, "or the test above could not fail"
