"""The page of a series of checkpoints: the answer, the curves, a table by checkpoint, and what was skipped."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.tables import MISSING, Table, number, with_error

_ALT = (
    "Over training steps: z of the embeddings, z of the OV circuit of each layer, and attention to words of the same "
    "topic over attention to words of other topics, with 95% CIs; the shaded band is the interval of the onset."
)


def render_series(record: Mapping[str, Any], rows: pd.DataFrame, figure: Figure | None) -> str:
    """The page.

    record: the document of series.json; rows: its table; figure: the curves, None where nothing was measured.
    """
    skipped = [c for c in record["checkpoints"] if c["status"] == "skipped"]
    missing = [f"{c['name']} was skipped: {str(c['reason']).splitlines()[0]}" for c in skipped]
    if record["counts"]["waiting"]:
        missing.append(
            f"{record['counts']['waiting']} checkpoints were not probed yet; the same command with --resume goes on."
        )
    return render_page(
        "series.html.j2",
        name=record["name"],
        verdict=record["verdict"],
        counts=record["counts"],
        checkpoints=len(record["checkpoints"]),
        missing=missing,
        charts=[] if figure is None else [Chart.of(figure, "curves", "Topic structure by training step", _ALT)],
        steps=_by_checkpoint(rows),
        layers=_by_layer(rows),
        command=record["command"],
        downloads=downloads({"series.csv": rows.to_csv(index=False)}),
    )


def _by_checkpoint(rows: pd.DataFrame) -> Table:
    """Embeddings and the attention of every part."""
    found = []
    for (step, name), of in rows.groupby(["step", "checkpoint"], sort=False):
        (embeddings,) = of[of["quantity"] == "embeddings"].to_dict(orient="records") or [{}]
        for attention in of[of["quantity"] == "attention"].to_dict(orient="records"):
            cells = [
                number(embeddings.get(column)) for column in ("same", "different", "difference", "ratio", "z_banded")
            ]
            cells += [str(attention["part"]), with_error(attention, "ratio"), number(attention.get("z_banded"))]
            found.append([str(name), f"{step:,}", *cells, str(attention["verdict"])])
    columns = ["checkpoint", "step", "S", "D", "S - D", "S / D", "z", "part", "attention", "z", "verdict"]
    note = (
        "S, D: mean cosine of the embeddings of words of one topic, and of two. Attention: same topic over different "
        "topics, ± standard error, position-corrected where the part is causal. z: topics shuffled among words of like "
        "frequency."
    )
    return Table("Checkpoints", columns, found, note)


def _by_layer(rows: pd.DataFrame) -> Table:
    """z of every layer's OV circuit."""
    ov = rows[rows["quantity"] == "ov"]
    layers = ov[["part", "layer"]].drop_duplicates().to_records(index=False).tolist()
    found = []
    for (step, name), of in ov.groupby(["step", "checkpoint"], sort=False):
        values = {(row["part"], row["layer"]): number(row.get("z_banded")) for row in of.to_dict(orient="records")}
        found.append([str(name), f"{step:,}", *(values.get(layer, MISSING) for layer in layers)])
    several = len({part for part, _ in layers}) > 1
    columns = [f"{part} {layer:.0f}" if several else f"layer {layer:.0f}" for part, layer in layers]
    note = "z of S - D of the OV circuit W_O W_V, from embeddings to predictions, summed over the heads of a layer."
    return Table("OV circuits", ["checkpoint", "step", *columns], found, note)
