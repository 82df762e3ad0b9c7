"""The grid of steps, and a budget on a clock that the tests turn."""

import math
from itertools import islice, pairwise

import pytest

from topicscope.errors import InputError
from topicscope.monitoring.schedule import SURE, Budget, grid, share_of


def test_grids():
    assert list(grid("log", 40)) == [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 40]
    assert list(islice(grid("log", None), 8)) == [0, 1, 2, 3, 4, 6, 8, 11]
    assert list(grid(10, 35)) == [0, 10, 20, 30, 35]
    assert list(grid(10, 10)) == [0, 10]
    assert list(grid("log", 1)) == [0, 1]
    assert len(list(grid("log", 100_000))) < 40


@pytest.mark.parametrize("every", [0, -1, "linear", True])
def test_other_grids_are_refused(every):
    with pytest.raises(InputError, match="every"):
        grid(every, 10)


def test_shares():
    assert share_of("2%") == share_of(0.02) == share_of(" 2 %") == 0.02
    assert share_of(None) is None
    for wrong in ("200%", "0%", 0, -0.1, "much", math.nan):
        with pytest.raises(InputError, match="budget"):
            share_of(wrong)


def run(
    share: float | None, total: int, step_s: float, cost_s: float, *, warm_up: float = 1.0, setup: float = 0.0
) -> tuple[list[int], float]:
    """The steps that a run measures, each in `cost_s`, and the share of the run's time that this takes."""
    budget, made = Budget(share, total, spent=setup), []
    for step in range(total + 1):
        if step:
            budget.step_took(step_s * (warm_up if step == 1 else 1))
        if step in grid("log", total) and budget.affords(step):
            budget.measured(cost_s)
            made.append(step)
    return made, budget.spent / (total * step_s)


def test_a_cheap_measurement_is_made_at_every_step_of_the_grid():
    made, share = run(0.02, 1000, step_s=1.0, cost_s=0.2)
    assert made == list(grid("log", 1000))
    assert share < 0.02


def test_before_enough_steps_were_timed_a_dearer_measurement_is_put_off():
    made, share = run(0.02, 1000, step_s=1.0, cost_s=0.6)
    assert made == [step for step in grid("log", 1000) if step == 0 or step >= SURE]
    assert share < 0.02


@pytest.mark.parametrize("cost", [1.5, 3.0, 6.0, 9.0])
@pytest.mark.parametrize("warm_up", [1.0, 8.0])
def test_the_budget_bounds_the_share_and_both_ends_are_measured(cost, warm_up):
    made, share = run(0.02, 1000, step_s=1.0, cost_s=cost, warm_up=warm_up)
    assert share <= 0.02
    assert share > 0.014  # nor is it left unused
    assert made[0] == 0
    assert made[-1] == 1000
    assert len(made) < len(list(grid("log", 1000)))


def test_what_is_afforded_is_spread_over_the_whole_grid():
    points = list(grid("log", 1000))
    made, _ = run(0.02, 1000, step_s=1.0, cost_s=2.5)
    gaps = [points.index(b) - points.index(a) for a, b in pairwise(made)]
    assert len(made) == 7
    assert max(gaps) <= 5


def test_what_cannot_be_afforded_at_all_is_measured_once():
    assert run(0.02, 100, step_s=0.01, cost_s=1.0)[0] == [0]
    assert run(0.02, 1000, step_s=1.0, cost_s=0.5, setup=30.0)[0] == [0]  # the set-up has used everything


def test_without_a_bound_everything_is_measured():
    made, _ = run(None, 100, step_s=0.001, cost_s=5.0)
    assert made == list(grid("log", 100))


def test_an_end_that_comes_early_is_afforded_while_anything_is_left():
    budget = Budget(0.02, 1000)
    for _ in range(100):
        budget.step_took(1.0)
    budget.measured(9.0)
    assert not budget.affords(100)
    assert budget.affords(100, last=True)
    budget.measured(9.0)
    assert not budget.affords(100, last=True)


def test_without_planned_steps_a_measurement_waits_until_it_is_affordable():
    budget, made = Budget(0.02, None), []
    for step in range(1, 2001):
        budget.step_took(1.0)
        if step in set(islice(grid("log", None), 40)) and budget.affords(step):
            budget.measured(3.0)
            made.append(step)
            assert len(made) == 1 or budget.spent <= 0.02 * step
    assert len(made) >= 5
