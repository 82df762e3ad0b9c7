"""The grid of steps, and a budget on a clock that the tests turn."""

import math
from itertools import islice

import pytest

from topicscope.errors import InputError
from topicscope.monitoring.schedule import FEW_DOCUMENTS, SURE, Budget, grid, share_of


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
    share: float | None,
    total: int,
    step_s: float,
    cost_s: float,
    *,
    documents: int = 40,
    warm_up: float = 1.0,
    setup=0.0,
) -> tuple[list[tuple[int, int]], float]:
    """A run whose measurements cost a fifth of `cost_s`, and the rest in proportion to the documents.

    Returns (step, documents) of each measurement, and the share that was used.
    """
    budget = Budget(share, total, spent=setup)
    made: list[tuple[int, int]] = []
    due = 0
    whole = documents
    for step in range(total + 1):
        if step:
            budget.step_took(step_s * (warm_up if step == 1 else 1))
        if step < due:
            continue
        remaining = iter([step, *(s for s in grid("log", total) if s > step)])
        plan = budget.plan(step, remaining, documents)
        documents = plan.documents if plan.steps else documents
        later = [s for s in plan.steps if s > step]
        due = later[0] if later else next((s for s in grid("log", total) if s > step), total + 1)
        if plan.steps[:1] == (step,):
            budget.measured(documents, cost_s * (0.2 + 0.8 * documents / whole))
            made.append((step, documents))
    return made, budget.spent / (total * step_s)


def test_a_cheap_measurement_is_made_at_every_step_of_the_grid():
    made, share = run(0.02, 1000, step_s=1.0, cost_s=0.2)
    assert [step for step, _ in made] == list(grid("log", 1000))
    assert {documents for _, documents in made} == {40}
    assert share < 0.02


def test_before_enough_steps_were_timed_a_dearer_measurement_is_put_off():
    made, share = run(0.02, 1000, step_s=1.0, cost_s=0.5)
    assert [step for step, _ in made] == [step for step in grid("log", 1000) if step == 0 or step >= SURE]
    assert share < 0.02


@pytest.mark.parametrize("cost", [1.5, 3.0, 6.0, 9.0])
@pytest.mark.parametrize("warm_up", [1.0, 8.0])
def test_the_budget_bounds_the_share_and_both_ends_are_measured(cost, warm_up):
    made, share = run(0.02, 1000, step_s=1.0, cost_s=cost, warm_up=warm_up)
    assert share <= 0.02
    assert share > 0.008  # nor is it left unused
    assert made[0][0] == 0
    assert made[-1][0] == 1000
    assert len(made) < len(list(grid("log", 1000)))


def test_steps_go_before_documents_and_documents_never_come_back():
    some, _ = run(0.02, 1000, step_s=1.0, cost_s=1.2)
    assert {documents for _, documents in some} == {40}
    fewer, _ = run(0.02, 1000, step_s=1.0, cost_s=5.0)
    counts = [documents for _, documents in fewer]
    assert counts == sorted(counts, reverse=True)
    assert FEW_DOCUMENTS <= counts[-1] < 40


def test_what_cannot_be_afforded_at_all_is_measured_once():
    made, _ = run(0.02, 100, step_s=0.01, cost_s=1.0)
    assert made == [(0, 40)]
    dear, _ = run(0.02, 1000, step_s=1.0, cost_s=0.5, setup=30.0)  # the set-up has used everything
    assert dear == [(0, 40)]


def test_without_a_bound_everything_is_measured():
    made, _ = run(None, 100, step_s=0.001, cost_s=5.0)
    assert [step for step, _ in made] == list(grid("log", 100))


def test_a_plan_says_what_it_leaves_out():
    budget = Budget(0.02, 1000)
    for _ in range(SURE):
        budget.step_took(1.0)
    budget.measured(40, 10.0)
    plan = budget.plan(SURE, grid("log", 1000), 40)
    assert "remaining measurements" in plan.left_out
    assert "of 40 documents" in plan.left_out


def test_without_planned_steps_a_measurement_waits_until_it_is_affordable():
    budget, made = Budget(0.02, None), []
    for step in range(1, 2001):
        budget.step_took(1.0)
        if step in set(islice(grid("log", None), 40)) and budget.plan(step, iter([step]), 40).steps:
            budget.measured(40, 3.0)
            made.append(step)
    assert made[0] >= 1
    assert budget.spent <= 0.02 * 2000
    assert len(made) >= 5
