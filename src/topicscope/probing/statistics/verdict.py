"""The two-sided answer: is same-topic attention higher, lower, or is no topic structure found?

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

Direction = Literal["higher", "lower", "none", "unknown"]


def direction(low: float, high: float, control_low: float = math.nan, control_high: float = math.nan) -> Direction:
    """What the interval [low, high] of a ratio says, measured against 1 and against random weights.

    higher: the interval lies above 1 and above the interval of the random controls; lower: below both (inverted
    structure); none: neither; unknown: there is no interval. Controls that are NaN do not count.
    """
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    controls = [value for value in (control_low, control_high) if not math.isnan(value)]
    if low > max([1.0, *controls]):
        return "higher"
    return "lower" if high < min([1.0, *controls]) else "none"


def named(directions: Mapping[str, Any], shown: str) -> str:
    """A sentence for the headline about inverted structure, in the part shown and in the others; empty without any."""
    lower = [part for part, found in directions.items() if found == "lower"]
    if not lower:
        return ""
    where = "" if lower == [shown] else f" in the {' and the '.join(lower)}"
    return f" The structure is inverted{where}: words of the same topic get less attention, not more."


Verdict = Literal["same-topic attention higher", "same-topic attention lower", "no topic structure found", "not tested"]
HIGHER: Verdict = "same-topic attention higher"
LOWER: Verdict = "same-topic attention lower"
NONE: Verdict = "no topic structure found"
NOT_TESTED: Verdict = "not tested"

SIGNIFICANT = 0.05
# The quantity whose interval is compared with that of the controls.
TESTED = "attention_ratio_distinct_distance_matched"


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
