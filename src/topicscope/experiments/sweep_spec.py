"""SWEEP.toml: which fields of a recipe take which values; and its points, each a whole recipe that can be trained.

recipe = "value-matrix.toml"     # beside this file, or the name of a recipe that comes with topicscope
seeds = 4
[set]                            # the same for every point
"training.steps" = 300
[grid]                           # every combination
"training.learning_rate" = [0.01, 0.03]
"model.attention" = ["uniform", "trained"]
[random]                         # draws; beside a grid every draw is tried at every point of the grid
samples = 50
seed = 0
"training.batch_size" = { low = 10, high = 200, log = true, integer = true }
"training.optimizer" = { choice = ["sgd", "adam"] }
"""

import difflib
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from zlib import crc32

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from topicscope.errors import InputError
from topicscope.experiments.closed_forms import resolve
from topicscope.lab import (
    Recipe,
    check_engine,
    check_names,
    inputs_of,
    law_of,
    make_recipe,
    masking_of,
    parsed_override,
    put_field,
    read_toml,
    recipe_path,
    shapes,
    start,
    topic_model_of,
)
from topicscope.records import dump_json
from topicscope.topics import TopicModel

OnError = Literal["stop", "skip"]
MOST_SETTINGS = 100_000
_WHOLE = 2**53  # up to here every whole number is a float


