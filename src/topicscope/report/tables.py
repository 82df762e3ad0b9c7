"""Tables as plain data, built once: the page shows them as HTML, the terminal with rich, README as Markdown.

Numbers of a record become the words that a person reads; the names of the columns are those of `labels`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from topicscope.records import select
from topicscope.report import labels
from topicscope.report.labels import PART, RATIOS, THETA

MISSING = "–"
Row = Mapping[Any, Any]


@dataclass(frozen=True)
class Table:
    """A table: cells are ready text; the first `row_headers` cells of a row name it; `note` explains."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    row_headers: int = 1

    @classmethod
    def of(
        cls, caption: str, rows: Sequence[Mapping[str, str]], note: str, row_headers: int, optional: Iterable[str] = ()
    ) -> "Table":
        """A table of rows by column; optional: columns that are left out where no row has a value."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        for column in optional:
            if column in columns and all(row.get(column, MISSING) == MISSING for row in rows):
                columns.remove(column)
        return cls(caption, columns, [[row.get(c, MISSING) for c in columns] for row in rows], note, row_headers)

    def only(self, *columns: str) -> "Table":
        """The same with these columns alone, in their order; those that it has not are passed over."""
        places = [self.columns.index(column) for column in columns if column in self.columns]
        rows = [[row[place] for place in places] for row in self.rows]
        headers = sum(place < self.row_headers for place in places)
        return replace(self, columns=[self.columns[place] for place in places], rows=rows, row_headers=headers)

    def markdown(self) -> list[str]:
        """Lines of a Markdown table, without caption and note."""
        plain = [[cell.replace("\u00a0", " ") for cell in row] for row in self.rows]
        return [f"| {' | '.join(cells)} |" for cells in (self.columns, ["---"] * len(self.columns), *plain)]


def number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits after the point's leading zeros; a dash for None and NaN."""
    if pd.isna(value):
        return MISSING
    value = float(value)
    return f"{value:.{digits}g}" if abs(value) < 0.1 and value != 0 else f"{value:.{digits - 1}f}"


