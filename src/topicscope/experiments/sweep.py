"""`sweep`: train a recipe at many settings and put what came out into one table.

A folder holds

    sweep.json       settings, every point with its measurements, the table; written at the end, and when it is stopped
    table.csv, sweep.png, report.html
    rows/ID.json     a finished point, and the key that it was made under: code, and files that the recipe names;
                     kept by `resume` while these are the same
    runs/ID          its `RunRecord`, as of `topicscope train`, unless keep = "summary"; its checkpoints until then

The process of the sweep writes all of it, whoever trains. A point that another machine trains has no checkpoints.
"""

import difflib
import hashlib
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import torch

from topicscope.errors import InputError, RunError
from topicscope.experiments.closed_forms import add_theory, resolve
from topicscope.experiments.sweep_result import RECORD, STATUSES, SweepResult
from topicscope.experiments.sweep_spec import (
    OnError,
    Plan,
    Point,
    SweepSpec,
    changed,
    in_one_line,
    load_spec,
    make_plan,
    make_spec,
)
from topicscope.lab import Recipe, check_device, make_recipe, train
from topicscope.progress import Progress, SilentProgress, note, tracked
from topicscope.records import (
    NUMBERS_VERSION,
    RUN,
    SUMMARY,
    SWEEP,
    Manifest,
    RunRecord,
    describe_environment,
    dump_json,
    growing_run,
    now,
    output_path,
    read_json,
    write_json,
    write_text,
)
from topicscope.runner import Failed, Here, Job, Runner

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


def train_point(
    point: Point, folder: Path, files: Mapping[str, bytes], seeds: int, run: Path | None, keep: str, command: str | None
) -> tuple[dict[str, Any], RunRecord | None]:
    """A job: train one point, with one thread; its row, and its record where that is to be kept.

    folder: where the files that its recipe names lie; files: these by name, where the folder is on another machine.
    run: where checkpoints are left, and found. What cannot be trained is a row with the reason.
    """
    row: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "id": point.id, "key": key_of(point), "status": "finished"}
    row |= {"reason": None, "seconds": None, "bytes": 0, "measurements": {}}
    with _unpacked(files) as unpacked:
        recipe = make_recipe(json.loads(point.recipe), folder=unpacked or folder)
        try:
            record = _trained(recipe, seeds, run, row["key"], command)
            add_theory(record, recipe)
        except InputError as error:
            return row | {"status": "failed", "reason": in_one_line(error)}, None
        except RunError as error:
            return row | {"status": "diverged", "reason": f"{error.summary}: {error.received}"}, None
    row |= {"seconds": record.summary["seconds"], "measurements": measurements(record)}
    return row, record if keep == "record" else None


@contextmanager
def _unpacked(files: Mapping[str, bytes]) -> Iterator[Path | None]:
    """A folder with the files, if there are any."""
    if not files:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="topicscope-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(folder)


def _packed(point: Point, folder: Path, known: dict[str, bytes]) -> dict[str, bytes]:
    """The files that the recipe of a point names, for another machine; known: those that were read before.

    Raises:
        InputError: a file that does not lie beside the recipe, or below it.
    """
    data = json.loads(point.recipe)["data"]
    names = [data[part] for part in ("phi", "file") if data[part] is not None]
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(
                "a file that a recipe names can be sent to a cluster only from the recipe's folder",
                received=name,
                expected="a name without folders above",
                where=str(folder),
                advice="copy the file beside the recipe",
            )
        if name not in known:
            known[name] = (folder / name).read_bytes()
    return {name: known[name] for name in names}


def _trained(recipe: Recipe, seeds: int, run: Path | None, key: str, command: str | None) -> RunRecord:
    """The record of a training; one that is long enough for checkpoints goes on from them, if code and files are the
    same as when it began."""
    if run is not None and run.exists() and not (_mark(run).is_file() and _mark(run).read_text("utf-8") == key):
        RUN.remove(run)
    lasting = run is not None and recipe.training.steps > recipe.training.checkpoint_every
    if run is not None and lasting:
        write_text(_mark(run), key)
    arrays, references = resolve(recipe)
    # Sums over several threads may end in other last digits: the same row must come from every machine.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return train(
            recipe,
            seeds=seeds,
            out=run if lasting else None,
            resume=lasting,
            arrays=arrays,
            references=references,
            command=command,
        )
    finally:
        torch.set_num_threads(threads)


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


