"""SWEEP.toml: which fields of a recipe take which values; read and checked as recipes are.

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
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from topicscope.errors import InputError
from topicscope.experiments.recipes import recipe_path
from topicscope.lab import Recipe, parsed_override, read_toml

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
        for first, second in pairwise(names):
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
    model: Any = Recipe
    for part in name.split("."):
        if isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields:
            model = model.model_fields[part].annotation
        elif getattr(model, "__origin__", None) is dict and part:
            model = None
        else:
            known = list(_fields(Recipe))
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            ends = [field for field in known if field.rpartition(".")[2] == name.rpartition(".")[2]]
            raise InputError(
                f"a recipe has no field {name}",
                received=name,
                expected="a field of a recipe, such as training.learning_rate",
                where=where,
                advice=f"did you mean {(ends or near)[0]}?",
            )


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def _flat(table: Any, prefix: str = "", where: str | None = None) -> Any:
    """Fields by their full names: `training.steps = 3` without quotes makes a table in TOML."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, Mapping) and not _is_draw(value) and f"{prefix}{name}" != "fields"
        more = _flat(value, f"{prefix}{name}.", where) if inner else {f"{prefix}{name}": value}
        for twice in flat.keys() & more.keys():
            raise InputError(f"sweep: {twice} is given twice", expected="once, with quotes or without", where=where)
        flat |= more
    return flat


def _is_draw(value: Mapping[str, Any]) -> bool:
    return not set(Draw.model_fields).isdisjoint(value)


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
