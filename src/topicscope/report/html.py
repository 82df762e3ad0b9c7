"""The report: one HTML file that needs no network and no script, made from a probe's record alone."""

import base64
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from topicscope.report import tables
from topicscope.report.circuit_page import circuit_table
from topicscope.report.figures import at_threshold, head_map, ratio_column, ratio_figure, threshold_label, to_svg
from topicscope.report.tables import MISSING, interval, number


def render_probe(record: Mapping[str, Any], heads: pd.DataFrame) -> str:
    """The page of one probe.

    record: the document of result.json; heads: the table of heads.csv. All text in them is from outside (words,
    names, warnings) and is escaped. Nothing is fetched: pictures are inlined as SVG, and the page forbids the rest.
    """
    # Autoescape always: the template's name does not end in .html, so jinja2 would not turn it on by itself.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("topicscope.report", ""),
    )
    return environment.get_template("template.html.j2").render(**_page(record, heads))


def _page(record: Mapping[str, Any], heads: pd.DataFrame) -> dict[str, Any]:
    headline, model, manifest = record["headline"], record["model"], record["manifest"]
    rows = [row for row in record["table"] if row["source"] == "measured"]
    paper = [row for row in record["table"] if row["source"] == "paper"]
    coverage = record["coverage"]
    return {
        "name": model["name"],
        "headline": headline["text"],
        "verdict": verdict(headline, _distinct_low(headline, rows)),
        "cards": _cards(headline, paper, model["model_type"]),
        "interrupted": record["interrupted"],
        "warnings": record["warnings"],
        "attention": tables.attention_table(rows),
        "paper": tables.paper_table(paper),
        "controls": len({row.get("control_seed") for row in record["controls"]}),
        "figures": _figures(record, heads),
        "heads": tables.heads_table(heads, headline["part"], headline["threshold"]),
        "embeddings": tables.embedding_table(record["embeddings"]) if record["embeddings"] else None,
        "circuits": circuit_table(record.get("circuits", []), headline["threshold"]),
        "topics": tables.topics_table(record["topics"]) if record["topics"] else None,
        "funnel": tables.funnel_table(coverage),
        "pairs": tables.pairs_table(coverage.get("pairs", [])),
        "counts": tables.details("All counts", {k: v for k, v in coverage.items() if k != "pairs"}),
        "causal": any(part.get("causal") for part in model["parts"]),
        "created": manifest["created"],
        "command": manifest.get("command"),
        "manifest": [
            tables.details("Model", model),
            tables.details("Options", manifest["options"]),
            tables.details("Sources", manifest["sources"]),
            tables.details("Environment", manifest["environment"]),
        ],
    }


def _distinct_low(headline: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> float | None:
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


def _cards(headline: Mapping[str, Any], paper: list[Mapping[str, Any]], model_type: str) -> list[dict[str, str]]:
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


def _figures(record: Mapping[str, Any], heads: pd.DataFrame) -> list[dict[str, Any]]:
    """Inlined pictures with the words that stand for them where they cannot be seen."""
    headline, name = record["headline"], record["model"]["name"]
    frame = pd.DataFrame.from_records(record["table"])
    numeric = [c for c in map(str, frame) if c.startswith(("threshold", "attention_", "control_"))]
    frame[numeric] = frame[numeric].astype(float)
    figures = [
        (
            ratio_figure(frame),
            "The ratio by threshold, with random weights and the paper beside it",
            f"Attention ratios of {name} by threshold with 95 % intervals; the numbers are in the attention table.",
        )
    ]
    for part in dict.fromkeys(heads["part"]):
        chosen = at_threshold(heads[heads["part"] == part], headline["threshold"])
        column = ratio_column(chosen)
        values = chosen[column].dropna()
        summary = f"Map of {chosen['layer'].nunique()} layers by {chosen['head'].nunique()} heads of the {part}. "
        if len(values):
            top = chosen.nlargest(1, column).iloc[0]
            summary += (
                f"Ratios from {number(values.min())} to {number(values.max())}, median {number(values.median())}; "
            )
            summary += f"the highest is layer {top['layer']:.0f}, head {top['head']:.0f}; "
            summary += f"{(values > 1).sum()} of {len(values)} are above 1."
        title = f"{name}: same-topic / different-topic attention"
        figure = head_map(heads, part=part, threshold=headline["threshold"], title=title)
        figures.append((figure, f"Every head of the {part}", summary))
    return [
        {
            "source": "data:image/svg+xml;base64," + base64.b64encode(to_svg(figure).encode()).decode(),
            "width": round(96 * figure.get_figwidth()),
            "height": round(96 * figure.get_figheight()),
            "caption": caption,
            "alt": alt,
        }
        for figure, caption, alt in figures
    ]
