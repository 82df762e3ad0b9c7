"""A threshold is a number or None, whatever a table or a document holds for it."""

import json
import math

import pandas as pd
import pytest

from topicscope.records import select, threshold_cell, threshold_of

ROWS = pd.DataFrame({"threshold": [0.001, math.nan, 0.002, math.nan], "row": range(4)})


@pytest.mark.parametrize(
    ("threshold", "rows"), [(0.001, [0]), (0.002, [2]), (0.003, []), (None, [1, 3]), (math.nan, [1, 3])]
)
def test_select_gives_the_rows_of_one_threshold(threshold: float | None, rows: list[int]) -> None:
    assert select(ROWS, threshold)["row"].tolist() == rows


def test_select_of_a_table_without_rows_is_that_table() -> None:
    assert select(pd.DataFrame(), 0.001).empty


@pytest.mark.parametrize("threshold", [0.0005, None])
def test_threshold_comes_back_from_a_table_and_from_json(threshold: float | None) -> None:
    table = pd.DataFrame({"threshold": [threshold_cell(threshold)]})
    assert table["threshold"].dtype == float
    assert threshold_of(table["threshold"].iloc[0]) == threshold
    assert threshold_of(json.loads(json.dumps(threshold))) == threshold
