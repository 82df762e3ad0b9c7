"""Mean attention by the distance between two words, read back from a probe's moments."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.probing.attention import BINNED, DISTANCE_EDGES
from topicscope.probing.statistics import distance_features


def distances(
    moments: Mapping[str, np.ndarray], pairs: Sequence[Mapping[str, Any]], part: str, threshold: float | None
) -> pd.DataFrame:
    """One row per class of pair and bin of distance: pair, distance, pairs, mean_attention; all topic seeds together.

    moments: of a result; pairs: its coverage's counts, one row for each part, threshold and topic seed, in the order of
    the moments. distance: the least |i-j| of its bin, in tokens: exact up to 32, then bins that widen by a fifth.
    mean_attention: mean of A_ij · L/100 over layers, heads and pairs; NaN without a pair.

    Raises:
        InputError: no such part or threshold.
    """
    if threshold is not None and math.isnan(threshold):  # topics from a word list
        threshold = None
    rows = [row for row in pairs if row["part"] == part]
    chosen = [i for i, row in enumerate(rows) if row["threshold"] == threshold]
    if not chosen:
        known = sorted({(row["part"], row["threshold"]) for row in pairs}, key=str)
        raise InputError("no such pairs", received=(part, threshold), expected=f"one of {known}")
    total = moments[f"{part}/pooled_total"][chosen].sum(0)
    tables = []
    for pair in BINNED:
        sums, counts = (total[indices] for indices in distance_features(pair))
        means = np.where(counts > 0, sums / np.where(counts > 0, counts, 1), np.nan)
        columns = {"pair": pair.name, "distance": DISTANCE_EDGES, "pairs": counts, "mean_attention": means}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)
