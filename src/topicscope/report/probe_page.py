"""A probe's page, `report.html`: one file that needs no network, made from the folder of a result alone."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.records import dump_json, read_json, read_npz, select
from topicscope.report import tables
from topicscope.report.labels import PROFILE, RATIOS
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.probe_figures import block_matrix, coverage, head_map, ratio_figure, similarity_histogram
from topicscope.report.tables import MISSING, interval, number, ratio_column, significant, threshold_label

_WORDS_OF_A_TOPIC = 6


@dataclass(frozen=True, eq=False)
class ProbeRecord:
    """What a page is made from. record: result.json; heads: heads.csv; similarities: embedding_map.npz, or empty."""

    record: Mapping[str, Any]
    heads: pd.DataFrame
    similarities: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | str) -> "ProbeRecord":
        """Read a folder that `topicscope probe` wrote; no model is loaded.

        Raises:
            InputError: no result of a probe there.
        """
        folder = Path(folder)
        record = read_json(folder / "result.json")
        if not isinstance(record, dict) or record.get("kind") != "probe" or record.get("schema_version") != 1:
            raise InputError(
                "not a probe result this version can read",
                received=str(folder / "result.json"),
                expected={"kind": "probe", "schema_version": 1},
            )
        if not (folder / "heads.csv").is_file():
            raise InputError("file not found", received=str(folder / "heads.csv"), expected="the head table of a probe")
        heads = pd.read_csv(folder / "heads.csv")
        similarities = folder / "embedding_map.npz"
        return cls(record, heads, read_npz(similarities) if similarities.is_file() else {})


def render_probe(probe: ProbeRecord) -> str:
    """The page of one probe. All text in it is from outside (words, names, warnings) and is escaped.

    Equal records give equal pages.
    """
    record, heads = probe.record, probe.heads
    headline, model, manifest, coverage = record["headline"], record["model"], record["manifest"], record["coverage"]
    table = pd.DataFrame.from_records(record["table"])
    rows = [row for row in record["table"] if row["source"] == "measured"]
    paper = [row for row in record["table"] if row["source"] == "paper"]
    maps = head_charts(heads, threshold=headline["threshold"], name=model["name"])
    choices, data = head_panel(record, heads)
    circuits = record.get("circuits")
    return render_page(
        "probe.html.j2",
        charts=_charts(probe, table, maps),
        data={"heads-data": data},
        maps=maps,
        choices=choices,
        similarities=probe.similarities,
        name=model["name"],
        headline=headline["text"],
        verdict=verdict(headline, rows),
        cards=cards(headline, paper, model["model_type"]),
        warnings=cautions(record),
        attention=tables.attention_table(rows),
        control_table=tables.control_table(rows, record["controls"]),
        paper=tables.paper_table(paper),
        controls=len({row.get("control_seed") for row in record["controls"]}),
        heads=tables.heads_table(heads, headline["part"], headline["threshold"]),
        embeddings=tables.embedding_table(record["embeddings"]) if record["embeddings"] else None,
        circuits=tables.circuit_table(circuits, headline["threshold"]) if circuits else None,
        topics=tables.topics_table(record["topics"]) if record["topics"] else None,
        coherence=any("npmi" in topic for topic in record["topics"]),
        funnel=tables.funnel_table(coverage),
        pairs=tables.pairs_table(coverage["pairs"]) if coverage.get("pairs") else None,
        counts=tables.details("All counts", {k: v for k, v in coverage.items() if k != "pairs"}),
        ratios=[ratio for name, ratio in RATIOS.items() if any(number(row.get(name)) != MISSING for row in rows)],
        created=manifest["created"],
        command=manifest.get("command"),
        downloads=downloads(
            {
                "table.csv": table.to_csv(index=False),
                "heads.csv": heads.to_csv(index=False),
                "result.json": dump_json(record, indent=2) + "\n",
            }
        ),
        manifest=tables.manifest_tables(manifest, Model=model),
    )


def _charts(probe: ProbeRecord, table: pd.DataFrame, maps: list[Chart]) -> list[Chart]:
    """The ratios, the maps of heads, and what the record holds of embeddings and of the text."""
    record, headline, similarities = probe.record, probe.record["headline"], probe.similarities
    numeric = [c for c in map(str, table) if c.startswith(("threshold", "attention_", "control_"))]
    name = record["model"]["name"]
    said = f"Attention ratios of {name} by threshold with 95% CIs; the numbers are in the attention table."
    caption = "The ratio by threshold, with random weights and the paper beside it"
    figure = ratio_figure(table.astype(dict.fromkeys(numeric, float)))
    found = [Chart.of(figure, "ratios", caption, said), *maps]
    if similarities:
        said = (
            f"Matrix of the mean cosines of {len(similarities['words'])} words in the order of their "
            f"{len(similarities['topics'])} topics; orange blocks along the diagonal are topics whose words are alike."
        )
        caption = "Which word embeddings are alike: every word by its topic"
        found.append(Chart.of(block_matrix(similarities, "double")[1], "blocks", caption, said))
        halves = []
        for kind in ("same", "different"):
            counts, middle = similarities[kind], math.nan
            if counts.sum():  # the middle of the bar that holds the median
                bar = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
                middle = similarities["bounds"][bar : bar + 2].mean()
            halves.append(f"half of the {kind}-topic pairs are above {middle:.2f}")
        said, caption = (
            f"Histogram of cosines: {'; '.join(halves)}.",
            "Similarities of same-topic and of different-topic words",
        )
        found.append(Chart.of(similarity_histogram(similarities)[1], "similarities", caption, said))
    try:
        counted, figure = coverage(record["coverage"], part=headline["part"], threshold=headline["threshold"])
    except InputError:  # nothing was counted
        return found
    assert isinstance(counted, pd.DataFrame)
    said = "; ".join(f"{row['step']} {row['count']:,.0f}" for row in counted.to_dict(orient="records"))
    return [*found, Chart.of(figure, "coverage", "What was read of the text", f"Counts: {said}.")]


# ---- the answer in words

# Below these a result says little: half of the words, so many words of a topic, documents and pairs.
_LEAST_SHARE, _LEAST_WORDS, _LEAST_DOCUMENTS, _LEAST_PAIRS = 0.5, 3, 30, 100


def cautions(record: Mapping[str, Any]) -> list[str]:
    """What a reader must know first: the probe's warnings, then little text, few words, few pairs at the headline."""
    headline, coverage = record["headline"], record["coverage"]
    said = ["The run was interrupted: only what was finished is shown."] if record["interrupted"] else []
    said += map(str, record["warnings"])
    documents, alignment = headline["documents"], coverage.get("alignment", {})
    if documents < _LEAST_DOCUMENTS:
        said.append(f"Only {documents} documents were read: the interval rests on few independent pieces of text.")
    words, found = alignment.get("words"), alignment.get("found")
    if words and found is not None and found / words < _LEAST_SHARE:
        said.append(
            f"Only {found / words:.0%} of the words are one token of the model; the others were left out, and they may "
            "behave differently."
        )
    place = headline["part"], headline["threshold"]
    here = [r for r in coverage.get("pairs", []) if (r["part"], r["threshold"]) == place]
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


