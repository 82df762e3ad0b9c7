"""The tables of a probe's page: numbers of a record turned into words that a person reads.

Every control of a probe beside what was measured, each in a column of its own.

The table of circuits on a probe's page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pandas as pd

from topicscope.report.heatmaps import at_threshold, ratio_column, threshold_label

MISSING = "–"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of the page: cells are ready text; the first `row_headers` cells of a row name it; `note` explains."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    row_headers: int = 1


def number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits after the point's leading zeros; a dash for None and NaN."""
    if _missing(value):
        return MISSING
    value = float(value)
    return f"{value:.{digits}g}" if abs(value) < 0.1 and value != 0 else f"{value:.{digits - 1}f}"


def count(value: Any) -> str:
    """A count with thousands apart; averages over topic seeds are rounded."""
    return MISSING if _missing(value) else f"{float(value):,.0f}"


def with_error(row: Row, name: str) -> str:
    """Value ± standard error of one column, with spaces that do not break."""
    value, error = row.get(name), row.get(f"{name}_se")
    if error is None or _missing(value) or _missing(error):
        return number(value)
    value, error = float(value or 0), float(error)
    # A value without the decimals of its error ("1.00 ± 0.00005") would hide what the error is about.
    if 0 < error < 0.005 and abs(value) >= 0.1:
        decimals = 1 - math.floor(math.log10(error))
        return f"{value:.{decimals}f}\u00a0±\u00a0{error:.{decimals}f}"
    return f"{number(value)}\u00a0±\u00a0{error:.2g}"


def interval(low: Any, high: Any, digits: int = 4) -> str:
    """Two limits, with more digits where they would read the same."""
    if _missing(low) or _missing(high):
        return MISSING
    while digits < 7 and number(low, digits) == number(high, digits) and low != high:
        digits += 1
    return f"{number(low, digits)}\u00a0to\u00a0{number(high, digits)}"


_CONTROLLED = {
    "attention_ratio_distinct": "distinct words",
    "attention_ratio_distance_matched": "distance-matched",
    "attention_ratio_distinct_distance_matched": "distinct, distance-matched",
    "attention_ratio_distinct_frequency_matched": "distinct, frequency-matched",
}


def attention_table(rows: Sequence[Row]) -> Table:
    """Measured ratios by part and threshold; position-corrected and topic-seed columns only where there are any."""
    causal = any(not _missing(r.get("attention_ratio_position_corrected")) for r in rows)
    seeds = any(not _missing(r.get("attention_ratio_topic_sd")) for r in rows)
    columns = ["part", "θ", "all pairs", *_CONTROLLED.values()]
    columns += ["position-corrected"] * causal + ["sd over topic seeds"] * seeds
    columns += ["random weights (95 %)", "shuffled topics, p", "verdict", "same-topic pairs", "different-topic pairs"]
    cells = []
    for row in rows:
        corrected = not _missing(row.get("attention_ratio_position_corrected"))
        control = "control_attention_ratio_position_corrected" if corrected else "control_attention_ratio"
        line = [str(row["part"]), threshold_label(row["threshold"])]
        line += [with_error(row, name) for name in ("attention_ratio", *_CONTROLLED)]
        if causal:
            line.append(with_error(row, "attention_ratio_position_corrected"))
        if seeds:
            line.append(number(row.get("attention_ratio_topic_sd"), 2))
        low, high = row.get(f"{control}_low"), row.get(f"{control}_high")
        line.append(number(row.get(control), 4) if _missing(low) else interval(low, high))
        line.append(number(row.get("permutation_p"), 2))
        line.append(str(row.get("verdict") or MISSING).removeprefix("same-topic attention "))
        cells.append([*line, count(row.get("pairs_same")), count(row.get("pairs_different"))])
    note = (
        "± is one standard error, clustered by document. The verdict rests on topics shuffled over words of like "
        "frequency (two-sided p) and on the ratio of distinct words at matched distances beside that of random weights."
    )
    if causal:
        note += " For causal parts, the random weights stand beside the position-corrected ratio."
    return Table("Attention: same-topic mean divided by different-topic mean", columns, cells, note, 2)


def paper_table(rows: Sequence[Row]) -> Table:
    """The paper's published ratios."""
    names = ("attention_ratio", "embedding_cosine_layer_ratio", "embedding_dot_layer_ratio")
    return Table(
        "The paper's figures: 100 topics on Wikipedia (Li, Li and Risteski, 2023)",
        ["model", "θ", "attention S/D", "cosine S/D", "dot product S/D"],
        [[str(r["model"]), threshold_label(r["threshold"])] + [number(r.get(name), 4) for name in names] for r in rows],
        "Published values, not measured here. They come from other models, text and topics, so compare them loosely.",
        2,
    )


