"""One point of a sweep: trained wherever somebody calls `run_point`, and what it leaves.

runs/ID          its `RunRecord`, as of `topicscope train` (unless keep = "summary"); its checkpoints until then
rows/ID.json     its row, and the key that this was made under: code, and files that the recipe names; written last
"""

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from topicscope.errors import InputError, RunError
from topicscope.experiments.closed_forms import add_theory, resolve
from topicscope.experiments.sweep_plan import Point, in_one_line
from topicscope.lab import Recipe, make_recipe, train
from topicscope.records import NUMBERS_VERSION, RUN, SUMMARY, RunRecord, dump_json, read_json, write_json, write_text

SCHEMA_VERSION = 1
RUNS, ROWS = "runs", "rows"
Keep = Literal["record", "summary"]


@dataclass(frozen=True)
class Measurement:
    """A final measurement of one point. mean, sd: over the `count` seeds in which it is a number; sd is None for one.
    theory: what the closed form of this very setting says, and deviation = mean / theory - 1, where there is one."""

    mean: float | None
    sd: float | None
    count: int
    theory: float | None = None
    deviation: float | None = None


def key_of(point: Point) -> str:
    """What a row depends on besides its recipe, whose hash names it: the code, and the files that the recipe names."""
    return hashlib.sha256(dump_json([SCHEMA_VERSION, NUMBERS_VERSION, point.inputs]).encode()).hexdigest()


def kept_row(out: Path, point_id: str, key: str, keep: str) -> dict[str, Any] | None:
    """The row of a point that was trained, or diverged, with the same code and files; None where there is no such row,
    or its record is wanted and was not kept.

    Raises:
        InputError: the file is not a row.
    """
    path = out / ROWS / f"{point_id}.json"
    if not path.is_file():
        return None
    try:
        row, damage = read_json(path), f"id is not {point_id}, or key, status or measurements are no such thing"
    except InputError as error:
        row, damage = None, in_one_line(error)
    if not (row is not None and _is_row(row, point_id)):
        raise InputError(
            "not the row of a sweep",
            received=damage,
            where=str(path),
            advice="remove this file: the same command with --resume makes it again",
        )
    lacking = keep == "record" and row["status"] == "finished" and not (out / RUNS / point_id / SUMMARY).is_file()
    return row if row["key"] == key and not lacking else None


def _is_row(row: Any, point_id: str) -> bool:
    try:
        known = [Measurement(**measured) for measured in row["measurements"].values()]
        return row["id"] == point_id and {"key", "status", "reason", "seconds", "bytes"} <= row.keys() and all(known)
    except (TypeError, KeyError, AttributeError):
        return False


def run_point(
    recipe_text: str,
    folder: str,
    seeds: int,
    point_id: str,
    key: str,
    out: str | None,
    keep: str,
    command: str | None,
) -> dict[str, Any]:
    """Train one point, with one thread, and give its row; arguments and row are plain data.

    recipe_text, folder: its recipe as JSON, and where the files that this names lie. out: folder of the sweep; with one
    the row is left there, a training that was stopped goes on, and what is finished is not done again. What cannot be
    trained is a row with the reason; it is not left, so that it is tried again.
    """
    target = None if out is None else Path(out)
    kept = None if target is None else kept_row(target, point_id, key, keep)
    if kept is not None:
        return kept
    row: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "id": point_id, "key": key, "status": "finished"}
    row |= {"reason": None, "seconds": None, "bytes": 0, "measurements": {}}
    recipe = make_recipe(json.loads(recipe_text), folder=folder)
    run = None if target is None else target / RUNS / point_id
    record = None
    try:
        record = _trained(recipe, seeds, run, key, command)
        add_theory(record, recipe)
        row |= {"seconds": record.summary["seconds"], "measurements": measurements(record)}
    except InputError as error:
        return row | {"status": "failed", "reason": in_one_line(error)}
    except RunError as error:
        row |= {"status": "diverged", "reason": f"{error.summary}: {error.received}"}
    if target is not None and run is not None:
        if record is not None and keep == "record":
            record.save(run)
            RUN.write_list(run)
            row["bytes"] = sum(file.stat().st_size for file in run.iterdir())
        else:
            RUN.remove(run)
        write_json(target / ROWS / f"{point_id}.json", row)
        _mark(run).unlink(missing_ok=True)
    return row


def _trained(recipe: Recipe, seeds: int, run: Path | None, key: str, command: str | None) -> RunRecord:
    """The record of a training; one that is long enough for checkpoints goes on from them, if code and files are the
    same as when it began."""
    if run is not None and run.exists() and not (_mark(run).is_file() and _mark(run).read_text("utf-8") == key):
        RUN.remove(run)
    lasting = run is not None and recipe.training.steps > recipe.training.checkpoint_every
    if run is not None and lasting:
        write_text(_mark(run), key)
    with _one_thread():
        return train(
            recipe,
            seeds=seeds,
            out=run if lasting else None,
            resume=lasting,
            arrays=resolve(recipe, recipe.arrays),
            references=resolve(recipe, recipe.references),
            command=command,
        )


def _mark(run: Path) -> Path:
    """The file beside a training's folder that says which code and files its checkpoints belong to."""
    return run.with_name(f"{run.name}.key")


def measurements(record: RunRecord) -> dict[str, dict[str, Any]]:
    """Every `Measurement` of a run, by name, as plain data.

    The columns of the final history (`lab.history`); E_gap and attention_same_word_ratio, _same_topic_ratio, which
    theory speaks of (`experiments.closed_forms.add_theory`); stage_k1, _k2, _ratio and _separated of the stage
    detector;
    deviation: of all that theory speaks of, the largest |deviation|.
    """
    summary = record.summary
    final = record.final.drop(columns=["seed", "step"]).astype(float)
    found = {str(name): _over_seeds(final[name]) for name in final}
    for part, names in _BESIDE.items():
        beside = summary.get(part) or {"measured": {}}
        for entry in beside["measured"]:
            name = names.format(entry)
            theory, away = ((beside[which] or {}).get(entry) for which in ("theory", "relative_deviation"))
            measured = found.get(name) or Measurement(
                _finite(beside["measured"][entry]), _finite(beside["sd"][entry]), len(final)
            )
            found[name] = replace(measured, theory=_finite(theory), deviation=_finite(away))
    stages = pd.DataFrame(summary.get("stages", []))
    for name in ("k1", "k2", "ratio", "separated") if len(stages) else ():
        found[f"stage_{name}"] = _over_seeds(stages[name].astype(float))
    worst = [abs(m.deviation) for m in found.values() if m.deviation is not None]
    if worst:
        found["deviation"] = Measurement(max(worst), None, len(final))
    return {name: asdict(measurement) for name, measurement in found.items()}


_BESIDE = {"value_matrix": "W_V_{}", "embedding": "E_{}", "attention": "attention_{}_ratio"}


def _over_seeds(values: pd.Series) -> Measurement:
    known = values[[math.isfinite(value) for value in values]]
    mean = float(known.mean()) if len(known) else None
    return Measurement(mean, float(known.std(ddof=1)) if len(known) > 1 else None, len(known))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums over several threads may end in other last digits: the same row must come from every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
