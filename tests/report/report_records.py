"""Made-up probe results with the shape of real ones; numbers near those of a real run."""

import math
from typing import Any

import numpy as np
import pandas as pd

THRESHOLDS = (0.0005, 0.001, 0.002)
PAPER = {"BERT": (1.32, 1.28, 1.22), "RoBERTa": (1.40, 1.31, 1.22), "BERT (random)": (0.99943, 0.99996, 1.00007)}


def heads_of(part: str, layers: int, heads: int, *, causal: bool = False, thresholds=THRESHOLDS) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frames = []
    for threshold in thresholds:
        ratio = np.exp(draw.normal(0.25, 0.3, layers * heads))
        frame = pd.DataFrame({"layer": np.repeat(np.arange(layers), heads), "head": np.tile(np.arange(heads), layers)})
        frame.insert(0, "part", part)
        frame.insert(1, "threshold", math.nan if threshold is None else threshold)
        frame["pairs_same"], frame["pairs_different"] = 1480.0, 9200.0
        frame["mean_different"] = 0.0093
        frame["mean_same"] = frame["mean_different"] * ratio
        for name, factor in (("", 1.0), ("_distinct", 0.93), ("_position_corrected", 0.9 if causal else math.nan)):
            frame[f"attention_ratio{name}"] = ratio * factor
            frame[f"attention_ratio{name}_se"] = 0.08 * ratio * factor
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def measured_row(part: str, threshold: float | None, place: int, causal: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"source": "measured", "model": "minilm", "part": part, "threshold": threshold}
    row |= {"pairs_same": 1480.0 * 3**place, "pairs_different": 9200.0 * 4**place}
    base = 1.62 - 0.1 * place
    ratios = {"": base, "_distinct": base - 0.15, "_distance_matched": base - 0.2}
    ratios |= {"_distinct_distance_matched": base - 0.25, "_distinct_frequency_matched": base - 0.22}
    ratios["_position_corrected"] = base - 0.1 if causal else math.nan
    for name, value in ratios.items():
        error = 0.05 if name == "_position_corrected" else 0.06 - 0.01 * place
        numbers = {"": value, "_se": error, "_low": value - 2 * error, "_high": value + 2.5 * error}
        row |= {f"attention_ratio{name}{end}": None if math.isnan(x) else x for end, x in numbers.items()}
    row |= {"permutation_statistic": 0.3, "permutation_z": 4.1, "permutation_p": 0.002}
    row["verdict"] = "same-topic attention higher"
    row |= {"attention_ratio_topic_sd": 0.041, "control_attention_ratio": 1.0004, "control_attention_ratio_se": 0.0011}
    row |= {"control_attention_ratio_low": 0.9974, "control_attention_ratio_high": 1.0034}
    name = "control_attention_ratio_position_corrected"
    return row | {name: 1.002, f"{name}_low": 0.991, f"{name}_high": 1.013}


def embedding_row(seed: int, threshold: float | None, place: str, kind: str) -> dict[str, Any]:
    withheld = "D is within two standard errors of 0" if (place, kind) == ("raw", "cosine") else None
    return {
        "topic_seed": seed,
        "threshold": threshold,
        "place": place,
        "kind": kind,
        "same": 0.182 + seed * 0.002,
        "different": 0.002 if withheld else 0.061,
        "difference": 0.18 if withheld else 0.121,
        "ratio": None if withheld else 2.98,
        "ratio_withheld": withheld,
        "same_se": 0.009,
        "different_se": 0.004,
        "difference_se": 0.008,
        "ratio_se": None if withheld else 0.21,
        "z": 14.3,
        "z_banded": 13.1,
        "anisotropy": 0.055,
        "control_difference": 0.001,
        "verdict": "same-topic similarity higher",
        "num_words": 240,
        "num_topics": 50,
        "pairs_same": 580,
        "pairs_different": 28_000,
    }


def example(text: str = "the pianist heard the violin", document: str = "Music", **changes: Any) -> dict[str, Any]:
    """An entry of head_examples with two words of topic 3."""
    words = [{"word": "pianist", "topics": [3]}, {"word": "violin", "topics": [3, 5]}]
    pair = {"query": "violin", "key": "pianist", "attention": 0.31, "query_place": 1, "key_place": 0}
    found = {"part": "encoder", "layer": 0, "head": 1, "document_id": document, "text": text, "same_topic_share": 0.2}
    return found | {"words": words, "pairs": [pair]} | changes


