"""The layer × head map that one can ask: every head's numbers, and the sentence in which it looks most at its topic."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from topicscope.report.heatmaps import at_threshold, head_map, ratio_column
from topicscope.report.page import Chart, Picture, significant
from topicscope.report.plotly_charts import axes, heat_map
from topicscope.report.tables import count, number

# Columns of heads.csv that a head's profile shows, with the words for them.
PROFILE = (
    ("attention_ratio", "ratio, all pairs"),
    ("attention_ratio_distinct", "ratio, distinct words"),
    ("attention_ratio_position_corrected", "ratio, position-corrected"),
    ("mean_same", "mean attention × L/100, same topic"),
    ("mean_different", "mean attention × L/100, different topics"),
    ("same_topic_share", "attention to different words of the same topic (share)"),
    ("entropy", "entropy of its attention (nats)"),
    ("entropy_share", "entropy / its largest value (1 = spread evenly)"),
    ("first_token", "attention to the first token (sink)"),
    ("separators", "attention to other special tokens"),
    ("punctuation", "attention to punctuation"),
    ("itself", "attention to the word itself"),
    ("previous", "attention to the previous token"),
    ("next", "attention to the next token"),
    ("distance", "mean distance (tokens)"),
)
_WORDS_OF_A_TOPIC = 6


def head_charts(
    heads: pd.DataFrame,
    *,
    threshold: float | None,
    name: str,
    prefix: str = "heads",
    limit: float | None = None,
    choosable: bool = True,
) -> list[Chart]:
    """One map for each part, at one threshold; limit: |log₂ ratio| at which colours saturate, for maps to be compared;
    choosable: a click shows the head in the page's panel.

    heads: heads.csv.
    """
    charts = []
    for part in dict.fromkeys(heads["part"]):
        chosen = at_threshold(heads[heads["part"] == part], threshold)
        if chosen.empty:
            continue
        figure = head_map(
            heads, part=part, threshold=threshold, title=f"{name}: same-topic / different-topic attention"
        )
        picture = Picture.of(figure, f"Every head of the {part}", _summary(chosen, part))
        layers = int(chosen["layer"].max()) + 1
        charts.append(
            Chart(
                f"{prefix}-{part}",
                _spec(chosen, limit),
                picture,
                height=150 + min(28 * layers, 620),
                part=part if choosable else "",
            )
        )
    return charts


def saturation(heads: pd.DataFrame, threshold: float | None) -> float:
    """|log₂ ratio| that 98 % of the heads stay within, from 0.14 (a ratio of 1.1) to 4."""
    chosen = at_threshold(heads, threshold)
    values = chosen[ratio_column(chosen)].to_numpy(dtype=float)
    known = np.abs(np.log2(values[np.isfinite(values) & (values > 0)]))
    return float(np.clip(np.quantile(known, 0.98) if known.size else 0.0, math.log2(1.1), 4.0))


def _spec(chosen: pd.DataFrame, limit: float | None) -> dict[str, Any]:
    column = ratio_column(chosen)
    layers, numbers = int(chosen["layer"].max()) + 1, int(chosen["head"].max()) + 1
    z = np.full((layers, numbers), math.nan)
    text = [[""] * numbers for _ in range(layers)]
    hover = [[f"layer {i}, head {j}: not read" for j in range(numbers)] for i in range(layers)]
    for row in chosen.to_dict(orient="records"):
        i, j, value, error = int(row["layer"]), int(row["head"]), float(row[column]), float(row[f"{column}_se"])
        if value > 0:
            z[i, j] = math.log2(value)
        if math.isfinite(value):
            shown = f"{value:.2f}" if value < 99.5 else f"{value:.0f}"
            text[i][j] = shown if abs(value - 1) > 1.96 * error else f"({shown})"
        hover[i][j] = (
            f"<b>layer {i}, head {j}</b><br>ratio {number(value)} ± {number(error)}"
            f"<br>mean of same-topic pairs {number(row['mean_same'], 4)}, n = {count(row['pairs_same'])}"
            f"<br>mean of different-topic pairs {number(row['mean_different'], 4)}, n = {count(row['pairs_different'])}"
        )
    limit = saturation(chosen, float(chosen["threshold"].iloc[0])) if limit is None else limit
    # Marks close to 1 would run into each other on a bar that reaches far.
    far, near = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16), (1 / 2, 2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
    marks = [m for m in (far if limit > 1.3 else near) if abs(math.log2(m)) <= limit + 1e-9]
    bar = {"title": {"text": "ratio", "side": "top"}, "thickness": 12, "outlinewidth": 0}
    bar |= {"tickvals": [significant(math.log2(m)) for m in marks], "ticktext": [f"{m:.3g}" for m in marks]}
    trace = heat_map(z, hover="%{hovertext}", middle=0.0, limit=limit, hovertext=hover, colorbar=bar)
    trace |= {"text": text, "texttemplate": "%{text}", "xgap": 1, "ygap": 1}
    return {"data": [trace], "layout": axes(x="head", y="layer", upside_down=True, xaxis=_whole, yaxis=_whole)}


_whole = {"showgrid": False, "zeroline": False, "tickformat": "d"}


def _summary(chosen: pd.DataFrame, part: str) -> str:
    """The map in words, for those who cannot see it."""
    column = ratio_column(chosen)
    values = chosen[column].dropna()
    said = f"Map of {chosen['layer'].nunique()} layers by {chosen['head'].nunique()} heads of the {part}. "
    if len(values):
        top = chosen.nlargest(1, column).iloc[0]
        said += f"Ratios from {number(values.min())} to {number(values.max())}, median {number(values.median())}; "
        said += f"the highest is layer {top['layer']:.0f}, head {top['head']:.0f}; "
        said += f"{(values > 1).sum()} of {len(values)} are above 1."
    return said


def head_data(record: Mapping[str, Any], heads: pd.DataFrame) -> dict[str, Any]:
    """What the page's script shows of single heads: numbers beside the median of their part, and example sentences.

    record: result.json; heads: heads.csv. Sentences are kept once; heads name theirs by its place.
    """
    chosen = at_threshold(heads, record["headline"]["threshold"])
    columns = [(name, label) for name, label in PROFILE if name in chosen and bool(chosen[name].notna().any())]
    top_words = {topic["topic"]: topic["words"][:_WORDS_OF_A_TOPIC] for topic in record["topics"]}
    sentences: list[dict[str, Any]] = []
    place: dict[str, int] = {}
    examples = {}
    for example in record.get("head_examples", []):
        key = f"{example['document_id']}\0{example['text']}"
        if key not in place:
            place[key] = len(sentences)
            sentences.append(_sentence(example, top_words))
        pairs = [
            [pair["query_place"], pair["key_place"], pair["query"], pair["key"], significant(pair["attention"], 3)]
            for pair in example["pairs"]
        ]
        share = significant(example["same_topic_share"], 3)
        examples[_key(example)] = {"sentence": place[key], "pairs": pairs, "share": share}
    names = [name for name, _ in columns]
    parts = {
        str(part): [significant(value) for value in rows[names].median().tolist()]
        for part, rows in chosen.groupby("part", sort=False)
    }
    rows = {
        _key(row): [None if pd.isna(row[name]) else significant(float(row[name])) for name in names]
        for row in chosen.to_dict(orient="records")
    }
    return {
        "labels": [label for _, label in columns],
        "median": parts,
        "heads": rows,
        "examples": examples,
        "sentences": sentences,
    }


def head_choices(record: Mapping[str, Any], heads: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """For each part its heads by key and words, those with the highest ratio first."""
    chosen = at_threshold(heads, record["headline"]["threshold"])
    found: dict[str, list[tuple[str, str]]] = {}
    for part, rows in chosen.groupby("part", sort=False):
        column = ratio_column(rows)
        ordered = rows.sort_values([column, "layer", "head"], ascending=[False, True, True], kind="stable")
        found[str(part)] = [
            (_key(row), f"layer {row['layer']}, head {row['head']}: {number(row[column])}")
            for row in ordered.to_dict(orient="records")
        ]
    return found


def _key(row: Mapping[Any, Any]) -> str:
    return f"{row['part']}/{row['layer']}/{row['head']}"


def _sentence(example: Mapping[str, Any], top_words: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    topics = sorted({topic for word in example["words"] for topic in word["topics"]})
    return {
        "document": example["document_id"],
        "pieces": pieces(example["text"], example["words"]),
        "topics": [[topic, ", ".join(map(str, top_words.get(topic, ())))] for topic in topics],
    }


def pieces(text: str, words: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """The text cut at its words with topics: [text] between them, [text, place among `words`, topics] at each.

    Words are normalised and the text is what a tokenizer makes of it, so they are searched one after the other, whole
    words first; a word that is not found stands at the end of what was found before it, in brackets.
    """
    found: list[list[Any]] = []
    at = 0
    for place, word in enumerate(words):
        spelled = re.escape(word["word"])
        match = re.compile(rf"(?<!\w){spelled}(?!\w)", re.IGNORECASE).search(text, at)
        match = match or re.compile(spelled, re.IGNORECASE).search(text, at)
        if match is None:
            found.append([f" [{word['word']}]", place, word["topics"]])
            continue
        if match.start() > at:
            found.append([text[at : match.start()]])
        found.append([match.group(), place, word["topics"]])
        at = match.end()
    return [*found, [text[at:]]] if at < len(text) else found