def embedding_table(rows: Sequence[Row]) -> Table:
    """S, D, S-D and what stands beside them by place, kind and threshold; a withheld ratio says why.

    Averages over topic seeds; where their verdicts differ, each is given.
    """
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        threshold = math.nan if row["threshold"] is None else float(row["threshold"])
        # NaN is no key (it equals nothing); thresholds are positive, so -1 stands for the word list.
        key = (str(row["place"]), str(row["kind"]), -1.0 if math.isnan(threshold) else threshold)
        groups.setdefault(key, []).append(row)
    cells = []
    for (place, kind, threshold), members in groups.items():
        mean = {
            name: None if any(_missing(m.get(name)) for m in members) else fmean(m[name] for m in members)
            for stem in _EMBEDDING_NUMBERS
            for name in (stem, f"{stem}_se")
        }
        withheld = [str(m["ratio_withheld"]) for m in members if m.get("ratio_withheld")]
        more = f" ({len(withheld)} of {len(members)} topic seeds)" if len(members) > 1 else ""
        ratio = f"withheld: {withheld[0]}{more}" if withheld else with_error(mean, "ratio")
        line = [_PLACES.get(place, place), kind, threshold_label(None if threshold < 0 else threshold)]
        line += [with_error(mean, name) for name in ("same", "different", "difference")]
        verdicts = "; ".join(dict.fromkeys(str(m.get("verdict") or MISSING) for m in members))
        beside = [number(mean[name], 2) for name in ("anisotropy", "control_difference", "z_banded")]
        cells.append([*line, *beside, ratio, count(mean["num_words"]), verdicts])
    seeds = max(map(len, groups.values()), default=1)
    return Table(
        "Embeddings: mean similarity of two different words",
        [
            *("embedding", "kind", "θ", "S (same topic)", "D (different)", "S − D"),
            *("any two words", "S − D, random weights", "z", "S/D", "words", "verdict"),
        ],
        cells,
        "± is one standard error over words. Any two words: similarity of random words of the text (anisotropy). z: "
        "S − D in standard deviations with topics shuffled among words of like frequency. Co-occurrence is no part of "
        "the model: vectors made of nothing but which words of the text stand near each other."
        + (f" Averages over {seeds} topic models." if seeds > 1 else ""),
        3,
    )


_EMBEDDING_NUMBERS = (
    *("same", "different", "difference", "ratio", "z_banded", "num_words", "anisotropy"),
    "control_difference",
)
_PLACES = {
    "raw": "word vectors alone",
    "layer": "embedding layer's output",
    "layer_first": "the same at position 0",
    "cooccurrence": "co-occurrence in the text",
}


def heads_table(heads: pd.DataFrame, part: str, threshold: float | None, number_of_rows: int = 10) -> Table:
    """The heads with the highest ratio of one part and threshold."""
    chosen = at_threshold(heads[heads["part"] == part], threshold)
    column = ratio_column(chosen)
    best = chosen.dropna(subset=[column]).nlargest(number_of_rows, column).to_dict(orient="records")
    kind = "" if column == "attention_ratio" else ", position-corrected"
    undefined = int(chosen[column].isna().sum())
    note = "The highest of many noisy numbers overstate a little: some of their lead is chance."
    return Table(
        f"The {len(best)} heads with the highest ratio ({part}, θ = {threshold_label(threshold)}{kind})",
        ["layer", "head", "ratio", "distinct words", "mean same", "mean different"],
        [
            [count(r["layer"]), count(r["head"])]
            + [with_error({str(k): v for k, v in r.items()}, name) for name in (column, "attention_ratio_distinct")]
            + [number(r["mean_same"], 4), number(r["mean_different"], 4)]
            for r in best
        ],
        note + (f" {undefined} heads have no ratio." if undefined else ""),
        2,
    )


def topics_table(topics: Sequence[Row]) -> Table:
    """Top words of every topic, and how coherent they are where the record says it."""
    known = any("npmi" in t for t in topics)
    rows = [
        [str(t["topic"]), *([number(t.get("npmi"), 2)] if known else []), ", ".join(map(str, t["words"]))]
        for t in topics
    ]
    columns = ["topic", *(["coherence"] if known else []), "words"]
    return Table("Topics of the first topic model and their most likely words", columns, rows)


def funnel_table(coverage: Row) -> Table:
    """From documents to words that the model's tokens cover, each loss under its reason."""
    rows: list[list[str]] = []

    def step(label: str, section: str, name: str, whole: str | None = None) -> None:
        counts = coverage.get(section, {})
        if name in counts:
            total = counts.get(whole) if whole else None
            share = f"{counts[name] / total:.1%}" if total else MISSING
            rows.append([label, count(counts[name]), share])

    def losses(section: str, name: str, label: str) -> None:
        # A reason that took nothing is no news.
        found = coverage.get(section, {}).get(name, {})
        rows.extend([f"− {label}: {reason}", count(lost), MISSING] for reason, lost in found.items() if lost)

    step("documents in the text", "text", "documents")
    losses("text", "skipped", "skipped while reading")
    step("documents with a unit that was read", "text", "documents_kept", "documents")
    step("units (sentences or passages) in the text", "text", "units")
    losses("text", "dropped", "units left out")
    step("units read", "text", "units_kept", "units")
    step("tokens read by the model", "alignment", "tokens")
    step("words in the units read", "alignment", "words")
    losses("alignment", "lost", "words lost")
    step("words that are one token of the model", "alignment", "found", "words")
    return Table("What was read, and what was lost on the way", ["step", "count", "share"], rows)


