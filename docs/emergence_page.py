"""Write the tables and pictures of docs/emergence.md from runs of examples/emergence.py.

    python docs/emergence_page.py RUN [RUN ...] [--series SERIES]

The first run gives the pictures and, with `laboratory/` in it, the one-layer model; the others are further seeds.
SERIES: a folder that `topicscope probe --checkpoints RUN/models` wrote. What is missing keeps its place on the page.
"""

import argparse
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from models_page import table  # noqa: E402 - only found from here on

from topicscope.monitoring import CheckpointSeries, MonitorHistory, Onset, find_stages, onset  # noqa: E402
from topicscope.records import RunRecord, read_json  # noqa: E402

PAGE, IMAGES = ROOT / "docs" / "emergence.md", ROOT / "docs" / "images"
RUNS = (
    "seed", "steps", "loss, first and last", "embeddings, plain shuffles", "embeddings", "first OV circuit",
    "first attention", "attention later than embeddings",
)  # fmt: skip
CURVE = ("step", "embeddings S - D", "S / D", "z, plain", "z", "largest OV z", "attention S / D, each layer", "z")
LAYERS = ("layer", "attention S / D", "different words only", "z, plain", "z", "OV S - D", "z, plain", "z")
SERIES = ("step", "embeddings S - D", "z", "largest OV z", "attention S / D", "p, z of shuffles")
SHOWN = (0, 16, 32, 64, 128, 256, 512, 1024, 1850, 2896)


def when(found: Onset) -> str:
    """An onset with its interval."""
    if math.isnan(found.step):
        return f"not yet, z {found.z:.1f}"
    where = "" if found.layer is None else f", layer {found.layer}"
    high = f"{found.high:,.0f}" if math.isfinite(found.high) else "…"
    return f"{found.step:,.0f} [{found.low:,.0f}, {high}]{where}"


def run_row(folder: Path) -> list[str]:
    """One run: losses, and when embeddings, OV circuits and attention became structured."""
    history, said = MonitorHistory.load(folder), read_json(folder / "emergence.json")
    stages = find_stages(history)
    cosine = history.embeddings[history.embeddings["kind"] == "cosine"]
    plain = onset(cosine.assign(z_banded=math.nan), "", quantity="embeddings")
    ratio, low, high = stages.lag()
    if math.isnan(ratio):
        lag = f"at least {low:.1f} times" if math.isfinite(low) and low > 1 else "not known"
    else:
        lag = f"{ratio:.1f} times [{low:.1f}, {high:.1f}]"
    losses = f"{said['loss_first']:.2f}, {said['loss_last']:.2f}"
    cells = [when(plain), *(when(stages.first(name)) for name in ("embeddings", "ov", "attention"))]
    return [str(said["seed"]), f"{said['steps']:,}", losses, *cells, lag]


def curve_rows(history: MonitorHistory) -> list[list[str]]:
    """Some of the measurements."""
    steps = history.measurements["step"]
    shown = [step for step in steps if step in SHOWN or step == steps.max()]
    rows = []
    for step in shown:
        embedding = history.embeddings.query(f"step == {step} and kind == 'cosine'").iloc[0]
        layers = history.layers[history.layers["step"] == step].sort_values("layer")
        ratios = ", ".join(with_error(row, "attention_ratio") for row in layers.to_dict(orient="records"))
        zs = ", ".join(f"{z:.1f}" for z in layers["attention_z_banded"])
        best = layers.loc[layers["ov_z_banded"].idxmax()]
        row = [f"{step:,}", f"{embedding['difference']:.4f}", number(embedding["ratio"]), f"{embedding['z']:.1f}"]
        row += [f"{embedding['z_banded']:.1f}", f"{best['ov_z_banded']:.1f} (layer {best['layer']:.0f})", ratios, zs]
        rows.append(row)
    return rows


