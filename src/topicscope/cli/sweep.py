"""`topicscope sweep`: one recipe at many settings, and one table."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import ClusterOptions, RunOptions, command_line, going_on
from topicscope.cli.output import INTERRUPTED, print_json, print_lines, print_table, show_progress
from topicscope.errors import InputError
from topicscope.experiments import (
    RECORD,
    RUNS,
    Keep,
    OnError,
    Plan,
    SweepResult,
    changed,
    load_spec,
    make_plan,
    plain,
)
from topicscope.experiments import sweep as run_sweep
from topicscope.options import OUTPUT, Whole
from topicscope.records import PAGE
from topicscope.report import metric_words

_MOST_ROWS, _MOST_REASONS = 30, 10


def sweep(
    spec: Annotated[Path, Parameter(name="SWEEP")],
    /,
    *,
    seeds: Whole | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    on_error: OnError = "stop",
    dry_run: Annotated[bool, OUTPUT] = False,
    keep: Annotated[Keep, OUTPUT] = "record",
    metric: Annotated[str | None, OUTPUT] = None,
    cluster: ClusterOptions = ClusterOptions(),
    run: RunOptions = RunOptions(),
) -> int:
    """Train a recipe at every point of a grid, of random draws, or of both; one row a point, theory beside it.

    --resume keeps finished points and runs the others, also those that the file has only now.

    Parameters
    ----------
    spec
        A TOML file: recipe, seeds, [set], [grid], [random]; docs/howto/sweeps.md has the form.
    seeds
        Trainings at every point, instead of the file's.
    set_
        Change one value of the recipe at every point, table.key=value; may be given several times.
    on_error
        Settings that no recipe allows: stop before any work, or skip (and count) them.
    dry_run
        List the points and do nothing.
    keep
        Of each point: record (all that `topicscope train` leaves, under runs/) or summary (its row only).
    metric
        The measurement that picture and page show, such as loss, deviation (from theory) or W_V_same.
    """
    chosen = changed(load_spec(spec), seeds=seeds, overrides=set_)
    if dry_run:
        return _list(make_plan(chosen, on_error="skip"), json=run.json)
    target = run.folder(f"{spec.stem}-sweep", of="sweep")
    if cluster.cluster is not None:
        for device in make_plan(chosen, on_error=on_error).devices:
            _check_device(device, cluster.gpus_per_worker)
    with cluster.open() as runner, show_progress(run.progress) as shown:
        result = run_sweep(
            chosen,
            out=target,
            resume=run.resume,
            overwrite=run.overwrite,
            on_error=on_error,
            keep=keep,
            metric=metric,
            cluster=runner,
            progress=shown,
            command=command_line(),
        )
    result.report()
    if run.json:
        print_json(result.to_dict())
    else:
        show(result, str(target))
        if result.interrupted:
            print_lines([going_on(target)])
    if result.interrupted:
        return INTERRUPTED
    return 0 if result.complete else 1


def _check_device(device: str, gpus_per_worker: float) -> None:
    """A recipe's device must be one that workers of the cluster have."""
    if device.startswith("cuda") and not gpus_per_worker:
        raise InputError(
            "workers of the cluster have no GPU",
            received=f'training.device = "{device}"',
            expected="--gpus-per-worker 1, or a share of one, as well",
        )
    if gpus_per_worker and not device.startswith("cuda"):
        raise InputError(
            "the recipe does not use the GPUs of workers",
            received=f'--gpus-per-worker {gpus_per_worker:g} and training.device = "{device}"',
            expected="--set training.device=cuda as well, or no --gpus-per-worker",
        )


def show(result: SweepResult, folder: str) -> None:
    """The table (its first rows, where it is long), what failed, and where everything is."""
    print_lines([str(result), ""])
    metric, table = result.metric, result.table()
    numbers = {metric: "mean", f"{metric}_sd": "sd", f"{metric}_theory": "theory", f"{metric}_deviation": "deviation"}
    numbers = {name: head for name, head in numbers.items() if name in table and table[name].notna().any()}
    last = Counter(name.rpartition(".")[2] for name in result.swept)
    heads = [short if last[short := name.rpartition(".")[2]] == 1 else name for name in result.swept]
    heads += [*numbers.values(), "status"]
    rows = table[[*result.swept, *numbers, "status"]].head(_MOST_ROWS)
    more = len(table) - len(rows)
    print_table(
        f"{metric_words(metric)}, over {result.spec['seeds']} seed(s)",
        heads,
        [[None if pd.isna(cell) else cell for cell in row] for row in rows.astype(object).to_numpy().tolist()],
        f"and {more} more in {folder}/table.csv" if more else None,
        unbroken=[*numbers.values(), "status"],
    )
    _print_some(
        f"{point['status']}: {_words(point['values'])}: {point['reason']}"
        for point in result.points
        if point["status"] in ("diverged", "failed")
    )
    _print_some(f"left out: {_words(one['values'])}: {one['reason']}" for one in result.impossible)
    if result.counts["left_over"]:
        print_lines([f"{result.counts['left_over']} rows in the folder belong to points that the sweep no longer has"])
    if result.wanted not in (None, metric):
        print_lines([f"no point has the measurement {result.wanted}"])
    size = result.counts["bytes"] / 1e6
    kept = [f"records: {folder}/{RUNS} ({size:,.1f} MB)"] if size else []
    print_lines([*kept, f"table: {folder}/{RECORD}", f"page: {folder}/{PAGE}"])


def _list(plan: Plan, *, json: bool) -> int:
    """Every point, and what is left out."""
    impossible: list[dict[str, Any]] = [
        {"values": dict(values), "reason": reason} for values, reason in plan.impossible
    ]
    if json:
        points = [{"id": point.id, "values": dict(point.setting)} for point in plan.points]
        print_json({"points": points, "impossible": impossible, "repeated": plan.repeated})
        return 0
    columns = plan.spec.swept
    rows = [[point.id, *(plain(point.setting[name]) for name in columns)] for point in plan.points]
    print_table(f"{len(plan.points)} points, {plan.spec.seeds} seed(s) each", ["ID", *columns], rows)
    print_lines([f"cannot be trained: {_words(one['values'])}: {one['reason']}" for one in impossible])
    if plan.repeated:
        print_lines([f"{plan.repeated} settings give a recipe that is there already, and are trained once"])
    return 0


def _print_some(lines: Iterable[str]) -> None:
    """The first lines, and how many more there are."""
    found = list(lines)
    print_lines(found[:_MOST_REASONS])
    if len(found) > _MOST_REASONS:
        print_lines([f"and {len(found) - _MOST_REASONS} more such lines: see {RECORD}"])


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {plain(value)}" for name, value in values.items())