def pairs_table(rows: Sequence[Row]) -> Table | None:
    """Pairs of every class by configuration, as the record has them; None without any."""
    if not rows:
        return None
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_plain(row.get(name)) for name in columns] for row in rows]
    return Table("Word pairs by class", [name.replace("_", " ") for name in columns], cells)


def details(caption: str, value: Any) -> Table:
    """Any nested record as name and value, so that nothing in it stays unseen."""
    return Table(caption, ["name", "value"], [[name, text] for name, text in _flat(value, "")])


def _flat(value: Any, name: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{index}")
    elif isinstance(value, (list, tuple)):
        yield name, ", ".join(map(_plain, value))
    else:
        yield name, _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return MISSING if _missing(value) else str(value)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


# Beyond these, single initialisations are only in result.json.
_MOST_SEEDS = 6


def control_table(rows: Sequence[Mapping[str, Any]], controls: Sequence[Mapping[str, Any]]) -> Table:
    """Measured ratio, then one column a control: each random initialisation, their interval, shuffles, matching.

    rows: the measured rows of result.json's table; controls: its controls, one a part, threshold and seed.
    """
    seeds = list(dict.fromkeys(row["control_seed"] for row in controls))
    shown = seeds if len(seeds) <= _MOST_SEEDS else []
    sinks = any(row.get("attention_ratio_sinks_excluded") is not None for row in rows)
    columns = ["part", "θ", "measured", *(f"random weights, seed {seed}" for seed in shown)]
    columns += ["random weights, 95 % interval", "topics shuffled: z", "topics shuffled: p"]
    columns += ["same distances", "same frequencies, distinct words", "distinct words, same distances"]
    columns += ["without sinks"] * sinks
    cells = []
    for row in rows:
        corrected = row.get("attention_ratio_position_corrected") is not None
        name = "attention_ratio_position_corrected" if corrected else "attention_ratio"
        here = {
            c["control_seed"]: c for c in controls if (c["part"], c["threshold"]) == (row["part"], row["threshold"])
        }
        line = [str(row["part"]), threshold_label(row["threshold"]), with_error(row, name)]
        line += [number(here[seed].get(name), 4) if seed in here else MISSING for seed in shown]
        line.append(interval(row.get(f"control_{name}_low"), row.get(f"control_{name}_high")))
        line += [number(row.get("permutation_z"), 2), number(row.get("permutation_p"), 2)]
        line += [with_error(row, f"attention_ratio_{control}") for control in _MATCHED]
        line += [with_error(row, "attention_ratio_sinks_excluded")] * sinks
        cells.append(line)
    note = (
        "Each control takes away one other reason for a ratio above 1. Random weights: no learning, so 1 is expected. "
        "Topics shuffled: no link between words and topics; z far from 0 and a small p mean that shuffles do not give "
        "the measured preference. The last columns are measured ratios in which pairs of both kinds are equally far "
        "apart or equally frequent: a ratio that stays above 1 there is not owed to distance or frequency."
    )
    return Table("Controls: what else could explain the ratio", columns, cells, note, 2)


_MATCHED = ("distance_matched", "distinct_frequency_matched", "distinct_distance_matched")


def circuit_table(rows: Sequence[Mapping[str, Any]], threshold: float | None) -> Table | None:
    """OV and QK of every layer at one threshold, with the embedding layer's output; None without such rows.

    rows: `circuits` of result.json.
    """
    chosen = [row for row in rows if row["threshold"] == threshold and row["place"] == "layer"]
    cells = []
    for row in chosen:
        z = [number(row[name], 2) for name in ("z", "z_banded", "z_turned")]
        means = [number(row[name]) for name in ("same", "different", "difference")]
        cells.append([row["part"], row["circuit"], str(row["layer"]), *means, *z])
    if not cells:
        return None
    return Table(
        f"Circuits between words, θ = {threshold_label(threshold)}",
        ["part", "circuit", "layer", "S (same topic)", "D (different)", "S − D", "z", "z in bands", "z turned"],
        sorted(cells, key=lambda row: (row[0], row[1], int(row[2]))),
        "OV: sum over the heads of a layer; QK: their mean. z: the words' topics shuffled; in bands: among words about "
        "as frequent; turned: the two halves of the heads turned against each other at random. Heads one by one: "
        "circuits.csv.",
        3,
    )