def verdict(headline: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """The verdict in plain words, or what the interval says; then what is left of the headline's ratio in distinct
    words at equal distances, where that is known and, in a causal part, not about another ratio.

    rows: the measured rows of result.json's table.
    """
    place = headline.get("part"), headline.get("threshold")
    same = headline.get("quantity") in (None, "attention_ratio")
    row = next((row for row in rows if same and (row["part"], row["threshold"]) == place), {})
    low, high, control = headline.get("low"), headline.get("high"), headline.get("control_high")
    distinct, error = row.get("attention_ratio_distinct"), row.get("attention_ratio_distinct_se")
    if headline.get("verdict") in _VERDICTS:
        said = _VERDICTS[headline["verdict"]]
    elif low is None or high is None or math.isnan(low) or math.isnan(high):
        said = "There is too little text for an error bar, so this is a number without a known precision."
    elif low > 1 and control is not None and control >= low:
        said = (
            "The whole interval lies above 1, but random weights reach into it: what is seen here need not come from "
            "anything the model learned."
        )
    elif low > 1 and distinct is not None and error is not None and distinct - 2 * error <= 1:
        said = (
            "The whole interval lies above 1, but not that of distinct words: repeats of one word may be the reason, "
            "not topics."
        )
    elif low > 1:
        said = "The whole interval lies above 1: this model looks more at words of the same topic."
    elif high < 1:
        said = "The whole interval lies below 1: this model looks less at words of the same topic."
    else:
        said = "The interval includes 1: this text does not show a difference. More text would narrow it."
    name = "attention_ratio_distinct_distance_matched"
    if number(row.get(name)) != MISSING:
        within = interval(row.get(f"{name}_low"), row.get(f"{name}_high"))
        said += (
            " Between different words only, with both kinds of pairs equally far apart, the ratio is "
            f"{number(row[name])}{'' if within == MISSING else f' (95% CI {within})'}."
        )
    return said


def cards(headline: Mapping[str, Any], paper: list[Mapping[str, Any]], model_type: str) -> list[dict[str, str]]:
    """The figures that belong beside each other: measured, random weights, the paper's row of the family or of BERT."""
    corrected = headline.get("quantity", "attention_ratio") != "attention_ratio"
    part = f"{headline['part']}, θ = {threshold_label(headline['threshold'])}"
    control = headline.get("control_attention_ratio")
    within = {end: interval(headline.get(f"{end}low"), headline.get(f"{end}high")) for end in ("", "control_")}
    below = {end: "no interval" if limits == MISSING else f"95% CI {limits}" for end, limits in within.items()}
    cards = [
        {
            "name": "This model" + (" (position-corrected)" if corrected else ""),
            "value": number(headline["attention_ratio"]),
            "below": below[""],
            "where": f"{part}, {headline['documents']:,} documents",
        },
        {
            "name": "The same model with random weights",
            "value": number(control, 4),
            "below": below["control_"],
            "where": "1 is expected" if control is not None else "not measured",
        },
    ]
    family = [row for row in paper if str(row["model"]).lower() == model_type]
    family = family or [row for row in paper if row["model"] == "BERT"]
    if family and headline["threshold"] is not None and headline["part"] == "encoder" and not corrected:
        row = min(family, key=lambda r: abs(math.log(r["threshold"] / headline["threshold"])))
        cards.append(
            {
                "name": f"{row['model']} in the paper",
                "value": number(row["attention_ratio"]),
                "below": "published value",
                "where": f"θ = {threshold_label(row['threshold'])}, all of Wikipedia",
            }
        )
    return cards


# ---- the map of heads and the panel of one head


def head_charts(
    heads: pd.DataFrame,
    *,
    threshold: float | None,
    name: str,
    prefix: str = "heads",
    limit: float | None = None,
    choosable: bool = True,
) -> list[Chart]:
    """One map for each part, at one threshold; limit: the ratio at which colors saturate, for maps to be compared;
    choosable: a click shows the head in the page's panel.

    heads: heads.csv.
    """
    charts = []
    for part in dict.fromkeys(heads["part"]):
        chosen = select(heads[heads["part"] == part], threshold)
        if chosen.empty:
            continue
        title = f"{name}: same-topic / different-topic attention"
        figure = head_map(heads, part=part, threshold=threshold, title=title, limit=limit)
        said = f"Map of {chosen['layer'].nunique()} layers by {chosen['head'].nunique()} heads of the {part}. "
        column = ratio_column(chosen)
        values = chosen[column].dropna()
        if len(values):
            top = chosen.nlargest(1, column).iloc[0]
            said += (
                f"Ratios from {number(values.min())} to {number(values.max())}, median {number(values.median())}; "
                f"the highest is layer {top['layer']:.0f}, head {top['head']:.0f}; "
                f"{(values > 1).sum()} of {len(values)} are above 1."
            )
        chosen_part = part if choosable else ""
        charts.append(Chart.of(figure, f"{prefix}-{part}", f"Every head of the {part}", said, chosen_part))
    return charts


_KEY = "{part}/{layer}/{head}"


def head_panel(
    record: Mapping[str, Any], heads: pd.DataFrame
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, Any]]:
    """The heads of each part by key and words, those with the highest ratio first; and what the page's script shows of
    single heads: numbers beside the median of their part, and example sentences.

    record: result.json; heads: heads.csv. Sentences are kept once; heads name theirs by its place.
    """
    panel = {name: f"ratio, {ratio.label}" for name, ratio in RATIOS.items()}
    panel |= {
        "mean_same": "mean attention × L/100, same topic",
        "mean_different": "mean attention × L/100, different topics",
        **PROFILE,
    }
    chosen = select(heads, record["headline"]["threshold"])
    names = [name for name in panel if name in chosen and bool(chosen[name].notna().any())]
    choices: dict[str, list[tuple[str, str]]] = {}
    medians, numbers = {}, dict[str, list[float | None]]()
    for part, of_part in chosen.groupby("part", sort=False):
        column = ratio_column(of_part)
        ordered = of_part.sort_values([column, "layer", "head"], ascending=[False, True, True], kind="stable")
        rows = ordered.to_dict(orient="records")
        words = "layer {layer}, head {head}: "
        choices[str(part)] = [(_KEY.format_map(row), words.format_map(row) + number(row[column])) for row in rows]
        medians[str(part)] = [significant(value) for value in of_part[names].median().tolist()]
        numbers |= {_KEY.format_map(row): [significant(float(row[name])) for name in names] for row in rows}
    top_words = {topic["topic"]: topic["words"][:_WORDS_OF_A_TOPIC] for topic in record["topics"]}
    sentences: dict[tuple[str, str], dict[str, Any]] = {}
    examples = {}
    for example in record.get("head_examples", []):
        sentence = example["document_id"], example["text"]
        topics = sorted({topic for word in example["words"] for topic in word["topics"]})
        if sentence not in sentences:
            sentences[sentence] = {
                "document": example["document_id"],
                "pieces": pieces(example["text"], example["words"]),
                "topics": [[topic, ", ".join(map(str, top_words.get(topic, ())))] for topic in topics],
            }
        pairs = [
            [pair["query_place"], pair["key_place"], pair["query"], pair["key"], significant(pair["attention"], 3)]
            for pair in example["pairs"]
        ]
        examples[_KEY.format_map(example)] = {"sentence": list(sentences).index(sentence), "pairs": pairs}
    data = {
        "labels": [panel[name] for name in names],
        "median": medians,
        "heads": numbers,
        "examples": examples,
        "sentences": list(sentences.values()),
    }
    return choices, data


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
