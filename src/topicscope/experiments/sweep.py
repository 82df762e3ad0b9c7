"""`sweep`: train a recipe at many settings and put what came out into one table.

A folder holds

    sweep.json       settings, every point with its measurements, the table; written at the end, and when it is stopped
    table.csv, sweep.png, report.html
    rows/ID.json     a finished point, written by whoever trained it; kept by `resume` while code and files are the same
    runs/ID          its `RunRecord`, as of `topicscope train`, unless keep = "summary"
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from topicscope.errors import InputError
from topicscope.experiments.sweep_config import SweepSpec, changed, load_spec, make_spec
from topicscope.experiments.sweep_plan import OnError, Plan, make_plan
from topicscope.experiments.sweep_point import ROWS, RUNS, Keep, kept_row, key_of, run_point
from topicscope.experiments.sweep_result import RECORD, SweepResult
from topicscope.experiments.sweep_table import STATUSES
from topicscope.lab import check_device
from topicscope.progress import Progress, SilentProgress, note, tracked
from topicscope.records import (
    LOCK,
    NUMBERS_VERSION,
    SWEEP,
    Manifest,
    describe_environment,
    folder_lock,
    growing_run,
    now,
    output_path,
    remove_unfinished,
)
from topicscope.runner import Failed, Here, Job, Runner

# What a final measurement may be called (`experiments.sweep_point.measurements`), to tell a slip before any work.
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

    spec: a SWEEP.toml, or its content as a mapping (`experiments.sweep_config`). out: folder for rows, records and the
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
    spec = _spec_of(spec)
    if overrides or seeds is not None:
        spec = changed(spec, seeds=seeds, overrides=overrides)
    _check_options(on_error, keep, metric, resume, overwrite, folder)
    plan = make_plan(spec, on_error=on_error)
    if cluster is None:
        for device in plan.devices:
            check_device(device)
    state = _State(plan, keep, metric, command)
    if folder is None:
        state.go(None, cluster or Here(), progress or SilentProgress(), {})
        return state.result()
    read = [path for path in (plan.spec.recipe_file(), *named) if path.exists()]
    with growing_run(folder, SWEEP, resume=resume, overwrite=overwrite, inputs=read) as run, _locked(run.folder):
        folder = run.folder
        (cluster or Here()).check(folder)
        found = [(point.id, kept_row(folder, point.id, key_of(point), keep)) for point in plan.points]
        kept = {name: row for name, row in found if row is not None}
        state.result(folder).save_record()  # so that the folder of a sweep that is killed is known as one
        state.go(folder, cluster or Here(), progress or SilentProgress(), kept)
        result = state.result(folder)
        result.save()
        run.keep = result.interrupted
    return replace(result, folder=run.folder)


class _State:
    """Rows as they come in."""

    def __init__(self, plan: Plan, keep: str, metric: str | None, command: str | None) -> None:
        self.plan, self.keep, self.metric, self.command = plan, keep, metric, command
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.kept = 0
        self.interrupted = False
        self.created = now()

    def go(
        self, folder: Path | None, runner: Runner, progress: Progress, kept: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Run what is not kept; Ctrl-C ends it."""
        plan, out = self.plan, None if folder is None else str(folder.absolute())
        self.rows, self.kept = dict(kept), len(kept)
        where, seeds = str(plan.folder.absolute()), plan.spec.seeds
        jobs = [
            Job(p.id, (p.recipe, where, seeds, p.id, key_of(p), out, self.keep, self.command))
            for p in plan.points
            if p.id not in kept
        ]
        with tracked(progress, plan.name, len(plan.points), "points"):
            self._show(progress)
            try:
                for outcome in runner.run(run_point, jobs) if jobs else ():
                    self.rows[outcome.name] = _lost(outcome) if isinstance(outcome, Failed) else outcome.value
                    self._show(progress)
            except KeyboardInterrupt:
                self.interrupted = True

    def _show(self, progress: Progress) -> None:
        failed = float(sum(row["status"] != "finished" for row in self.rows.values()))
        if failed:
            note(progress, self.plan.name, {"failed": failed})
        progress.update(self.plan.name, len(self.rows))

    def result(self, folder: Path | None = None) -> SweepResult:
        """What is known now."""
        plan = self.plan
        points = tuple(self._point(point.id, point.setting) for point in plan.points)
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
            points=points,
            impossible=tuple({"values": values, "reason": reason} for values, reason in plan.impossible),
            counts=counts,
            manifest=manifest,
            wanted=self.metric,
            interrupted=self.interrupted,
            folder=folder,
        )

    def _point(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        row = self.rows.get(name, _NOTHING)
        return {"id": name, "values": dict(values)} | {
            part: row[part] for part in ("status", "reason", "seconds", "measurements")
        }


def _lost(outcome: Failed) -> dict[str, Any]:
    return {**_NOTHING, "status": "failed", "reason": outcome.reason}


def _spec_of(spec: SweepSpec | Mapping[str, Any] | Path | str) -> SweepSpec:
    if isinstance(spec, SweepSpec):
        return spec
    return make_spec(spec) if isinstance(spec, Mapping) else load_spec(spec)


def _check_options(
    on_error: str, keep: str, metric: str | None, resume: bool, overwrite: bool, out: Path | None
) -> None:
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
    if resume and out is None:
        raise InputError("resume needs a folder", expected="out")
    if resume and overwrite:
        raise InputError("resume keeps what is there and overwrite removes it", expected="one of them")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder, locked: new, or that of an earlier sweep."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECORD).is_file():
        raise InputError("nothing to resume", received=str(folder), expected="a folder of `topicscope sweep`")
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        for part in ("", ROWS, RUNS):
            remove_unfinished(folder / part, "*")
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
