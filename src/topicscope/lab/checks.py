"""What a run refuses: matrices that are missing, a folder of another run, a loss that is no longer finite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from topicscope.errors import InputError, RunError
from topicscope.lab.checkpoint import POINTER
from topicscope.lab.recipe import Recipe
from topicscope.records import RECIPE, SCHEMA_VERSION, read_json


def check_handed_in(recipe: Recipe, arrays: Mapping[str, np.ndarray], references: Mapping[str, np.ndarray]) -> None:
    """Closed forms that the recipe names must have been handed in."""
    for what, wanted, given in (("arrays", recipe.arrays, arrays), ("references", recipe.references, references)):
        for name, form in wanted.items():
            if name not in given:
                raise InputError(
                    f"the recipe wants {name} from a closed form ({form}), which training cannot compute itself",
                    expected=f"{what}={{'{name}': array}}",
                    advice="use topicscope.theory, or `topicscope train`, which resolves it",
                )


def check_same(folder: Path, recipe: Recipe, seeds: int | None, config: dict[str, Any], found: int | None) -> None:
    """The folder's recipe and number of seeds must be those of this run."""
    # Through JSON both sides have lists for tuples.
    if recipe.model_dump(mode="json") != config:
        keys = [key for key, value in recipe.model_dump(mode="json").items() if config.get(key) != value]
        raise InputError(
            "the folder holds a run of another recipe",
            received=f"differs in {', '.join(keys)}",
            where=str(folder),
            advice="resume with the recipe and the --set values it was started with, or choose another folder",
        )
    if seeds != found:
        raise InputError("the folder holds a run of another number of seeds", received=seeds, expected=found)


def check_inputs(folder: Path, wanted: dict[str, str], found: dict[str, str]) -> None:
    """The files and topics that the folder's run was given, by digest (`inputs_of`), must be those of this run."""
    changed = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if changed:
        raise InputError(
            f"the run in this folder was given another {' and another '.join(changed)}",
            received={name: wanted.get(name, "none") for name in changed},
            expected={name: found.get(name, "none") for name in changed},
            where=str(folder),
            advice="resume with the files and topics it was started with, or choose another folder",
        )


def started(recipe: Recipe, inputs: dict[str, str]) -> dict[str, Any]:
    """The content of recipe.json while a run is under way."""
    document = {"schema_version": SCHEMA_VERSION, "recipe": recipe.model_dump()}
    return document | ({"inputs": inputs} if inputs else {})


def check_started(folder: Path, recipe: Recipe, inputs: dict[str, str]) -> None:
    """The run that was begun in the folder, if any, must be this one."""
    if not (folder / RECIPE).is_file():
        if any(folder.iterdir()):
            raise InputError("the folder holds no run", received=str(folder), expected="a folder of `topicscope train`")
        return
    document = read_json(folder / RECIPE)
    check_same(folder, recipe, None, document["recipe"], None)
    check_inputs(folder, inputs, document.get("inputs", {}))


def diverged(step: int, objective: Tensor, seeds: list[int], folder: Path | None) -> RunError:
    """The error for a loss or a weight that is not finite: where, and what there is to go back to."""
    bad = [seed for seed, value in zip(seeds, objective.tolist(), strict=True) if not np.isfinite(value)]
    kept = folder is not None and (folder / POINTER).is_file()
    return RunError(
        f"training diverged at step {step}",
        received=f"loss no longer finite for seed {bad or seeds}",
        where=f"last good checkpoint: {folder / POINTER if kept and folder else 'none was written'}",
        advice="lower training.learning_rate, add training.warmup or training.clip, or use training.dtype = 'float64'",
    )