def make_record(
    parts: tuple[tuple[str, int, int, bool], ...] = (("encoder", 6, 12, False),),
    thresholds: tuple[float | None, ...] = THRESHOLDS,
    **changes: Any,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """result.json and heads.csv of a probe; parts: (name, layers, heads, causal)."""
    name, _, _, causal = parts[0]
    middle = len(thresholds) // 2
    lead = measured_row(name, thresholds[middle], middle, causal)
    quantity = "attention_ratio_position_corrected" if causal else "attention_ratio"
    table = [measured_row(p, t, i, c) for p, _, _, c in parts for i, t in enumerate(thresholds)]
    table += [
        {"source": "paper", "model": model, "part": "encoder", "threshold": t, "attention_ratio": ratios[i]}
        | {"embedding_cosine_layer_ratio": 1.21, "embedding_dot_layer_ratio": 1.19}
        for model, ratios in PAPER.items()
        for i, t in enumerate(THRESHOLDS)
    ]
    lost = {"pieces": 4190, "unknown": 12, "drift": 0, "same_token": 3}
    pairs = [
        {"part": p[0], "threshold": t, "topic_seed": 0, "same_word": 310, "same_topic": 1170, "different_topic": 9200}
        for p in parts
        for t in thresholds
    ]
    record = {
        "schema_version": 1,
        "kind": "probe",
        "model": {
            "name": "minilm",
            "model_type": "bert",
            "parts": [{"name": n, "num_layers": la, "num_heads": h, "causal": c} for n, la, h, c in parts],
            "weights_hash": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "kernel": "eager",
            "dtype": "float32",
            "parameters": 22_713_216,
        },
        "headline": {
            "part": name,
            "threshold": thresholds[middle],
            "quantity": quantity,
            "attention_ratio": lead[quantity],
            "attention_ratio_se": 0.05,
            "low": 1.41,
            "high": 1.63,
            "documents": 91,
            "control_attention_ratio": 1.0004,
            "control_low": 0.9974,
            "control_high": 1.0034,
            "text": f"In minilm ({name}), same-topic word pairs get {lead[quantity]:.2f} times the attention of "
            "different-topic pairs (95 % interval 1.41 to 1.63, 91 documents); with random weights 1.000.",
        },
        "table": table,
        "controls": [
            {"control_seed": s, "part": p[0], "threshold": t, "attention_ratio": 1.0}
            for s in range(5)
            for p in parts
            for t in thresholds
        ],
        "embeddings": [
            embedding_row(s, t, p, k)
            for s in range(3)
            for p in ("raw", "layer")
            for t in thresholds
            for k in ("cosine", "dot")
        ],
        "topics": [
            {
                "topic": t,
                "words": ["music", "album", "band", "song", "released", "guitar", "tour", "record", "rock", "jazz"],
            }
            for t in range(50)
        ],
        "coverage": {
            "text": {"documents": 106, "documents_kept": 91, "units": 21_022, "units_kept": 2500, "words": 410_000}
            | {
                "words_kept": 50_100,
                "dropped": {"fewer than 3 words": 821, "not drawn": 17_701},
                "skipped": {"redirect": 7},
            },
            "alignment": {"units": 2500, "empty_units": 0, "split_units": 4, "windows": 2504, "tokens": 71_300}
            | {"words": 50_100, "found": 50_100 - sum(lost.values()), "lost": lost},
            "pairs": pairs,
        },
        "warnings": ["Only 3.1 words a topic on average, fewer than 5: few pairs to measure. Try --threshold 0.004."],
        "interrupted": False,
        "manifest": {
            "created": "2026-11-30T07:00:00+00:00",
            "command": "topicscope probe minilm --topics 50 --topic-seeds 3 --controls 5 --max-units 2500",
            "environment": {"python": "3.11.2", "platform": "Linux", "cpu_count": 2, "libraries": {"torch": "2.13.0"}},
            "options": {"threshold": list(thresholds), "unit": "sentence", "max_units": 2500, "revision": None},
            "sources": {"model": {"name": "minilm"}, "corpus": {"name": "wikipedia-sample", "fingerprint": "ab12"}},
        },
    }
    heads = pd.concat([heads_of(n, la, h, causal=c, thresholds=thresholds) for n, la, h, c in parts], ignore_index=True)
    return record | changes, heads
