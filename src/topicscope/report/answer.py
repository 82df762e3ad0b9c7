"""What a probe found, in one sentence and in figures beside each other."""

import math
from collections.abc import Mapping
from typing import Any

from topicscope.report.figures import threshold_label
from topicscope.report.tables import MISSING, interval, number


def distinct_low(headline: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> float | None:
    """About the lower limit of the ratio without repeats of one word; None where the record has none."""
    for row in rows:
        value, error = row.get("attention_ratio_distinct"), row.get("attention_ratio_distinct_se")
        if (row["part"], row["threshold"]) == (headline["part"], headline["threshold"]) and None not in (value, error):
            return float(value) - 2 * float(error)  # type: ignore[arg-type]
    return None


_VERDICTS = {
    "same-topic attention higher": (
        "This model looks more at words of the same topic than shuffled topics or random weights can explain."
    ),
    "same-topic attention lower": (
        "This model looks less at words of the same topic than shuffled topics or random weights can explain."
    ),
    "no topic structure found": (
        "What difference there is need not be one of topics: the shuffles and the random weights must both say so."
    ),
}


def verdict(headline: Mapping[str, Any], distinct_low: float | None = None) -> str:
    """The verdict in plain words; where there is none, what the interval says, and no more than that.

    distinct_low: lower limit of the ratio of distinct words; None where it is unknown or, in a causal part, about
    another ratio than the headline's.
    """
    if headline.get("verdict") in _VERDICTS:
        return _VERDICTS[headline["verdict"]]
    low, high = headline.get("low"), headline.get("high")
    control = headline.get("control_high")
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "There is too little text for an error bar, so this is a number without a known precision."
    if low > 1 and control is not None and control >= low:
        return (
            "The whole interval lies above 1, but random weights reach into it: what is seen here need not come from "
            "anything the model learned."
        )
    if (
        low > 1
        and distinct_low is not None
        and distinct_low <= 1
        and headline.get("quantity") in (None, "attention_ratio")
    ):
        return (
            "The whole interval lies above 1, but not that of distinct words: repeats of one word may be the reason, "
            "not topics."
        )
    if low > 1:
        return "The whole interval lies above 1: this model looks more at words of the same topic."
    if high < 1:
        return "The whole interval lies below 1: this model looks less at words of the same topic."
    return "The interval includes 1: this text does not show a difference. More text would narrow it."


def cards(headline: Mapping[str, Any], paper: list[Mapping[str, Any]], model_type: str) -> list[dict[str, str]]:
    """The figures that belong beside each other: measured, random weights, the paper's row of the family or of BERT."""
    corrected = headline.get("quantity", "attention_ratio") != "attention_ratio"
    part = f"{headline['part']}, θ = {threshold_label(headline['threshold'])}"
    measured = interval(headline.get("low"), headline.get("high"), 3)
    cards = [
        {
            "name": "This model" + (" (position-corrected)" if corrected else ""),
            "value": number(headline["attention_ratio"]),
            "below": f"95 % interval {measured}" if measured != MISSING else "no interval",
            "where": f"{part}, {headline['documents']:,} documents",
        }
    ]
    control, limits = (
        headline.get("control_attention_ratio"),
        (headline.get("control_low"), headline.get("control_high")),
    )
    cards.append(
        {
            "name": "The same model with random weights",
            "value": number(control, 4),
            "below": f"95 % interval {interval(*limits)}" if None not in limits else "no interval",
            "where": "1 is expected" if control is not None else "not measured",
        }
    )
    family = [row for row in paper if str(row["model"]).lower() == model_type]
    family = family or [row for row in paper if row["model"] == "BERT"]
    if family and headline["threshold"] is not None and headline["part"] == "encoder" and not corrected:
        row = min(family, key=lambda r: abs(math.log(r["threshold"] / headline["threshold"])))
        where = f"θ = {threshold_label(row['threshold'])}, all of Wikipedia"
        value = number(row["attention_ratio"])
        cards.append(
            {"name": f"{row['model']} in the paper", "value": value, "below": "published value", "where": where}
        )
    return cards
