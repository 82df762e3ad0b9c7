"""What `topicscope probe` prints: the answer, the measured tables, the paper's rows and the warnings."""

import math

import pandas as pd

from topicscope.cli.output import print_lines, print_table
from topicscope.probing.results import ProbeResult


def show(result: ProbeResult, folder: str) -> None:
    """The answer, the measured table, the paper's rows and the warnings, on stdout."""
    print_lines([str(result), ""])
    table = result.table()
    measured = table[table["source"] == "measured"]
    _show_attention(measured)
    _show_verdicts(measured)
    if result.costs:
        seconds = "{collecting:.1f} s to collect word pairs, {shuffling:.1f} s to shuffle".format(**result.costs)
        print_lines([f"shuffles cost {seconds}"])
    _show_embeddings(result.embeddings)
    paper = table[table["source"] == "paper"]
    print_table(
        "The paper's table: 100 topics, all of Wikipedia (Li, Li & Risteski 2023)",
        ["model", "θ", "attention", "cosine S/D", "dot S/D"],
        [
            [row["model"], _number(row["threshold"]), f"{row['attention_ratio']:.3f}"]
            + [f"{row[f'embedding_{kind}_layer_ratio']:.3f}" for kind in ("cosine", "dot")]
            for _, row in paper.iterrows()
        ],
    )
    print_lines([f"warning: {warning}" for warning in result.warnings])
    print_lines([f"report: {folder}/report.html", f"result: {folder}/result.json"])


def _show_attention(measured: pd.DataFrame) -> None:
    """One row per part and threshold; columns that have nothing to say are left out to fit 80 characters."""
    parts = list(dict.fromkeys(measured["part"]))
    causal = bool(measured["attention_ratio_position_corrected"].notna().any())
    seeds = bool(measured["attention_ratio_topic_sd"].notna().any())
    columns = {
        "part": [*measured["part"]] if len(parts) > 1 else None,
        "θ": [_number(value) for value in measured["threshold"]],
        "all pairs": _with_errors(measured, "attention_ratio"),
        "distinct": _with_errors(measured, "attention_ratio_distinct"),
        "distance": _with_errors(measured, "attention_ratio_distance_matched"),
        "position": _with_errors(measured, "attention_ratio_position_corrected") if causal else None,
        "seed sd": [_number(value, 2) for value in measured["attention_ratio_topic_sd"]] if seeds else None,
        "random": [_control_interval(row) for _, row in measured.iterrows()],
    }
    shown = {name: cells for name, cells in columns.items() if cells is not None}
    pairs = ", ".join(f"{row['pairs_same']:.0f}/{row['pairs_different']:.0f}" for _, row in measured.iterrows())
    notes = [
        "± standard error, clustered by document; distinct: two different words; distance: both classes reweighted to",
        "the same distances;",
        "position: rows corrected for their length;" if causal else "",
        "seed sd: spread over topic models;" if seeds else "",
        f"random: 95 % interval with random weights; same/different pairs: {pairs}",
    ]
    where = f" ({parts[0]})" if len(parts) == 1 else ""
    title = f"Attention{where}: mean over same-topic pairs / mean over different-topic pairs"
    print_table(title, list(shown), list(zip(*shown.values(), strict=True)), " ".join(note for note in notes if note))


def _show_verdicts(measured: pd.DataFrame) -> None:
    """The ratios of different words that leave least to other reasons, the shuffles, and the verdict."""
    parts = list(dict.fromkeys(measured["part"]))
    columns = {
        "part": [*measured["part"]] if len(parts) > 1 else None,
        "θ": [_number(value) for value in measured["threshold"]],
        "+distance": _with_errors(measured, "attention_ratio_distinct_distance_matched"),
        "+frequency": _with_errors(measured, "attention_ratio_distinct_frequency_matched"),
        "p": [_number(value, 2) for value in measured["permutation_p"]],
        "verdict": [*measured["verdict"]],
    }
    shown = {name: cells for name, cells in columns.items() if cells is not None}
    print_table(
        "Verdicts, on distinct words",
        list(shown),
        list(zip(*shown.values(), strict=True)),
        "+distance, +frequency: the two classes also matched by distance, by the frequency of both words; p: topics "
        "shuffled over words of like frequency; the verdict needs p < .05 and +distance beyond random weights",
    )


def _show_embeddings(embeddings: pd.DataFrame) -> None:
    """Cosine at every place, and the dot product of the model's own vectors; averages over topic seeds."""
    if embeddings.empty:
        return
    own = embeddings["place"].isin(("raw", "layer"))
    shown = embeddings[own | (embeddings["kind"] == "cosine")]
    rows = []
    for (place, kind, _), seeds in shown.groupby(["place", "kind", "threshold"], sort=False, dropna=False):
        mean = seeds.mean(numeric_only=True, skipna=False)
        names = ("threshold", "same", "different", "difference", "ratio", "z_banded")
        numbers = [_number(float(mean[name]), 3) for name in names]
        verdicts = dict.fromkeys(verdict.removeprefix("same-topic similarity ") for verdict in seeds["verdict"])
        rows.append([place if kind == "cosine" else f"{place} ({kind})", *numbers, "; ".join(verdicts)])
    print_table(
        "Embeddings: mean similarity of same-topic (S) and different-topic (D) words",
        ["place", "θ", "S", "D", "S-D", "S/D", "z", "verdict"],
        rows,
        "cosine, or the dot product where it says so; layer: embedding layer's output, every word at position 1 "
        "(layer_first: 0); cooccurrence: no model, which words stand near each other; z: topics shuffled over words of "
        "like frequency; the verdict needs p < .05 and S-D beyond random weights; S/D is withheld (-) where D is "
        "within two standard errors of 0",
        unbroken=["place"],
    )


def _with_errors(rows: pd.DataFrame, name: str) -> list[str]:
    pairs = zip(rows[name], rows[f"{name}_se"], strict=True)
    return ["-" if math.isnan(value) else f"{value:.3f} ±{error:.3f}" for value, error in pairs]


def _control_interval(row: pd.Series) -> str:
    """With the position correction for causal parts, whose plain ratio is not 1 even at random."""
    corrected = not math.isnan(row["attention_ratio_position_corrected"])
    name = "control_attention_ratio" + ("_position_corrected" if corrected else "")
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if math.isnan(low) else f"{low:.3f}-{high:.3f}"


def _number(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}g}"
