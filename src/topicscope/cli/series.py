"""`topicscope probe --checkpoints`: a curve over the checkpoints of a training run."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from topicscope.cli.output import ProgressStyle, print_json, print_lines, print_table, show_progress
from topicscope.cli.places import going_on
from topicscope.monitoring import PAGE, RECORD, CheckpointSeries, probe_checkpoints
from topicscope.text import Corpus

INTERRUPTED = 130


def probe_series(
    checkpoints: str, corpus: Corpus, options: Mapping[str, Any], *, json: bool, progress: ProgressStyle
) -> int:
    """Probe, print, and return the exit code: 0 all done (skipped ones are named), 130 interrupted."""
    with show_progress(progress) as shown:
        series = probe_checkpoints(checkpoints, corpus, progress=shown, **options)
    if json:
        print_json(series.to_dict())
    else:
        show(series, str(options["out"]))
        if series.interrupted:
            print_lines([going_on(options["out"])])
    return INTERRUPTED if series.interrupted else 0


def show(series: CheckpointSeries, folder: str) -> None:
    """The answer, a line for each checkpoint, and what was skipped."""
    print_lines([str(series), ""])
    rows = []
    for name, found in series.rows.groupby("checkpoint", sort=False):
        embeddings = found[found["quantity"] == "embeddings"].iloc[:1]
        attention = found[found["quantity"] == "attention"].iloc[:1]
        ov = found[found["quantity"] == "ov"].sort_values("z").iloc[-1:]
        cells = [_cell(embeddings, "difference", ".2g"), _cell(embeddings, "ratio", ".2f"), _z(embeddings)]
        cells += [_cell(ov, "difference", ".1g"), _z(ov)]
        cells += [f"{_cell(attention, 'ratio', '.3f')} ±{_cell(attention, 'ratio_se', '.3f')}", _z(attention)]
        rows.append([name, *cells])
    print_table(
        "Topic structure by checkpoint",
        ["checkpoint", "S-D", "S/D", "z", "OV S-D", "z", "attention", "z"],
        rows,
        "S, D: mean cosine of same-topic and different-topic words; OV: the layer with the largest z; attention: "
        "same/different, of the first part (position-corrected where it is causal); z: topics shuffled over words, of "
        "like frequency where there are enough",
        unbroken=["checkpoint", "S-D", "S/D", "z", "OV S-D", "attention"],
    )
    for checkpoint in series.checkpoints:
        if checkpoint["status"] == "skipped":
            print_lines([f"skipped: {checkpoint['name']}: {checkpoint['reason']}"])
    print_lines([f"report: {folder}/{PAGE}", f"result: {folder}/{RECORD}"])


def _cell(rows: pd.DataFrame, name: str, form: str) -> str:
    value = float(rows[name].iloc[0]) if len(rows) else math.nan
    return "-" if math.isnan(value) else f"{value:{form}}"


def _z(rows: pd.DataFrame) -> str:
    banded = _cell(rows, "z_banded", ".1f")
    return _cell(rows, "z", ".1f") if banded == "-" else banded