def _plain(value: Any) -> Any:
    """A value as it is saved; numpy's numbers and arrays become Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (str, int, type(None))) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError("a finite number, text, true or false, or a list or table of such")


Value = Annotated[Any, AfterValidator(_plain)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Draw(_Part):
    """How a field is drawn: uniformly from [low, high], with `log` uniformly in the logarithm, with `integer` a whole
    number, both ends possible; or one of `choice`, each as likely."""

    low: float | None = Field(default=None, description="least value")
    high: float | None = Field(default=None, description="largest value")
    log: bool = Field(default=False, description="uniform in the logarithm")
    integer: bool = Field(default=False, description="whole numbers")
    choice: tuple[Value, ...] | None = Field(default=None, description="instead of all these: values to choose from")

    @model_validator(mode="after")
    def _fits(self) -> "Draw":
        if self.choice is not None:
            if self.low is not None or self.high is not None or self.log or self.integer:
                raise ValueError("choice stands instead of low, high, log and integer")
            if not self.choice:
                raise ValueError("choice is empty")
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("give low and high, low below high, or choice")
        if self.log and self.low <= 0:
            raise ValueError("log needs a positive low")
        if self.integer and (self.low % 1 or self.high % 1 or max(-self.low, self.high) >= _WHOLE):
            raise ValueError("integer needs whole numbers below 2^53 as low and high")
        return self


class Random(_Part):
    """[random]: `samples` draws of all `fields` at once."""

    samples: int = Field(default=10, ge=1, description="number of draws; more of them extend fewer")
    seed: int = Field(default=0, ge=0, description="of the draws, not of the trainings")
    fields: dict[str, Draw] = Field(description="how each field is drawn, by its name")

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, given: Any) -> Any:
        """In the file the fields stand beside `samples` and `seed`."""
        if not isinstance(given, Mapping) or "fields" in given:
            return given
        own = {name: given[name] for name in ("samples", "seed") if name in given}
        return own | {"fields": {name: value for name, value in given.items() if name not in own}}


class SweepSpec(_Part):
    """One sweep.

    Raises:
        pydantic.ValidationError: through `load_spec` and `make_spec` an `InputError` that names the key.
    """

    recipe: str = Field(description="a recipe beside the file, or the name of one that comes with topicscope")
    seeds: int = Field(default=4, ge=1, description="trainings at every point")
    set: dict[str, Value] = Field(default={}, description="fields that are the same at every point")
    grid: dict[str, tuple[Value, ...]] = Field(default={}, description="values of fields, in every combination")
    random: Random | None = Field(default=None, description="draws of fields, each at every point of the grid")

    # As in a recipe: where files beside it are looked for is no part of what is saved.
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _fits(self) -> "SweepSpec":
        drawn = self.random.fields if self.random else {}
        if not self.grid and not drawn:
            raise ValueError("nothing to sweep: give [grid] or [random] at least one field")
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"grid: {name} has no values")
        wanted = math.prod(len(values) for values in self.grid.values()) * (self.random.samples if self.random else 1)
        if wanted > MOST_SETTINGS:
            raise ValueError(f"{wanted:,} settings: at most {MOST_SETTINGS:,} in one sweep")
        names = sorted([*self.set, *self.grid, *drawn])
        for first, second in itertools.pairwise(names):
            if first == second:
                raise ValueError(f"{first} is given twice: in [set], [grid] or [random] one place is enough")
            if second.startswith(f"{first}."):
                raise ValueError(f"{first} holds {second}: give one of them")
        return self

    @property
    def swept(self) -> tuple[str, ...]:
        """The fields that take several values, those of the grid first."""
        return (*self.grid, *(self.random.fields if self.random else ()))

    def recipe_file(self) -> Path:
        """Where the recipe lies.

        Raises:
            InputError: neither beside the sweep file nor among those that come with topicscope.
        """
        beside = self._folder / self.recipe
        if beside.is_file():
            return beside
        try:
            return recipe_path(self.recipe.removesuffix(".toml"))
        except InputError as error:
            raise InputError(
                "no such recipe",
                received=self.recipe,
                expected=f"a TOML file in {self._folder.absolute()}, or the name of a recipe of topicscope",
            ) from error


def load_spec(path: Path | str) -> SweepSpec:
    """Read a SWEEP.toml.

    Raises:
        InputError: no such file, not TOML, an unknown key or field (with the nearest valid name), values that fit
            nowhere.
    """
    path = Path(path)
    return make_spec(read_toml(path, "sweep"), where=str(path), folder=path.parent)


def make_spec(document: Mapping[str, Any], where: str | None = None, folder: Path | str = "") -> SweepSpec:
    """A checked sweep from plain data; errors as in `load_spec`. folder: where its recipe is looked for."""
    tables = {part: _flat(document[part], where=where) for part in ("set", "grid", "random") if part in document}
    try:
        spec = SweepSpec.model_validate({**document, **tables})
    except ValidationError as error:
        raise _explain(error, where) from error
    spec._folder = Path(folder)
    for name in (*spec.set, *spec.swept):
        check_field(name, where)
    return spec


def changed(spec: SweepSpec, *, seeds: int | None = None, overrides: Sequence[str] = ()) -> SweepSpec:
    """The sweep with other seeds, and with fields "table.key=value" set at every point.

    Raises:
        InputError: not of this form, an unknown field, one that the sweep varies, or an impossible number of seeds.
    """
    document = spec.model_dump()
    for text in overrides:
        name, value = parsed_override(text)
        if name in spec.swept:
            raise InputError("the sweep varies this field itself", received=text, advice="change it in the sweep file")
        document["set"][name] = value
    if seeds is not None:
        document["seeds"] = seeds
    return make_spec(document, folder=spec._folder)


def check_field(name: str, where: str | None = None) -> None:
    """Make sure that a recipe has this field, or that its table takes names of one's own (`training.ridge.W_V`).

    Raises:
        InputError: it has not; names the nearest that it has.
    """
    known = dict(_fields(Recipe))
    table, _, last = name.rpartition(".")
    own = last and getattr(known.get(table), "__origin__", None) is dict
    if not (own or name in known or any(field.startswith(f"{name}.") for field in known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        ends = [field for field in known if field.rpartition(".")[2] == last]
        raise InputError(
            f"a recipe has no field {name}",
            received=name,
            expected="a field of a recipe, such as training.learning_rate",
            where=where,
            advice=f"did you mean {(ends or near)[0]}?",
        )


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, inner


def _flat(table: Any, prefix: str = "", where: str | None = None) -> Any:
    """Fields by their full names: `training.steps = 3` without quotes makes a table in TOML."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, Any] = {}
    for name, value in table.items():
        is_draw = isinstance(value, Mapping) and not value.keys().isdisjoint(Draw.model_fields)
        inner = isinstance(value, Mapping) and not is_draw and f"{prefix}{name}" != "fields"
        more = _flat(value, f"{prefix}{name}.", where) if inner else {f"{prefix}{name}": value}
        for twice in flat.keys() & more.keys():
            raise InputError(f"sweep: {twice} is given twice", expected="once, with quotes or without", where=where)
        flat |= more
    return flat


