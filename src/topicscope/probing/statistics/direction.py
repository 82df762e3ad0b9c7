"""Which way the topic structure of attention points: towards words of the same topic, or away from them.

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
