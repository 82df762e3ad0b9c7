"""Every control of a probe beside what was measured, each in a column of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from topicscope.report.heatmaps import threshold_label
from topicscope.report.tables import MISSING, Table, interval, number, with_error

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
