"""The ambiguity threshold of a row: a number, or None where topics come from a labelled word list, which has none.

A column of a table has NaN in place of None, which equals nothing; so rows are chosen by `select`, and thresholds of
tables compared after `threshold_of`.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def threshold_of(cell: float | None) -> float | None:
    """The threshold that a cell of a table, or a value of a JSON document, stands for."""
    return None if cell is None or math.isnan(cell) else float(cell)


def threshold_cell(threshold: float | None) -> float:
    """What a table has for a threshold."""
    return math.nan if threshold is None else threshold


def select(rows: "pd.DataFrame", threshold: float | None) -> "pd.DataFrame":
    """The rows of one threshold, by their column `threshold`; a table without rows may lack it."""
    if rows.empty:
        return rows
    wanted = threshold_of(threshold)
    return rows[rows["threshold"].isna() if wanted is None else rows["threshold"] == wanted]
