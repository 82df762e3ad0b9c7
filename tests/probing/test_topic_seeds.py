"""The interval over topic models: textbook numbers, limits, and coverage of what it is an interval for."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from topicscope.probing.statistics import Estimate, over_topic_seeds


def test_one_model_has_its_own_interval() -> None:
    found = over_topic_seeds([Estimate(1.4, 0.1, 30)])
    assert (found.low, found.high) == Estimate(1.4, 0.1, 30).interval()
    assert math.isnan(found.sd)


def test_rubins_rules_by_hand() -> None:
    estimates = [Estimate(v, e, 50) for v, e in ((1.5, 0.04), (1.6, 0.05), (1.45, 0.06))]
    within = (0.04**2 + 0.05**2 + 0.06**2) / 3
    between = np.var([1.5, 1.6, 1.45], ddof=1)
    total = within + 4 / 3 * between
    share = 4 / 3 * between / total
    old, seen = 2 / share**2, 50 / 52 * 49 * (1 - share)
    half = student.ppf(0.975, 1 / (1 / old + 1 / seen)) * math.sqrt(total)
    found = over_topic_seeds(estimates)
    assert found.value == pytest.approx(4.55 / 3)
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))
    assert found.sd == pytest.approx(math.sqrt(between))


def test_models_that_agree_add_nothing_and_no_interval_stays_none() -> None:
    same = [Estimate(1.2, 0.1, 20)] * 3
    found = over_topic_seeds(same)
    assert (found.low, found.high) == pytest.approx(same[0].interval())
    assert all(math.isnan(x) for x in (over_topic_seeds([Estimate(1.2, math.nan, 1)] * 2).low, found.sd * math.nan))


@pytest.mark.parametrize("models", [3, 5])
def test_the_interval_covers_the_mean_over_all_topic_models(models: int) -> None:
    """Errors of the text (shared) and of the topic models; document errors alone cover far less."""
    rng = np.random.default_rng(3)
    covered = alone = 0
    for _ in range(2000):
        text = rng.normal(0, 0.04)
        values = 1.5 + text + rng.normal(0, 0.06, models)
        found = over_topic_seeds([Estimate(float(v), 0.04, 200) for v in values])
        covered += found.low < 1.5 < found.high
        one = Estimate(float(values[0]), 0.04, 200).interval()
        alone += one[0] < 1.5 < one[1]
    assert covered / 2000 > 0.95
    assert alone / 2000 < 0.8
