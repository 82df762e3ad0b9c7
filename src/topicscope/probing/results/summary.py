"""The one-sentence answer of a probe, with its numbers."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from topicscope.probing.hf import ModelView
from topicscope.probing.statistics import PLAIN, POSITION_CORRECTED, PartMoments, attention_verdict, direction, named


def headline_of_parts(
    view: ModelView, rows: pd.DataFrame, moments: Mapping[str, PartMoments], interrupted: bool
) -> dict[str, Any]:
    """The first part at the middle threshold that has a ratio, with the direction of every part."""
    found = {}
    for part in view.parts:
        measured = rows[(rows["source"] == "measured") & (rows["part"] == part.name)].reset_index(drop=True)
        usable = measured[measured["attention_ratio"].notna()]
        usable = measured if usable.empty else usable
        row = {str(key): value for key, value in usable.iloc[len(usable) // 2].to_dict().items()}
        found[part.name] = headline(view.name, row, moments[part.name].documents, interrupted)
    first = next(iter(found.values()))
    directions = {part: answer["direction"] for part, answer in found.items()}
    verdicts = {part: answer["verdict"] for part, answer in found.items()}
    return first | {
        "directions": directions,
        "verdicts": verdicts,
        "text": first["text"] + named(directions, first["part"]),
    }


def headline(model: str, row: Mapping[str, Any], documents: int, interrupted: bool) -> dict[str, Any]:
    """The one-sentence answer from a row of the table; for a causal part the position-corrected ratio leads.

    direction: which way the structure points (see `probing.statistics.direction`); verdict: whether it is one of topics
    (see `probing.statistics.verdict`). Intervals hold the spread over topic seeds (see `probing.statistics.pooling`).
    """
    name = PLAIN.name if math.isnan(row[POSITION_CORRECTED.name]) else POSITION_CORRECTED.name
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    control = {key: row[f"control_{name}{suffix}"] for key, suffix in _CONTROL_KEYS.items()}
    # As many decimals as the interval needs, lest it read "1.00 to 1.00".
    digits = 2 if not high > low else min(max(2, 1 - math.floor(math.log10(high - low))), 5)
    known = f"95 % interval {low:.{digits}f} to {high:.{digits}f}, " if high > low else "no interval, "
    text = (
        f"In {model} ({row['part']}), same-topic word pairs get {row[name]:.{digits}f} times the attention of "
        f"different-topic pairs ({known}{documents} document{'s' if documents != 1 else ''}"
    )
    text += ", position-corrected)" if name != PLAIN.name else ")"
    if not math.isnan(control["control_attention_ratio"]):
        text += f"; with random weights {control['control_attention_ratio']:.{max(3, digits)}f}"
    verdict, reason = attention_verdict(row)
    text += f". Verdict: {verdict} ({reason})"
    text += ". Interrupted: only part of the text was read." if interrupted else "."
    # One random control has a value but no interval.
    limits = [control[key] if not math.isnan(control[key]) else control["control_attention_ratio"] for key in _LIMITS]
    return {
        "part": row["part"],
        "threshold": row["threshold"],
        "quantity": name,
        "attention_ratio": row[name],
        "attention_ratio_se": row[f"{name}_se"],
        "low": low,
        "high": high,
        "documents": documents,
        **control,
        "permutation_p": row["permutation_p"],
        "verdict": verdict,
        "verdict_reason": reason,
        "direction": direction(low, high, *limits),
        "text": text,
    }


_LIMITS = ("control_low", "control_high")
_CONTROL_KEYS = {"control_attention_ratio": "", "control_low": "_low", "control_high": "_high"}