# What a final measurement may be called (`measurements`), to tell a slip before any work.
_BLOCKS = ("mask_column", "different", "same", "diagonal")
_PAIRS = ("same_word", "same_topic", "different_topic", "special", "same_word_ratio", "same_topic_ratio")
METRICS = (
    *("deviation", "loss", "E_gap", *(f"stage_{name}" for name in ("k1", "k2", "ratio", "separated"))),
    *(f"{matrix}_{block}" for matrix in ("W_V", "E") for block in _BLOCKS),
    *(f"attention_{pairs}" for pairs in _PAIRS),
)
_NOTHING: dict[str, Any] = {"status": "waiting", "reason": None, "seconds": None, "bytes": 0, "measurements": {}}
_OF_PARAMETERS = re.compile(r"\w+_(norm|change|distance)")


def sweep(
    spec: SweepSpec | Mapping[str, Any] | Path | str,
    *,
    out: Path | str | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    on_error: str = "stop",
    keep: str = "record",
    metric: str | None = None,
    cluster: Runner | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> SweepResult:
    """Train a recipe at every point of a grid, of random draws, or of both, each point for several seeds at once.

    spec: a SWEEP.toml, or its content as a mapping (`experiments.sweep_spec`). out: folder for rows, records and the
        table; nothing is written without one. seeds: instead of the spec's. overrides: fields "table.key=value" of all
        points.
    resume: go on there; points that are finished are kept, others (also new ones, when the spec has changed) are run.
    on_error: "skip" leaves out settings that no recipe allows, and counts them; unless given they stop it before any
        work. keep: "summary" keeps rows only, "record" the whole `RunRecord` of every point as well.
    metric: the measurement that picture and page show. cluster: a `topicscope.distributed.Cluster` that trains the
        points, instead of this process; the same points give the same rows, whoever trains them.

    A point whose loss does not stay finite, or that cannot be trained, is a row with its reason. Ctrl-C keeps what is
    finished and gives a result that is `interrupted`.

    Raises:
        InputError: a spec, a setting or a metric that cannot be; a folder with something else in it.
    """
    folder, named = None if out is None else output_path(out), [Path(spec)] if isinstance(spec, (str, Path)) else []
    if not isinstance(spec, SweepSpec):
        spec = make_spec(spec) if isinstance(spec, Mapping) else load_spec(spec)
    if overrides or seeds is not None:
        spec = changed(spec, seeds=seeds, overrides=overrides)
    for name, value, known in (("on_error", on_error, get_args(OnError)), ("keep", keep, get_args(Keep))):
        if value not in known:
            raise InputError(f"unknown {name}", received=value, expected=" or ".join(known))
    if metric is not None and metric not in METRICS and not _OF_PARAMETERS.fullmatch(metric):
        near = difflib.get_close_matches(metric, METRICS, n=1, cutoff=0.0)
        raise InputError(
            "no measurement of this name",
            received=metric,
            expected=", ".join(METRICS) + ", or X_norm, X_change, X_distance of a matrix X",
            advice=f"did you mean {near[0]}?",
        )
    if resume and folder is None:
        raise InputError("resume needs a folder", expected="out")
    if resume and overwrite:
        raise InputError("resume keeps what is there and overwrite removes it", expected="one of them")
    plan = make_plan(spec, on_error=on_error)
    if cluster is None:
        for device in plan.devices:
            check_device(device)
    state = _State(plan, keep, metric, command)
    if folder is None:
        state.go(None, cluster, progress or SilentProgress(), {})
        return state.result()
    read = [path for path in (plan.spec.recipe_file(), *named) if path.exists()]
    with growing_run(folder, SWEEP, resume=resume, overwrite=overwrite, inputs=read) as run:
        folder = run.folder
        found = [(point.id, kept_row(folder, point.id, key_of(point), keep)) for point in plan.points]
        kept = {name: row for name, row in found if row is not None}
        # So that the folder of a sweep that is killed is known as one.
        write_json(folder / RECORD, state.result(folder).to_dict())
        state.go(folder, cluster, progress or SilentProgress(), kept)
        result = state.result(folder)
        result.write(folder)
        run.keep = result.interrupted
    return replace(result, folder=run.folder)


class _State:
    """Rows as they come in."""

    def __init__(self, plan: Plan, keep: str, metric: str | None, command: str | None) -> None:
        self.plan, self.keep, self.metric, self.command = plan, keep, metric, command
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.kept = 0
        self.trained_there = False
        self.interrupted = False
        self.created = now()

    def go(
        self, folder: Path | None, cluster: Runner | None, progress: Progress, kept: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Run what is not kept; Ctrl-C ends it."""
        plan, known = self.plan, dict[str, bytes]()
        self.rows, self.kept, self.trained_there = dict(kept), len(kept), cluster is not None
        jobs = [
            Job(
                point.id,
                (
                    point,
                    plan.folder.absolute(),
                    _packed(point, plan.folder, known) if self.trained_there else {},
                    plan.spec.seeds,
                    None if folder is None or self.trained_there else folder.absolute() / RUNS / point.id,
                    self.keep,
                    self.command,
                ),
            )
            for point in plan.points
            if point.id not in kept
        ]
        with tracked(progress, plan.name, len(plan.points), "points"):
            self._show(progress)
            try:
                for outcome in (cluster or Here()).run(train_point, jobs) if jobs else ():
                    if isinstance(outcome, Failed):
                        self.rows[outcome.name] = {**_NOTHING, "status": "failed", "reason": outcome.reason}
                    else:
                        self.rows[outcome.name] = self._stored(folder, *outcome.value)
                    self._show(progress)
            except KeyboardInterrupt:
                self.interrupted = True

    def _stored(self, folder: Path | None, row: dict[str, Any], record: RunRecord | None) -> Mapping[str, Any]:
        """The row of a point, left in the folder with its record; what could not be trained is not left, so that it is
        tried again."""
        if folder is None or row["status"] == "failed":
            return row
        run = folder / RUNS / row["id"]
        if record is None or self.trained_there:
            RUN.remove(run)  # with what a training that was stopped here has left
        if record is not None:
            record.write(run)
            RUN.write_list(run)
            row |= {"bytes": sum(file.stat().st_size for file in run.iterdir())}
        write_json(folder / ROWS / f"{row['id']}.json", row)
        _mark(run).unlink(missing_ok=True)
        return row

    def _show(self, progress: Progress) -> None:
        failed = float(sum(row["status"] != "finished" for row in self.rows.values()))
        if failed:
            note(progress, self.plan.name, {"failed": failed})
        progress.update(self.plan.name, len(self.rows))

    def result(self, folder: Path | None = None) -> SweepResult:
        """What is known now."""
        plan = self.plan
        points: list[dict[str, Any]] = []
        for point in plan.points:
            row = self.rows.get(point.id, _NOTHING)
            known = {part: row[part] for part in ("status", "reason", "seconds", "measurements")}
            points.append({"id": point.id, "values": dict(point.setting)} | known)
        statuses = Counter(point["status"] for point in points)
        counts = {name: statuses[name] for name in STATUSES}
        counts |= {"impossible": len(plan.impossible), "repeated": plan.repeated, "kept": self.kept}
        rows = {path.stem for path in (folder / ROWS).glob("*.json")} if folder is not None else set()
        counts["left_over"] = len(rows - {point.id for point in plan.points})
        counts["bytes"] = sum(row["bytes"] for row in self.rows.values())
        spec = plan.spec.model_dump(mode="json")
        options = {"keep": self.keep, "metric": self.metric, "threads": 1}
        manifest = Manifest(
            created=self.created,
            command=self.command,
            environment=describe_environment(),
            options=options | {name: spec[name] for name in ("recipe", "seeds", "set", "grid", "random")},
            sources={"recipe": str(plan.spec.recipe_file().name), "numbers_version": NUMBERS_VERSION},
        )
        return SweepResult(
            name=plan.name,
            description=plan.description,
            spec=spec,
            points=tuple(points),
            impossible=tuple({"values": values, "reason": reason} for values, reason in plan.impossible),
            counts=counts,
            manifest=manifest,
            wanted=self.metric,
            interrupted=self.interrupted,
            folder=folder,
        )
