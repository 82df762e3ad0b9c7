import math

import numpy as np
import pandas as pd
import pytest

from topicscope.errors import InputError
from topicscope.lab import find_stages


def history(value, key, query, *, start=1.0, steps=None) -> pd.DataFrame:
    """Changes of W_V, W_K, W_Q at each step; the attention matrices start with norm `start`."""
    columns = {"W_V_change": value, "W_K_change": key, "W_Q_change": query}
    frame = pd.DataFrame(columns).astype(float)
    frame["step"] = range(len(frame)) if steps is None else steps
    return frame.assign(W_K_norm=start, W_Q_norm=start)


def test_two_stages_by_hand() -> None:
    # W_V has covered 90 % of its way to step 6 (10) at step 2; W_Q passes 10 % at step 6.
    found = find_stages(history([0, 5, 9, 10, 10, 10, 10, 20], [0] * 8, [0, 0, 0, 0, 0, 0.05, 0.1, 3]))
    assert (found.k1, found.k2, found.ratio, found.separated, found.stage_two_reached) == (2, 6, 3.0, True, True)
    assert found.verdict.startswith("separated")


def test_just_below_three_is_no_separation() -> None:
    found = find_stages(history([0, 5, 9, 10, 10, 10], [0, 0, 0, 0, 0, 0.2], [0] * 6))
    assert (found.k1, found.k2, found.ratio, found.separated) == (2, 5, 2.5, False)
    assert find_stages(history([0, 5, 9, 10, 10, 10, 10], [0] * 6 + [0.1], [0] * 7)).separated


def test_change_is_measured_against_the_start() -> None:
    moved = [0, 0.5, 0.9, 1.0, 1.0, 1.0]
    assert find_stages(history([0, 9, 9, 9, 9, 9], moved, moved, start=10.0)).k2 == 3
    assert find_stages(history([0, 9, 9, 9, 9, 9], moved, moved, start=1.0)).k2 == 1
    assert find_stages(history([0, 9, 9, 9, 9, 9], moved, moved, start=0.0)).k2 == 1


def test_stage_two_not_reached() -> None:
    found = find_stages(history([0, 9, 10, 10, 10, 10], [0] * 6, [0] * 6))
    assert (found.k2, found.stage_two_reached, found.separated) == (5, False, True)
    assert "not reached" in found.verdict


def test_a_value_matrix_that_never_moves_is_no_first_stage() -> None:
    found = find_stages(history([0] * 6, [0] * 5 + [1], [0] * 6))
    assert not found.separated
    assert math.isnan(found.ratio)


def test_order_of_rows_does_not_matter() -> None:
    frame = history([0, 5, 9, 10, 10, 10, 10], [0] * 6 + [0.1], [0] * 7, steps=[0, 1, 2, 5, 10, 20, 50])
    assert find_stages(frame.sample(frac=1, random_state=np.random.RandomState(3))) == find_stages(frame)
    assert find_stages(frame).ratio == 25


def test_unusable_histories_are_refused() -> None:
    good = history([0, 1], [0, 1], [0, 1])
    with pytest.raises(InputError, match="W_K"):
        find_stages(good.drop(columns="W_K_change"))
    with pytest.raises(InputError, match="one seed"):
        find_stages(good.assign(seed=[0, 1]))
    with pytest.raises(InputError, match="step 0"):
        find_stages(good[good.step > 0])
    with pytest.raises(InputError, match="step 0"):
        find_stages(good[good.step > 5])
