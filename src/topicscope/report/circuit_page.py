"""The table of circuits on a probe's page."""

from collections.abc import Mapping, Sequence
from typing import Any

from topicscope.report.heatmaps import threshold_label
from topicscope.report.tables import Table, number


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
