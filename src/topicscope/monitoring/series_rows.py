"""What a series keeps of one probe: a row for each quantity, part and layer, in one table for all checkpoints.

| quantity | same, different: means over pairs of words of one topic, of two topics |
| --- | --- |
| embeddings, embeddings_dot | cosine, and dot product, of the embedding matrix |
| ov | u_aᵀ W_O W_V x_b of each layer, summed over its heads (Elhage et al. 2021); u the prediction vectors |
| attention | A_ij · L/100 of each part, A_ij · (i+1)/100 where it is causal |

z, z_banded: topics shuffled over words, and over words of like frequency; of attention only the latter, from the
permutation test.
difference = same - different, ratio = same / different; ratio is withheld (NaN) for embeddings and OV where `different`
is not clearly away from 0. Errors: over words for embeddings and OV, over documents for attention.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from topicscope.probing.circuits import ALL_HEADS
from topicscope.probing.results import ProbeResult
from topicscope.probing.statistics import (
    CORRECTED,
    COUNTS,
    DIFFERENT,
    PAIRED,
    SUMS,
    PartMoments,
    delta_method,
    effective_documents,
)

VALUES = ("same", "different", "difference", "difference_se", "ratio", "ratio_se", "z", "z_banded", "p_value")
COLUMNS = ("checkpoint", "step", "quantity", "part", "layer", *VALUES, "verdict")


def series_rows(result: ProbeResult) -> Iterator[dict[str, Any]]:
    """The rows of one probe, at the headline's threshold; embeddings are averaged over topic seeds."""
    threshold = result.headline["threshold"]
    yield from _embeddings(_at(result.embeddings, threshold))
    yield from _circuits(_at(result.circuits, threshold))
    measured = _at(result.rows[result.rows["source"] == "measured"], threshold)
    for row in measured.to_dict(orient="records"):
        pairs = [p for p in result.coverage["pairs"] if p["part"] == row["part"]]
        chosen = [i for i, p in enumerate(pairs) if _plain(p["threshold"]) == _plain(threshold)]
        moments = PartMoments.from_arrays(result.moments, str(row["part"]))
        yield _attention(row, moments, chosen)


def _at(frame: pd.DataFrame, threshold: float | None) -> pd.DataFrame:
    """The rows of one threshold; those of a word list have none."""
    if frame.empty:
        return frame
    return frame[frame["threshold"].map(_plain) == _plain(threshold)]


def _plain(threshold: float | None) -> float:
    """Without NaN, which equals nothing."""
    return -1.0 if threshold is None or math.isnan(threshold) else threshold


def _embeddings(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for kind, quantity in (("cosine", "embeddings"), ("dot", "embeddings_dot")):
        seeds = frame[(frame["place"] == "raw") & (frame["kind"] == kind)]
        if seeds.empty:
            continue
        mean = seeds[[name for name in VALUES if name in seeds]].mean(skipna=False)
        row = {"quantity": quantity} | {str(name): float(value) for name, value in mean.items()}
        yield row | {
            "p_value": float(seeds["p_value_banded"].mean()),
            "verdict": "; ".join(dict.fromkeys(seeds["verdict"])),
        }


def _circuits(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    if frame.empty:
        return
    layers = frame[(frame["circuit"] == "OV") & (frame["head"] == ALL_HEADS) & (frame["place"] == "raw")]
    for row in layers.to_dict(orient="records"):
        # The error of the difference is at least that of `different`, the mean of far more pairs than `same`.
        clear = abs(row["different"]) > 2 * row["difference_se"]
        banded = not math.isnan(row["z_banded"])  # with fewer than 40 words there are no bands: the tests are one
        found = {"quantity": "ov", "part": row["part"], "layer": int(row["layer"])}
        found |= {name: row[name] for name in ("same", "different", "difference", "difference_se", "z")}
        found |= {
            "z_banded": row["z_banded" if banded else "z"],
            "p_value": row["p_value_banded" if banded else "p_value"],
        }
        yield found | {"ratio": row["same"] / row["different"] if clear else math.nan}


def _attention(row: dict[Any, Any], moments: PartMoments, chosen: Sequence[int]) -> dict[str, Any]:
    corrected = not math.isnan(row["attention_ratio_position_corrected"])
    name = "attention_ratio_position_corrected" if corrected else "attention_ratio"
    means = np.array([_means(moments, c, CORRECTED.start if corrected else SUMS.start) for c in chosen]).mean(0)
    found = {"quantity": "attention", "part": row["part"]}
    found |= dict(zip(("same", "different", "difference", "difference_se"), means.tolist(), strict=True))
    found |= {"ratio": row[name], "ratio_se": row[f"{name}_se"]}
    return found | {"z_banded": row["permutation_z"], "p_value": row["permutation_p"], "verdict": row["verdict"]}


def _means(moments: PartMoments, configuration: int, start: int) -> tuple[float, float, float, float]:
    """S, D, S - D and its error, clustered by document."""
    pooled = moments.pooled[configuration]
    gradient, means, used = np.zeros_like(pooled.total), [], []
    for sign, kinds in ((1.0, PAIRED), (-1.0, DIFFERENT)):
        x, n = [start + k for k in kinds], [COUNTS.start + k for k in kinds]
        count = float(pooled.total[n].sum())
        if count == 0:
            return math.nan, math.nan, math.nan, math.nan
        means.append(float(pooled.total[x].sum()) / count)
        gradient[x], gradient[n] = sign / count, -sign * means[-1] / count
        used += [x, n]
    same, different = means
    found = delta_method(pooled, same - different, gradient, effective=effective_documents(pooled, *used))
    return same, different, found.value, found.se