def significant(value: float, digits: int = 4) -> float | None:
    """A number rounded as coarsely as a 16-bit float has it; None for NaN and infinities."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def count(value: Any) -> str:
    """A count with thousands apart; averages over topic seeds are rounded."""
    return MISSING if pd.isna(value) else f"{float(value):,.0f}"


def percent(value: float | None) -> str:
    """A deviation as a signed percentage, a dash for None."""
    return MISSING if value is None else f"{100 * value:+.2f} %"


def with_error(row: Row, name: str) -> str:
    """Value ± standard error of one column: two digits of the error, the value as exact; spaces do not break."""
    value, error = row.get(name), row.get(f"{name}_se")
    if pd.isna(value) or pd.isna(error):
        return number(value)
    decimals = _decimals(error)
    return f"{float(value):.{decimals}f}\u00a0±\u00a0{float(error):.{decimals}f}"


def interval(low: Any, high: Any) -> str:
    """Two limits, to two digits of what lies between them."""
    if pd.isna(low) or pd.isna(high):
        return MISSING
    decimals = _decimals(high - low)
    return f"{float(low):.{decimals}f}\u00a0to\u00a0{float(high):.{decimals}f}"


def _decimals(size: float) -> int:
    """How many decimals show two digits of a size."""
    return min(max(1 - math.floor(math.log10(size)), 0), 7) if 0 < size < math.inf else 3


def threshold_label(threshold: float | None) -> str:
    """A threshold as people read it; "word list" where topics came from one."""
    return "word list" if threshold is None or math.isnan(threshold) else f"{threshold:g}"


_CORRECTED = "attention_ratio_position_corrected"


def ratio_column(table: pd.DataFrame) -> str:
    """The ratio that leads: the position-corrected one where it exists (causal parts), else `attention_ratio`."""
    return _CORRECTED if _CORRECTED in table and bool(table[_CORRECTED].notna().any()) else "attention_ratio"


def attention_table(rows: Sequence[Row]) -> Table:
    """Measured ratios by part and threshold; ratios and the spread over topic seeds only where there are any.

    rows: the measured rows of result.json's table.
    """
    cells = []
    for row in rows:
        leading = _CORRECTED if pd.notna(row.get(_CORRECTED)) else "attention_ratio"
        line = {PART: str(row["part"]), THETA: threshold_label(row["threshold"])}
        line |= {ratio.label: with_error(row, name) for name, ratio in RATIOS.items()}
        line[labels.TOPIC_SD] = number(row.get("attention_ratio_topic_sd"), 2)
        low, high = row.get(f"control_{leading}_low"), row.get(f"control_{leading}_high")
        line[labels.CONTROL_CI] = number(row.get(f"control_{leading}"), 4) if pd.isna(low) else interval(low, high)
        line[labels.PERMUTATION_P] = number(row.get("permutation_p"), 2)
        line[labels.VERDICT] = str(row.get("verdict") or MISSING).removeprefix("same-topic attention ")
        line[labels.SAME_PAIRS] = count(row.get("pairs_same"))
        line[labels.DIFFERENT_PAIRS] = count(row.get("pairs_different"))
        cells.append(line)
    note = (
        "± is one standard error, clustered by document. The verdict rests on topics shuffled over words of like "
        "frequency (two-sided p) and on the ratio of distinct words at matched distances beside that of random weights."
    )
    if any(pd.notna(row.get(_CORRECTED)) for row in rows):
        note += " For causal parts, the random weights stand beside the position-corrected ratio."
    caption = "Attention: same-topic mean divided by different-topic mean"
    return Table.of(caption, cells, note, 2, [labels.TOPIC_SD, *(ratio.label for ratio in RATIOS.values())])


# Beyond these, single initialisations are only in result.json.
_MOST_SEEDS = 6


def control_table(rows: Sequence[Row], controls: Sequence[Row]) -> Table:
    """Measured ratio, then one column a control: each random initialisation, their interval, shuffles, other ratios.

    rows: the measured rows of result.json's table; controls: its controls, one a part, threshold and seed.
    """
    seeds = list(dict.fromkeys(row["control_seed"] for row in controls))
    shown = seeds if len(seeds) <= _MOST_SEEDS else []
    cells = []
    for row in rows:
        leading = _CORRECTED if pd.notna(row.get(_CORRECTED)) else "attention_ratio"
        line = {PART: str(row["part"]), THETA: threshold_label(row["threshold"])}
        place = row["part"], row["threshold"]
        here = {c["control_seed"]: c for c in controls if (c["part"], c["threshold"]) == place}
        line["measured"] = with_error(row, leading)
        line |= {f"{labels.CONTROL}, seed {seed}": number(here.get(seed, {}).get(leading), 4) for seed in shown}
        line[labels.CONTROL_CI] = interval(row.get(f"control_{leading}_low"), row.get(f"control_{leading}_high"))
        line[labels.PERMUTATION_Z] = number(row.get("permutation_z"), 2)
        line[labels.PERMUTATION_P] = number(row.get("permutation_p"), 2)
        others = [name for name in RATIOS if name not in ("attention_ratio", _CORRECTED)]
        cells.append(line | {RATIOS[name].label: with_error(row, name) for name in others})
    note = (
        "Each control takes away one other reason for a ratio above 1. Random weights: no learning, so 1 is expected. "
        "Permutations: topics shuffled among words of like frequency: no link between words and topics; z far from 0 "
        "and a small p mean that shuffles do not give the measured preference. The last columns are measured ratios in "
        "which pairs of both kinds are equally far apart or equally frequent: a ratio that stays above 1 there is not "
        "owed to distance or frequency."
    )
    caption = "Controls: what else could explain the ratio"
    return Table.of(caption, cells, note, 2, [ratio.label for ratio in RATIOS.values()])


def paper_table(rows: Sequence[Row]) -> Table:
    """The paper's published ratios."""
    names = ("attention_ratio", "embedding_cosine_layer_ratio", "embedding_dot_layer_ratio")
    return Table(
        "The paper's figures: 100 topics on Wikipedia (Li, Li and Risteski, 2023)",
        ["model", THETA, "attention S/D", "cosine S/D", "dot product S/D"],
        [[str(r["model"]), threshold_label(r["threshold"])] + [number(r.get(name), 4) for name in names] for r in rows],
        "Published values, not measured here. They come from other models, text and topics, so compare them loosely.",
        2,
    )


_EMBEDDING_NUMBERS = (
    *("same", "different", "difference", "ratio", "z_banded", "num_words", "anisotropy"),
    "control_difference",
)


