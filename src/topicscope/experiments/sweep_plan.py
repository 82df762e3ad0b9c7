"""From a sweep to its points: each a whole, valid recipe, before any of them is trained."""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np

from topicscope.errors import InputError
from topicscope.experiments.closed_forms import resolve
from topicscope.experiments.recipes import check_possible
from topicscope.experiments.sweep_config import Draw, SweepSpec
from topicscope.lab import Recipe, inputs_of, make_recipe, put_field, read_toml
from topicscope.records import dump_json

OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class Point:
    """One setting. id: short hash of its recipe and the number of seeds. setting: values of the swept fields. recipe:
    all of it as JSON text, defaults included. inputs: digests of the files that it names."""

    id: str
    setting: Mapping[str, Any]
    recipe: str
    inputs: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """What there is to do. impossible: (values, reason) of settings that no recipe allows, where they were left out;
    repeated: how many settings gave a recipe that was there already, and are trained once; devices: those that recipes
    ask for; folder: of the recipe."""

    spec: SweepSpec
    points: tuple[Point, ...]
    impossible: tuple[tuple[Mapping[str, Any], str], ...]
    repeated: int
    devices: tuple[str, ...]
    folder: Path
    name: str
    description: str


def make_plan(spec: SweepSpec, *, on_error: str = "stop") -> Plan:
    """Every point of the sweep as a recipe that can be trained: draws in their order, at each the grid in the order of
    `itertools.product`, its last field the fastest.

    on_error: "stop" at settings that cannot be trained, or "skip" and count them.

    Raises:
        InputError: no such recipe or file, settings that cannot be trained (or, skipping them, nothing else).
    """
    file = spec.recipe_file()
    base = read_toml(file, "recipe")
    text = json.dumps(base)  # copies of plain data are made from it: faster than deepcopy
    recipe = make_recipe(base, where=str(file), folder=file.parent)
    points: dict[str, Point] = {}
    devices: dict[str, None] = {}
    impossible: list[tuple[Mapping[str, Any], str]] = []
    repeated, possible = 0, _Possible()
    for values in settings(spec):
        document = json.loads(text)
        try:
            for name, value in (spec.set | values).items():
                put_field(document, name, value)
            inputs = possible.inputs(chosen := make_recipe(document, folder=file.parent))
        except InputError as error:
            impossible.append((values, in_one_line(error)))
            continue
        except MemoryError as error:  # its closed form, or its topics
            impossible.append((values, f"not enough memory: {error}"))
            continue
        whole = dump_json(chosen.model_dump(mode="json"))
        point = Point(_id(whole, spec.seeds), values, whole, inputs)
        devices[chosen.training.device] = None
        repeated += point.id in points
        points.setdefault(point.id, point)
    if impossible and (on_error == "stop" or not points):
        first, reason = impossible[0]
        more = f" (and {len(impossible) - 1} more)" if len(impossible) > 1 else ""
        raise InputError(
            f"{len(impossible)} of {len(impossible) + len(points) + repeated} settings cannot be trained",
            received=words_of(first) + more,
            expected=reason,
            where=str(file),
            advice=None if not points else "--on-error skip (on_error='skip') leaves such settings out and counts them",
        )
    return Plan(
        spec,
        tuple(points.values()),
        tuple(impossible),
        repeated,
        tuple(devices),
        file.parent,
        recipe.name,
        recipe.description,
    )


def settings(spec: SweepSpec) -> list[dict[str, Any]]:
    """The values of the swept fields, setting by setting."""
    grid = [dict(zip(spec.grid, values, strict=True)) for values in itertools.product(*spec.grid.values())]
    if spec.random is None:
        return grid
    drawn = {
        name: draws(draw, name, spec.random.samples, spec.random.seed) for name, draw in spec.random.fields.items()
    }
    return [point | {name: drawn[name][i] for name in drawn} for i in range(spec.random.samples) for point in grid]


def draws(draw: Draw, field: str, samples: int, seed: int) -> list[Any]:
    """`samples` values of one field. Each field has a generator of its own: more samples extend fewer, and another
    field beside it changes nothing."""
    uniform = np.random.default_rng([seed, crc32(field.encode())]).random(samples).tolist()
    if draw.choice is not None:
        return [draw.choice[int(u * len(draw.choice))] for u in uniform]
    assert draw.low is not None
    assert draw.high is not None
    low, high = draw.low, draw.high + draw.integer  # the whole numbers of [low, high + 1) are those of [low, high]
    if draw.log:
        found = [math.exp(math.log(low) + u * (math.log(high) - math.log(low))) for u in uniform]
    else:
        found = [low + u * (high - low) for u in uniform]
    kept = [min(max(value, draw.low), draw.high) for value in found]  # exp(log(low)) may round below low
    return [int(value) for value in kept] if draw.integer else kept


def words_of(values: Mapping[str, Any]) -> str:
    """A setting as people write it."""
    return ", ".join(f"{name} = {dump_json(value)}" for name, value in values.items())


def in_one_line(error: InputError) -> str:
    """What an error says, without labels and without advice."""
    parts = [error.summary, *(str(p) for p in (error.received, error.expected) if p is not None)]
    return ": ".join(dict.fromkeys(parts))[:400]


def _id(recipe: str, seeds: int) -> str:
    return hashlib.sha256(f"{seeds} seeds of {recipe}".encode()).hexdigest()[:12]


class _Possible:
    """Tries recipes without training them; what many points share is tried once."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str | None, str | None], Mapping[str, str]] = {}
        self._forms: set[str] = set()

    def inputs(self, recipe: Recipe) -> Mapping[str, str]:
        """Digests of the files that the recipe names.

        Raises:
            InputError: the recipe cannot be trained.
        """
        check_possible(recipe)
        data = recipe.data
        if recipe.arrays or recipe.references:
            decisive = (data, recipe.masking, recipe.training.weighting, recipe.training.ridge)
            wanted = repr((decisive, recipe.arrays, recipe.references))
            if wanted not in self._forms:
                resolve(recipe)
                self._forms.add(wanted)
        files = (data.phi, data.file)
        if files not in self._inputs:
            self._inputs[files] = inputs_of(recipe)
        return self._inputs[files]
