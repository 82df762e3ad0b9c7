"""The verdict is rarely wrong where there are no topics, and finds those that a model learned.

TOPICSCOPE_POWER_SEEDS says how many models are trained (12 CPU seconds each, kept in the temporary folder): 100 unless
given, as many as stand behind docs/how-sure.md.
"""

import os

import pytest

from probing import verdict_rates as rates

POWER_SEEDS = int(os.environ.get("TOPICSCOPE_POWER_SEEDS", "100"))


@pytest.mark.long
def test_random_weights_are_rarely_said_to_know_topics() -> None:
    assert rates.wrong([rates.without_topics(seed) for seed in range(100)]) <= 8


@pytest.mark.long
def test_trained_models_are_rarely_said_to_know_topics_that_are_none() -> None:
    assert rates.wrong([rates.wrong_topics(seed) for seed in range(100)]) <= 8


@pytest.mark.long
def test_learned_topics_are_found() -> None:
    found = rates.right([rates.with_topics(seed) for seed in range(POWER_SEEDS)])
    assert found >= 0.95 * POWER_SEEDS


def test_a_few_verdicts() -> None:
    assert rates.wrong([rates.without_topics(seed) for seed in range(2)]) == 0