def layer_rows(history: MonitorHistory) -> list[list[str]]:
    """Every layer at the last measurement; ± is the standard error, clustered by document."""
    last = history.layers[history.layers["step"] == history.layers["step"].max()].sort_values("layer")
    rows = []
    for row in last.to_dict(orient="records"):
        cells = [str(row["layer"]), with_error(row, "attention_ratio"), with_error(row, "attention_ratio_distinct")]
        cells += [f"{row['attention_z']:.1f}", f"{row['attention_z_banded']:.1f}", f"{row['ov_difference']:.2g}"]
        rows.append([*cells, f"{row['ov_z']:.1f}", f"{row['ov_z_banded']:.1f}"])
    return rows


def series_rows(series: CheckpointSeries) -> list[list[str]]:
    """Every checkpoint, probed with more text than a monitor reads."""
    rows = []
    for step, found in series.rows.groupby("step"):
        kinds = {str(kind): of for kind, of in found.groupby("quantity")}
        embedding, attention = kinds["embeddings"].iloc[0], kinds["attention"].iloc[0]
        best = kinds["ov"].loc[kinds["ov"]["z_banded"].idxmax()]
        row = [f"{step:,}", f"{embedding['difference']:.4f}", f"{embedding['z_banded']:.1f}"]
        row += [f"{best['z_banded']:.1f} (layer {best['layer']:.0f})", with_error(attention, "ratio")]
        rows.append([*row, f"{attention['p_value']:.3f}, {attention['z_banded']:.1f}"])
    return rows


def with_error(row: Any, name: str) -> str:
    """Value ± standard error."""
    return f"{row[name]:.3f} ± {row[f'{name}_se']:.3f}"


def number(value: float) -> str:
    """A ratio that was withheld is a dash."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def setting(history: MonitorHistory, said: dict[str, Any]) -> str:
    """One sentence about text, topics and what is read."""
    run = history.runs[0]
    pairs = history.layers[["attention_pairs_same", "attention_pairs_different"]].iloc[0]
    share = history.measurements["seconds"].sum()
    return (
        f"Text: {said['corpus']}, {said['windows']:,} windows. Topics: {run['topics']['topics']}, of which "
        f"{run['words']} words take part (θ = {run['topics']['threshold']:.4f}). A measurement reads {run['units']} "
        f"windows of {run['documents']} documents: {pairs.iloc[0]:,.0f} pairs of one topic, {pairs.iloc[1]:,.0f} of "
        f"two. {len(history.measurements)} measurements took {share:.0f} seconds."
    )


def laboratory(folder: Path) -> str:
    """When stage one ended and stage two began in the one-layer model."""
    (found,) = RunRecord.load(folder).summary["stages"]
    return (
        f"W_V had covered 90 % of its way by step {found['k1']}, W_K or W_Q had moved by 10 % at step {found['k2']}: "
        f"{found['ratio']:.0f} times later."
    )


def insert(text: str, name: str, content: str) -> str:
    """The page with other content between the marks of `name`."""
    begin, end = f"<!-- {name}: make emergence -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the runs and write the page."""
    parser = argparse.ArgumentParser(description="Write docs/emergence.md from runs.")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--series", type=Path)
    options = parser.parse_args(arguments)
    first = options.runs[0]
    history, said = MonitorHistory.load(first), read_json(first / "emergence.json")
    parts = {
        "setting": setting(history, said),
        "runs": table(RUNS, [run_row(run) for run in options.runs]),
        "curve": table(CURVE, curve_rows(history)),
        "layers": table(LAYERS, layer_rows(history)),
    }
    history.plot("emergence")[1].savefig(IMAGES / "emergence.png", dpi=130)
    if (first / "laboratory").is_dir():
        parts["laboratory"] = laboratory(first / "laboratory")
        shutil.copyfile(first / "laboratory.png", IMAGES / "emergence-laboratory.png")
    if options.series is not None:
        parts["series"] = table(SERIES, series_rows(CheckpointSeries.load(options.series)))
    text = PAGE.read_text(encoding="utf-8")
    for name, content in parts.items():
        text = insert(text, name, content)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
