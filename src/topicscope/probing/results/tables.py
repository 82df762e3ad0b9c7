"""The tables of a probe, made from moments: one row per threshold and part, per head, per document, per control.

Mean attention by the distance between two words, read back from a probe's moments.

The paper's natural-language table (Knowl 7: Li, Li & Risteski 2023, T = 100 topics, Wikipedia), beside ours.

These are published figures, never measurements of topicscope. The paper does not say whether its embeddings are the raw
matrix or the embedding layer's output; its random model's ratios so near 1 fit the layer's output, so they stand there.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from topicscope.errors import InputError
from topicscope.probing.attention import BINNED, DISTANCE_EDGES, Configuration, PartSums
from topicscope.probing.hf import PartSpec
from topicscope.probing.statistics import (
    COUNTS,
    DIFFERENT,
    ENDS,
    OF_CONTROLS,
    PAIRED,
    PLAIN,
    RATIOS,
    UNMATCHED,
    WITHOUT_SINKS,
    PartMoments,
    PermutationTest,
    attention_verdict,
    over_topic_seeds,
    pair_features,
)
from topicscope.records import select, threshold_cell, threshold_of
from topicscope.topics import PairClass


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
    threshold = threshold_of(threshold)
    rows = [row for row in pairs if row["part"] == part]
    chosen = [i for i, row in enumerate(rows) if row["threshold"] == threshold]
    if not chosen:
        known = sorted({(row["part"], row["threshold"]) for row in pairs}, key=str)
        raise InputError("no such pairs", received=(part, threshold), expected=f"one of {known}")
    total = moments[f"{part}/pooled_total"][chosen].sum(0)
    tables = []
    for pair in BINNED:
        sums, counts = (total[index[:, 0]] for index in pair_features([pair], matched="distance"))
        means = np.where(counts > 0, sums / np.where(counts > 0, counts, 1), np.nan)
        columns = {"pair": pair.name, "distance": DISTANCE_EDGES, "pairs": counts, "mean_attention": means}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


_THRESHOLDS = (0.0005, 0.001, 0.002)
# model: cosine S/D, dot product S/D, attention S/D, each at the three ambiguity thresholds
_TABLE = {
    "BERT": ((1.21, 1.13, 1.11), (1.19, 1.15, 1.13), (1.32, 1.28, 1.22)),
    "ALBERT": ((5.64, 4.18, 3.24), (6.29, 3.74, 2.93), (1.33, 1.28, 1.22)),
    "BART": ((2.80, 1.95, 1.63), (2.67, 1.92, 1.62), (1.35, 1.31, 1.23)),
    "ELECTRA": ((5.98, 7.70, 7.46), (5.37, 7.35, 8.08), (2.14, 2.09, 1.95)),
    "RoBERTa": ((6.44, 5.73, 5.24), (6.81, 6.31, 5.30), (1.40, 1.31, 1.22)),
    "BERT (random)": ((1.00080, 0.99974, 1.00016), (1.00063, 1.00036, 1.00027), (0.99943, 0.99996, 1.00007)),
}


# Rows of `ProbeResult.table()` with source "paper"; columns that the paper does not report are absent.
PAPER_ROWS: list[dict[str, Any]] = [
    {
        "source": "paper",
        "model": model,
        "part": "encoder",
        "threshold": threshold,
        "attention_ratio": attention[i],
        "embedding_cosine_layer_ratio": cosine[i],
        "embedding_dot_layer_ratio": dot[i],
    }
    for model, (cosine, dot, attention) in _TABLE.items()
    for i, threshold in enumerate(_THRESHOLDS)
]

EMBEDDING_COLUMNS = [
    f"embedding_{kind}_{place}_{quantity}"
    for place in ("raw", "layer")
    for kind in ("cosine", "dot")
    for quantity in ("same", "different", "difference", "ratio")
]
COLUMNS = [
    "source",
    "model",
    "part",
    "threshold",
    "pairs_same",
    "pairs_different",
    *[f"{ratio.name}{end}" for ratio in RATIOS for end in ENDS],
    *[f"{name}_sinks_excluded{end}" for name in WITHOUT_SINKS for end in ENDS],
    f"{PLAIN.name}_topic_sd",
    *[f"control_{name}{end}" for name in OF_CONTROLS for end in ENDS if end != "_se" or name == PLAIN.name],
    "permutation_statistic",
    "permutation_z",
    "permutation_p",
    "verdict",
    *EMBEDDING_COLUMNS,
]


def by_threshold(configurations: Sequence[Configuration]) -> dict[float | None, list[int]]:
    """Indices of the configurations of each threshold: one for each topic seed."""
    groups: dict[float | None, list[int]] = {}
    for index, configuration in enumerate(configurations):
        groups.setdefault(configuration.threshold, []).append(index)
    return groups


def attention_rows(
    moments: Mapping[str, PartMoments], parts: Sequence[PartSpec], configurations: Sequence[Configuration]
) -> list[dict[str, Any]]:
    """One row per part and threshold: ratios averaged over topic seeds.

    The standard errors of the seeds are averaged as well: the seeds share their documents, so averaging over them does
    not make the document error smaller. The spread over seeds stands in `attention_ratio_topic_sd`, and the 95 %
    intervals hold both (`over_topic_seeds`).
    """
    rows = []
    for part in parts:
        part_moments = moments[part.name]
        for threshold, members in by_threshold(configurations).items():
            counts = part_moments.pooled_total[members, COUNTS].mean(0)
            row: dict[str, Any] = {
                "part": part.name,
                "threshold": threshold_cell(threshold),
                "pairs_same": float(sum(counts[k] for k in PAIRED)),
                "pairs_different": float(sum(counts[k] for k in DIFFERENT)),
            }
            for ratio in RATIOS:
                columns = [f"{ratio.name}{end}" for end in ENDS]
                if ratio.corrected and not part.causal:
                    row |= dict.fromkeys(columns, math.nan)
                    continue
                estimates = [
                    part_moments.ratio(c, ratio.same, corrected=ratio.corrected, matched=ratio.matched) for c in members
                ]
                found = over_topic_seeds(estimates)
                row |= dict(zip(columns, (found.value, found.se, found.low, found.high), strict=True))
                if ratio is PLAIN:
                    row[f"{ratio.name}_topic_sd"] = found.sd
            rows.append(row)
    return rows


def with_sinks_excluded(
    rows: Sequence[Mapping[str, Any]], without: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """`attention_rows` with what they are `without` sinks, in columns of their own."""
    return [
        row | {f"{name}_sinks_excluded{end}": other[f"{name}{end}"] for name in WITHOUT_SINKS for end in ENDS}
        for row, other in zip(map(dict, rows), without, strict=True)
    ]


def result_table(
    model: str,
    attention: Sequence[Mapping[str, Any]],
    controls: pd.DataFrame,
    embeddings: pd.DataFrame,
    tests: Mapping[tuple[str, float | None], PermutationTest],
) -> pd.DataFrame:
    """`ProbeResult.table()`: the measured rows, each with its verdict, then the paper's.

    Of random weights: the mean over initialisations, its standard error, and the t-interval of that mean; of
    embeddings: the mean over topic seeds. tests: the shuffles of each part and threshold.
    """
    measured = []
    for attended in attention:
        part, threshold = attended["part"], attended["threshold"]
        row: dict[str, Any] = {"source": "measured", "model": model, **attended}
        if len(controls):
            drawn = select(controls[controls["part"] == part], threshold)
            for name in OF_CONTROLS:
                values = drawn[name].dropna().to_numpy(dtype=float)
                if len(values) == 0:
                    continue
                mean = float(values.mean())
                error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
                half = float(stdtrit(len(values) - 1, 0.975)) * error if len(values) > 1 else math.nan
                found = (mean, error, mean - half, mean + half)
                row |= {f"control_{name}{end}": value for end, value in zip(ENDS, found, strict=True)}
        if len(embeddings):
            for (place, kind), rows in select(embeddings, threshold).groupby(["place", "kind"]):
                for quantity in ("same", "different", "difference", "ratio"):
                    row[f"embedding_{kind}_{place}_{quantity}"] = float(rows[quantity].mean(skipna=False))
        test = tests.get((part, threshold_of(threshold)))  # None where topics were not shuffled
        if test is not None:
            row |= {"permutation_statistic": test.statistic, "permutation_z": test.z, "permutation_p": test.p_value}
        measured.append(row | {"verdict": attention_verdict(row)[0]})
    return pd.DataFrame([*measured, *PAPER_ROWS]).reindex(columns=COLUMNS)


def head_rows(
    moments: Mapping[str, PartMoments], parts: Sequence[PartSpec], configurations: Sequence[Configuration]
) -> pd.DataFrame:
    """One row per part, threshold, layer and head, averaged over topic seeds; means are of A_ij · L/100.

    Layers and heads have the model's own numbers, where only some were read as well. key_value_head: the one that a
    query head reads; shared ones make a group.
    """
    frames = []
    for part in parts:
        found = moments[part.name]
        for threshold, members in by_threshold(configurations).items():
            seeds: list[dict[str, np.ndarray]] = []  # of each, every column [layer, head]
            for c in members:
                columns: dict[str, np.ndarray] = {}
                for name, classes in (("same", PAIRED), ("different", DIFFERENT)):
                    sums, counts = (found.heads_total[c][..., i[0]].sum(-1) for i in pair_features(classes))
                    columns[f"pairs_{name}"] = counts
                    means = np.divide(sums, counts, out=np.full_like(sums, math.nan), where=counts > 0)
                    columns[f"mean_{name}"] = means
                for ratio in UNMATCHED:
                    if ratio.corrected and not part.causal:
                        value = error = np.full(found.heads_total.shape[1:3], math.nan)
                    else:
                        value, error = found.head_ratios(c, ratio.same, corrected=ratio.corrected)
                    columns |= {ratio.name: value, f"{ratio.name}_se": error}
                seeds.append(columns)
            layer, head = (places.ravel() for places in np.meshgrid(part.layers, part.heads, indexing="ij"))
            frame = pd.DataFrame(
                {"part": part.name, "threshold": threshold_cell(threshold), "layer": layer, "head": head}
            )
            frame["key_value_head"] = [part.key_value_head(number) for number in head.tolist()]
            for name in seeds[0]:
                frame[name] = np.mean([columns[name].ravel() for columns in seeds], axis=0)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def document_rows(
    sums: Sequence[PartSums],
    document_ids: Sequence[str],
    units: Sequence[int],
    tokens: Sequence[int],
    configurations: Sequence[Configuration],
) -> pd.DataFrame:
    """One row per document, part, threshold and topic seed: the five class sums and counts.

    Sums are of A_ij · L/100, averaged over layers and heads; corrected ones (NaN unless causal) of A_ij · (i+1)/100.
    """
    frames = []
    for part in sums:
        pooled = part.heads.mean((2, 3))
        corrected = np.full_like(pooled, math.nan) if part.corrected is None else part.corrected.mean((2, 3))
        for c, configuration in enumerate(configurations):
            columns: dict[str, Any] = {
                "document_id": list(document_ids),
                "units": list(units),
                "tokens": list(tokens),
                "part": part.part.name,
                "threshold": threshold_cell(configuration.threshold),
                "topic_seed": configuration.topic_seed,
            }
            for k in PairClass:
                columns[f"sum_{k.name}"] = pooled[:, c, k]
                columns[f"corrected_{k.name}"] = corrected[:, c, k]
                columns[f"count_{k.name}"] = part.counts[:, c, k]
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def control_table(
    first_seed: int,
    moments: Sequence[Mapping[str, PartMoments]],
    parts: Sequence[PartSpec],
    configurations: Sequence[Configuration],
) -> pd.DataFrame:
    """One row per random initialisation, part and threshold; moments: of each initialisation, by part."""
    keep = ("part", "threshold", *(ratio.name for ratio in RATIOS))
    return pd.DataFrame(
        {"control_seed": seed, **{name: row[name] for name in keep}}
        for seed, control in enumerate(moments, start=first_seed)
        for row in attention_rows(control, parts, configurations)
    )