def embedding_table(rows: Sequence[Row]) -> Table:
    """S, D, S-D and what stands beside them by place, kind and threshold; a withheld ratio says why.

    Averages over topic seeds; where their verdicts differ, each is given.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["place"]), str(row["kind"]), threshold_label(row["threshold"])), []).append(row)
    cells = []
    for (place, kind, threshold), members in groups.items():
        mean = {
            name: None if any(pd.isna(m.get(name)) for m in members) else fmean(m[name] for m in members)
            for stem in _EMBEDDING_NUMBERS
            for name in (stem, f"{stem}_se")
        }
        withheld = [str(m["ratio_withheld"]) for m in members if pd.notna(m.get("ratio_withheld"))]
        more = f" ({len(withheld)} of {len(members)} topic seeds)" if len(members) > 1 else ""
        line = {labels.EMBEDDING: labels.EMBEDDINGS.get(place, place), labels.KIND: kind, THETA: threshold}
        line[labels.SAME], line[labels.DIFFERENT] = with_error(mean, "same"), with_error(mean, "different")
        line[labels.DIFFERENCE] = with_error(mean, "difference")
        line["any two words"] = number(mean["anisotropy"], 2)
        line[f"{labels.DIFFERENCE}, {labels.CONTROL}"] = number(mean["control_difference"], 2)
        line[labels.Z] = number(mean["z_banded"], 2)
        line[labels.QUOTIENT] = f"withheld: {withheld[0]}{more}" if withheld else with_error(mean, "ratio")
        line["words"] = count(mean["num_words"])
        verdicts = dict.fromkeys(str(m.get("verdict") or MISSING) for m in members)
        line[labels.VERDICT] = "; ".join(verdict.removeprefix("same-topic similarity ") for verdict in verdicts)
        cells.append(line)
    seeds = max(map(len, groups.values()), default=1)
    note = (
        "± is one standard error over words. Embedding layer: its output for a word at position 1. Any two words: "
        "similarity of random words of the text (anisotropy). z: "
        "S − D in standard deviations with topics shuffled among words of like frequency. Co-occurrence is no part of "
        "the model: vectors made of nothing but which words of the text stand near each other."
    )
    note += f" Averages over {seeds} topic models." if seeds > 1 else ""
    return Table.of("Embeddings: mean similarity of two different words", cells, note, 3)


def heads_table(heads: pd.DataFrame, part: str, threshold: float | None, number_of_rows: int = 10) -> Table:
    """The heads with the highest ratio of one part and threshold."""
    chosen = select(heads[heads["part"] == part], threshold)
    column = ratio_column(chosen)
    best = chosen.dropna(subset=[column]).nlargest(number_of_rows, column).to_dict(orient="records")
    kind = "" if column == "attention_ratio" else ", position-corrected"
    undefined = int(chosen[column].isna().sum())
    note = "The highest of many noisy numbers overstate a little: some of their lead is chance."
    return Table(
        f"The {len(best)} heads with the highest ratio ({part}, θ = {threshold_label(threshold)}{kind})",
        ["layer", "head", "ratio", RATIOS["attention_ratio_distinct"].label, "mean same", "mean different"],
        [
            [count(r["layer"]), count(r["head"])]
            + [with_error(r, name) for name in (column, "attention_ratio_distinct")]
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


# Section of the coverage, count, its words, the count that it is a part of; indented words: counts of what was lost.
_FUNNEL = (
    ("text", "documents", "documents in the text", ""),
    ("text", "skipped", "− skipped while reading", ""),
    ("text", "documents_kept", "documents with a unit that was read", "documents"),
    ("text", "units", "units (sentences or passages) in the text", ""),
    ("text", "dropped", "− units left out", ""),
    ("text", "units_kept", "units read", "units"),
    ("alignment", "tokens", "tokens read by the model", ""),
    ("alignment", "words", "words in the units read", ""),
    ("alignment", "lost", "− words lost", ""),
    ("alignment", "found", "words that are one token of the model", "words"),
)


def funnel_table(coverage: Row) -> Table:
    """From documents to words that the model's tokens cover, each loss under its reason."""
    rows: list[list[str]] = []
    for section, name, label, whole in _FUNNEL:
        counts = coverage.get(section, {})
        found, total = counts.get(name), counts.get(whole)
        if isinstance(found, Mapping):  # a reason that took nothing is no news
            rows.extend([f"{label}: {reason}", count(lost), MISSING] for reason, lost in found.items() if lost)
        elif found is not None:
            rows.append([label, count(found), f"{found / total:.1%}" if total else MISSING])
    return Table("What was read, and what was lost on the way", ["step", "count", "share"], rows)


def pairs_table(rows: Sequence[Row]) -> Table:
    """Pairs of every class by configuration, as the record has them."""
    cells = [{name.replace("_", " "): text for name, text in _flat(row, "")} for row in rows]
    return Table.of("Word pairs by class", cells, "", 1)


def details(caption: str, value: Any) -> Table:
    """Any nested record as name and value, so that nothing in it stays unseen."""
    return Table(caption, ["name", "value"], [[name, text] for name, text in _flat(value, "")])


def manifest_tables(manifest: Row, **first: Any) -> list[Table]:
    """How a result was made: what is its own by caption, then options, sources and environment."""
    parts = {name.capitalize(): manifest[name] for name in ("options", "sources", "environment")}
    return [details(name, part) for name, part in (first | parts).items()]


def _flat(value: Any, name: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{index}")
    elif isinstance(value, (list, tuple)):
        yield name, ", ".join(text for inner in value for _, text in _flat(inner, name))
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        yield name, f"{value:,}"
    else:
        yield name, MISSING if pd.isna(value) else str(value)


def circuit_table(rows: Sequence[Row], threshold: float | None) -> Table:
    """OV and QK of every layer at one threshold, with the embedding layer's output.

    rows: `circuits` of result.json.
    """
    chosen = [row for row in rows if row["threshold"] == threshold and row["place"] == "layer"]
    return Table(
        f"Circuits between words, θ = {threshold_label(threshold)}",
        [PART, "circuit", "layer", labels.SAME, labels.DIFFERENT, labels.DIFFERENCE, "z", "z in bands", "z turned"],
        [
            [row["part"], row["circuit"], str(row["layer"])]
            + [number(row[name]) for name in ("same", "different", "difference")]
            + [number(row[name], 2) for name in ("z", "z_banded", "z_turned")]
            for row in sorted(chosen, key=lambda row: (row["part"], row["circuit"], row["layer"]))
        ],
        "OV: sum over the heads of a layer; QK: their mean. z: the words' topics shuffled; in bands: among words about "
        "as frequent; turned: the two halves of the heads turned against each other at random. Heads one by one: "
        "circuits.csv.",
        3,
    )