# What pydantic calls by Python's names.
_KINDS = {"missing": "it is missing", "tuple_type": "a list", "dict_type": "a table", "model_type": "a table"}


def _explain(error: ValidationError, where: str | None) -> InputError:
    fault = error.errors()[0]
    place = [str(part) for part in fault["loc"] if part != "fields"]
    received = fault["input"] if not isinstance(fault["input"], dict) else None
    if fault["type"] == "extra_forbidden":
        names = sorted(Draw.model_fields if place[0] == "random" else SweepSpec.model_fields)
        near = difflib.get_close_matches(place[-1], names, n=1, cutoff=0.0)
        return InputError(
            f"sweep: unknown key {'.'.join(place)}",
            received=place[-1],
            expected=", ".join(names),
            where=where,
            advice=f"did you mean {near[0]}?",
        )
    message = _KINDS.get(fault["type"], str(fault["msg"]).removeprefix("Value error, "))
    return InputError(f"sweep: {'.'.join(place) or 'the whole'}", received=received, expected=message, where=where)


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
    # What many points share is tried once.
    forms: set[str] = set()
    digests: dict[tuple[str | None, str | None], Mapping[str, str]] = {}
    repeated = 0
    for values in settings(spec):
        document = json.loads(text)
        try:
            for name, value in (spec.set | values).items():
                put_field(document, name, value)
            chosen = make_recipe(document, folder=file.parent)
            check_possible(chosen)
            decisive = (chosen.data, chosen.masking, chosen.training.weighting, chosen.training.ridge)
            wanted = repr((decisive, chosen.arrays, chosen.references))
            if (chosen.arrays or chosen.references) and wanted not in forms:
                resolve(chosen)
                forms.add(wanted)
            files = (chosen.data.phi, chosen.data.file)
            if files not in digests:
                digests[files] = inputs_of(chosen)
        except InputError as error:
            impossible.append((values, in_one_line(error)))
            continue
        except MemoryError as error:  # its closed form, or its topics
            impossible.append((values, f"not enough memory: {error}"))
            continue
        whole = dump_json(chosen.model_dump(mode="json"))
        name = hashlib.sha256(f"{spec.seeds} seeds of {whole}".encode()).hexdigest()[:12]
        point = Point(name, values, whole, digests[files])
        devices[chosen.training.device] = None
        repeated += point.id in points
        points.setdefault(point.id, point)
    if impossible and (on_error == "stop" or not points):
        first, reason = impossible[0]
        more = f" (and {len(impossible) - 1} more)" if len(impossible) > 1 else ""
        raise InputError(
            f"{len(impossible)} of {len(impossible) + len(points) + repeated} settings cannot be trained",
            received=", ".join(f"{name} = {dump_json(value)}" for name, value in first.items()) + more,
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


def in_one_line(error: InputError) -> str:
    """What an error says, without labels and without advice."""
    parts = [error.summary, *(str(p) for p in (error.received, error.expected) if p is not None)]
    return ": ".join(dict.fromkeys(parts))[:400]


def check_possible(recipe: Recipe) -> None:
    """Everything that `train` refuses before its first step, except arrays that are handed in and a missing device.

    Parameters' names do not depend on the words, so the model is tried on four of them.

    Raises:
        InputError: parts of the recipe exclude each other, a file is missing, or nothing is trained.
    """
    topics = topic_model_of(recipe)
    law_of(recipe, topics)
    check_engine(recipe)
    few = TopicModel.disjoint(2, 2)
    num_tokens = masking_of(recipe).num_tokens(len(few.vocabulary))
    known = shapes(recipe.model, num_tokens)
    arrays = {name: np.zeros(known.get(name, ())) for name in recipe.arrays}
    trained = set(known) - start(recipe.model, num_tokens, few, arrays).frozen
    if not trained:
        raise InputError("nothing to train: every part of the model is frozen", expected="at least one trained matrix")
    check_names("training.ridge", recipe.training.ridge, trained)
    for stage in recipe.training.stages:
        check_names("training.stages.train", stage.train, trained)
    unknown = sorted(set(recipe.references) - set(known))
    if unknown:
        raise InputError("no matrix to compare a reference with", received=unknown, expected=", ".join(known))
