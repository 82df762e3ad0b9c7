"""The two-sided answer: is same-topic attention higher, lower, or is no topic structure found? And its sentence.

Two questions must both be answered the same way. Does the difference belong to topics, or would topics shuffled over
words of like frequency do as well (`permutation_test`, p < .05)? And is it more than the architecture shows by itself:
does the document-clustered 95 % interval of the ratio of different words at matched distances lie wholly above (below)
the interval of the random controls? Clustered errors alone are too small for a model early in training, in which words
differ and topics do not; shuffles alone say nothing about the size or what random weights show.

Which way the topic structure of attention points: towards words of the same topic, or away from them.

Models trained causally or as sequence-to-sequence on topic-model text attend *less* to words of the same topic:
a token already shows its own topic, so that looking elsewhere tells more. That is structure too, and has a name here.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd

from topicscope.probing.statistics.attention_ratios import PLAIN, POSITION_CORRECTED, TESTED
from topicscope.probing.statistics.moments import PartMoments

Verdict = Literal["same-topic attention higher", "same-topic attention lower", "no topic structure found", "not tested"]
HIGHER: Verdict = "same-topic attention higher"
LOWER: Verdict = "same-topic attention lower"
NONE: Verdict = "no topic structure found"
NOT_TESTED: Verdict = "not tested"

SIGNIFICANT = 0.05


def attention_verdict(row: Mapping[str, Any]) -> tuple[Verdict, str]:
    """The verdict of a row of the table, and in plain words why.

    row: `permutation_p`, `permutation_z`, and value, `_low` and `_high` of `TESTED` and of its control; missing values
    are NaN. Of one random control only the value is known; it then takes the place of the interval.
    """
    p, z = (float(row.get(name, math.nan)) for name in ("permutation_p", "permutation_z"))
    low, high = (float(row.get(f"{TESTED}{end}", math.nan)) for end in ("_low", "_high"))
    control = float(row.get(f"control_{TESTED}", math.nan))
    limits = [float(row.get(f"control_{TESTED}{end}", math.nan)) for end in ("_low", "_high")]
    control_low, control_high = (control if math.isnan(limit) else limit for limit in limits)
    if math.isnan(p):
        return NOT_TESTED, "topics were not shuffled"
    if math.isnan(control):
        return NOT_TESTED, "there are no random controls to compare with"
    if math.isnan(low) or math.isnan(high):
        return NOT_TESTED, "there is no interval"
    if p >= SIGNIFICANT:
        return NONE, f"topics shuffled over words of like frequency do as well, p = {p:.2g}"
    side = 1 if low > control_high else -1 if high < control_low else 0
    if side == 0:
        return NONE, "random weights reach the interval of different words at matched distances"
    if not z * side > 0:
        return NONE, "shuffles and random weights point in opposite directions"
    return HIGHER if side > 0 else LOWER, f"topics shuffled over words of like frequency: p = {p:.2g}"


def headline_of_parts(
    model: str, rows: pd.DataFrame, moments: Mapping[str, PartMoments], interrupted: bool
) -> dict[str, Any]:
    """The answer of the first part at the middle threshold that has a ratio, with the direction of every part.

    rows: the table of the result, whose measured rows are of the parts of the model in their order.
    """
    measured = rows[rows["source"] == "measured"]
    found = {}
    for part in dict.fromkeys(measured["part"]):
        own = measured[measured["part"] == part]
        usable = own[own["attention_ratio"].notna()]
        usable = own if usable.empty else usable
        row = {str(key): value for key, value in usable.iloc[len(usable) // 2].to_dict().items()}
        found[part] = _headline(model, row, moments[part].documents, interrupted)
    first = next(iter(found.values()))
    text = first["text"]
    lower = [part for part, answer in found.items() if answer["direction"] == "lower"]
    if lower:
        where = "" if lower == [first["part"]] else f" in the {' and the '.join(lower)}"
        text += f" The structure is inverted{where}: words of the same topic get less attention, not more."
    return first | {
        "directions": {part: answer["direction"] for part, answer in found.items()},
        "verdicts": {part: answer["verdict"] for part, answer in found.items()},
        "text": text,
    }


def _headline(model: str, row: Mapping[str, Any], documents: int, interrupted: bool) -> dict[str, Any]:
    """The one-sentence answer from a row of the table; for a causal part the position-corrected ratio leads.

    direction: what the 95 % interval of the ratio says, which holds the spread over topic seeds (`over_topic_seeds`).
    higher: it lies above 1 and above the interval of the random controls; lower: below both (inverted structure); none:
    neither; unknown: there is no interval. Controls that are NaN do not count; one control has a value alone.
    """
    name = PLAIN.name if math.isnan(row[POSITION_CORRECTED.name]) else POSITION_CORRECTED.name
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    control, *ends = (row[f"control_{name}{end}"] for end in ("", "_low", "_high"))
    limits = [1.0, *(control if math.isnan(end) else end for end in ends)]
    limits = [limit for limit in limits if not math.isnan(limit)]
    if math.isnan(low) or math.isnan(high):
        direction = "unknown"
    elif low > max(limits):
        direction = "higher"
    else:
        direction = "lower" if high < min(limits) else "none"

    # As many decimals as the interval needs, lest it read "1.00 to 1.00".
    digits = 2 if not high > low else min(max(2, 1 - math.floor(math.log10(high - low))), 5)
    known = f"95 % interval {low:.{digits}f} to {high:.{digits}f}, " if high > low else "no interval, "
    text = (
        f"In {model} ({row['part']}), same-topic word pairs get {row[name]:.{digits}f} times the attention of "
        f"different-topic pairs ({known}{documents} document{'s' if documents != 1 else ''}"
    )
    text += ", position-corrected)" if name != PLAIN.name else ")"
    if not math.isnan(control):
        text += f"; with random weights {control:.{max(3, digits)}f}"
    verdict, reason = attention_verdict(row)
    text += f". Verdict: {verdict} ({reason})"
    text += ". Interrupted: only part of the text was read." if interrupted else "."
    return {
        "part": row["part"],
        "threshold": row["threshold"],
        "quantity": name,
        "attention_ratio": row[name],
        "attention_ratio_se": row[f"{name}_se"],
        "low": low,
        "high": high,
        "documents": documents,
        "control_attention_ratio": control,
        "control_low": ends[0],
        "control_high": ends[1],
        "permutation_p": row["permutation_p"],
        "verdict": verdict,
        "verdict_reason": reason,
        "direction": direction,
        "text": text,
    }
