"""One run in parts: its seeds dealt in groups to jobs, and the groups' records made one.

    OUT/parts/seeds-000-003     the record of a group, or its checkpoints; removed once OUT holds the record of all

The seeds of a group are trained together, as `train` without a cluster trains all. Which seeds form a group does not
depend on who trains it, so neither does any number of the record.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError, RunError
from topicscope.lab.checks import check_inputs, check_started, started
from topicscope.lab.data import inputs_of
from topicscope.lab.recipe import Recipe, make_recipe
from topicscope.lab.trainer import Given, Run, finished_run, train_together
from topicscope.progress import Progress, SilentProgress, note, tracked
from topicscope.records import (
    PARTS,
    RECIPE,
    RUN_PARTS,
    Manifest,
    RunRecord,
    describe_environment,
    load_run,
    now,
    write_json,
)
from topicscope.runner import Failed, Job, Runner


def train_apart(
    recipe: Recipe,
    seeds: Sequence[int],
    given: Given,
    folder: Path,
    progress: Progress,
    command: str | None,
    runner: Runner,
    seeds_per_task: int,
    *,
    resume: bool = False,
) -> RunRecord:
    """See `train`: groups of `seeds_per_task` consecutive seeds as jobs of `runner`.

    With `resume` finished groups are read, and others go on from their checkpoints.

    Raises:
        InputError: as `train`; the groups in the folder are others, or the runner cannot write there.
        RunError: some groups failed; the others are kept.
    """
    if seeds_per_task < 1:
        raise InputError("bad option --seeds-per-task", received=seeds_per_task, expected="a number of at least 1")
    finished = finished_run(recipe, seeds, given, folder) if resume else None
    if finished is not None:
        RUN_PARTS.remove(folder / PARTS)
        return finished
    # What is wrong with the input is found here, before anything is written; this machine may lack the device.
    Run(recipe.model_copy(update={"training": recipe.training.model_copy(update={"device": "cpu"})}), seeds[:1], given)
    plan = {"seeds": len(seeds), "seeds_per_task": seeds_per_task, "arrays": _digest(given)}
    groups = {_name(group): group for group in _dealt(seeds, seeds_per_task)}
    resumed = resume and folder.exists()
    if resumed:
        check_started(folder, recipe, given.inputs, plan)
    else:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        runner.check(folder)
    except InputError:
        if not resumed:
            folder.rmdir()
        raise
    write_json(folder / RECIPE, started(recipe, given.inputs, plan))
    document, place = recipe.model_dump(mode="json"), recipe.path("").absolute()
    jobs = [
        Job(name, (document, place, group, given, (folder / PARTS / name).absolute())) for name, group in groups.items()
    ]
    done, lost = 0, dict[str, str]()
    with tracked(progress, recipe.name, len(seeds), "seeds"):
        for outcome in runner.run(train_part, jobs):
            if isinstance(outcome, Failed):
                lost[outcome.name] = outcome.reason
                note(progress, recipe.name, {"failed tasks": float(len(lost))})
            else:
                done += len(groups[outcome.name])
                progress.update(recipe.name, done)
    if lost:
        raise RunError(
            f"{len(seeds) - done} of {len(seeds)} seeds could not be trained",
            received="; ".join(f"{name}: {lost[name]}" for name in groups if name in lost),
            where=str(folder / PARTS),
            advice="the same command with --resume tries these again; the others are kept",
        )
    record = merged([load_run(folder / PARTS / name) for name in groups], command)
    record.manifest.options["seeds_per_task"] = seeds_per_task
    record.write(folder)
    RUN_PARTS.remove(folder / PARTS)
    return record


def train_part(document: Mapping[str, Any], place: Path, seeds: Sequence[int], given: Given, folder: Path) -> None:
    """A job: train a group of seeds into its folder, go on where it was begun, do nothing where it is finished.

    document: the recipe, from the folder `place`.

    Raises:
        InputError: another machine sees other files under the recipe's names.
        RunError: as `train`.
    """
    recipe = make_recipe(document, folder=place)
    check_inputs(folder, inputs_of(recipe, given.topic_model), given.inputs)
    train_together(recipe, seeds, given, folder, SilentProgress(), resume=True)


def merged(parts: Sequence[RunRecord], command: str | None = None) -> RunRecord:
    """One record of runs of one recipe, whose seeds follow each other: what one process would have left.

    Seconds, and documents skipped, are sums; snapshots are those of the first seed.
    """
    first, summaries = parts[0], [part.summary for part in parts]
    same = ("name", "description", "steps", "engine", "engine_reason", "frozen")
    assert all(part.config == first.config for part in parts), "parts of one recipe"
    assert all(summary[name] == summaries[0][name] for summary in summaries for name in same)
    # Within one step the seeds of a part are in order, and so are the parts.
    history = pd.concat([part.history for part in parts], ignore_index=True)
    history = history.astype(float).astype({"seed": int, "step": int})
    summary = summaries[0] | {
        "seeds": sum(summary["seeds"] for summary in summaries),
        "seconds": round(sum(summary["seconds"] for summary in summaries), 3),
        "documents_skipped": sum(summary["documents_skipped"] for summary in summaries),
        "final": [row for summary in summaries for row in summary["final"]],
    }
    if "stages" in summary:
        summary["stages"] = [stages for summary in summaries for stages in summary["stages"]]
    options, sources = first.manifest.options, first.manifest.sources
    return RunRecord(
        config=first.config,
        manifest=Manifest(
            created=now(),
            command=command,
            environment=describe_environment(),
            options=options | {"seeds": [seed for part in parts for seed in part.manifest.options["seeds"]]},
            sources=sources | {"start": [part.manifest.sources["start"] for part in parts]},
        ),
        history=history.sort_values("step", kind="stable", ignore_index=True),
        weights={name: np.concatenate([part.weights[name] for part in parts]) for name in first.weights},
        summary=summary,
        snapshots=first.snapshots,
    )


def _dealt(seeds: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(seeds[first : first + size]) for first in range(0, len(seeds), size)]


def _name(group: Sequence[int]) -> str:
    return f"seeds-{group[0]:03}-{group[-1]:03}"


def _digest(given: Given) -> str:
    """Of the arrays that are handed in: parts of other arrays must not be put together."""
    digest = hashlib.sha256()
    for arrays in (given.arrays, given.references):
        for name in sorted(arrays):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return f"sha256:{digest.hexdigest()}"
