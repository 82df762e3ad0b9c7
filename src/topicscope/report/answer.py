"""What a probe found, in one sentence and in figures beside each other."""

import math
from collections.abc import Mapping
from typing import Any

from topicscope.report.heatmaps import threshold_label
from topicscope.report.tables import MISSING, interval, number


def distinct_low(headline: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> float | None:
    """About the lower limit of the ratio without repeats of one word; None where the record has none."""
    for row in rows:
        value, error = row.get("attention_ratio_distinct"), row.get("attention_ratio_distinct_se")
        if (row["part"], row["threshold"]) == (headline["part"], headline["threshold"]) and None not in (value, error):
            return float(value) - 2 * float(error)  # type: ignore[arg-type]
    return None


def strictest(headline: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> str:
    """A sentence: what is left at the headline's place without repeats and with equal distances; empty if not known."""
    name = "attention_ratio_distinct_distance_matched"
    for row in rows:
        limits = row.get(f"{name}_low"), row.get(f"{name}_high")
        here = (row["part"], row["threshold"]) == _place(headline)
        if here and headline.get("quantity") in (None, "attention_ratio") and number(row.get(name)) != MISSING:
            within = interval(*limits, 3)
            return (
                "Between different words only, with both kinds of pairs equally far apart, the ratio is "
                f"{number(row[name])}{'' if within == MISSING else f' (95 % interval {within})'}."
            )
    return ""


# Below these a result says little: half of the words, so many words of a topic, documents and pairs.
_LEAST_SHARE, _LEAST_WORDS, _LEAST_DOCUMENTS, _LEAST_PAIRS = 0.5, 3, 30, 100


def cautions(record: Mapping[str, Any]) -> list[str]:
    """What a reader must know first: the probe's warnings, then little text, few words, few pairs at the headline."""
    headline, coverage = record["headline"], record["coverage"]
    said = list(map(str, record["warnings"]))
    documents, alignment = headline["documents"], coverage.get("alignment", {})
    if documents < _LEAST_DOCUMENTS:
        said.append(f"Only {documents} documents were read: the interval rests on few independent pieces of text.")
    words, found = alignment.get("words"), alignment.get("found")
    if words and found is not None and found / words < _LEAST_SHARE:
        said.append(
            f"Only {found / words:.0%} of the words are one token of the model; the others were left out, and they may "
            "behave differently."
        )
    here = [r for r in coverage.get("pairs", []) if (r["part"], r["threshold"]) == _place(headline)]
    in_text = [r["words_with_topic_in_text"] for r in here if r.get("words_with_topic_in_text") is not None]
    told = any("words a topic" in warning for warning in said)
    if not told and record["topics"] and in_text and min(in_text) / len(record["topics"]) < _LEAST_WORDS:
        said.append(
            f"The text has {min(in_text)} different words with a topic, for {len(record['topics'])} topics: few words "
            "of each. A larger threshold or more text gives more."
        )
    pairs = [r["same_topic"] for r in here if r.get("same_topic") is not None]
    if pairs and min(pairs) < _LEAST_PAIRS:
        said.append(f"Only {min(pairs):,} pairs of different words share a topic: single words can decide the ratio.")
    return said


def _place(headline: Mapping[str, Any]) -> tuple[Any, Any]:
    return headline["part"], headline["threshold"]


_VERDICTS = {
    "same-topic attention higher": (
        "This model looks more at words of the same topic than shuffled topics or random weights can explain."
    ),
    "same-topic attention lower": (
        "This model looks less at words of the same topic than shuffled topics or random weights can explain."
    ),
    "no topic structure found": (
        "The difference need not be one of topics: dealing words of like frequency to topics at random, or a model "
        "that never learned, gives one as large too often."
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
