"""Recipes: every choice of a training run as typed, documented data; read from TOML, never executed.

A recipe has the tables [data], [masking], [model], [training], [history], [arrays] and [references]; README and
docs/laboratory.md show them, `recipes/` holds one for each experiment of the paper. `[model]` is
`topicscope.lab.ModelConfig`.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

import topicscope
from topicscope.errors import InputError
from topicscope.lab.transformer import ModelConfig
from topicscope.records import require_regular_file
from topicscope.synthetic import Setting

Array = Literal["theorem-2", "finite-n", "diagonal", "theorem-1"]


class Table(BaseModel):
    """A table of a recipe: frozen, unknown keys refused, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Data(Table):
    """[data]: which documents."""

    num_topics: int = Field(default=10, ge=1, description="T, number of topics")
    words_per_topic: int = Field(default=10, ge=1, description="v, words in each topic")
    topic_sizes: tuple[int, ...] | None = Field(
        default=None, description="disjoint topics of these sizes, instead of T x v"
    )
    shared_words: int = Field(
        default=0, ge=0, description="words that each topic shares with the next (overlapping topics)"
    )
    phi: str | None = Field(
        default=None,
        description="topics of one's own instead of all these: a file beside the recipe with the matrix [topic, word] "
        "of probabilities, npy, CSV or npz (`phi`)",
    )
    topics_per_document: int | None = Field(
        default=None, description="τ distinct topics a document; none: Dirichlet(alpha)"
    )
    alpha: float | tuple[float, ...] = Field(
        default=0.1, description="Dirichlet parameter of the topic proportions, one or one a topic, when τ is not given"
    )
    linked: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of documents in which topics 1 and 2, 3 and 4, … divide their part equally: correlation",
    )
    length: int | tuple[int, int] = Field(default=(100, 150), description="N, or [shortest, longest]")
    source: Literal["fresh", "fixed", "counts", "population"] = Field(
        default="fresh",
        description="fresh: new documents and masks every step; fixed: one set, masked once; counts: fresh but drawn "
        "as counts, for very long documents; population: N infinite, every document type with its weight",
    )
    documents: int = Field(default=2000, ge=1, description="size of a fixed set")
    file: str | None = Field(
        default=None,
        description="a fixed set with its masks, an npz beside the recipe that `MaskedBatch.save` wrote; instead of "
        "drawing one",
    )
    specials: bool = Field(
        default=False, description="every document begins with START and ends with END, as in released data"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Data":
        if self.source == "population" and self.topics_per_document is None:
            raise ValueError("population needs topics_per_document (the law of θ must be a finite list)")
        if self.source == "population" and self.linked:
            raise ValueError("population knows no linked topics")
        if self.topic_sizes is not None and self.shared_words:
            raise ValueError("topic_sizes and shared_words exclude each other")
        if self.file is not None and self.source != "fixed":
            raise ValueError("file belongs to source = 'fixed'")
        sizes = {"num_topics": 10, "words_per_topic": 10, "topic_sizes": None, "shared_words": 0}
        if self.phi is not None and any(getattr(self, name) != default for name, default in sizes.items()):
            raise ValueError(f"phi stands instead of {', '.join(sizes)}: leave them out")
        alphas = self.alpha if isinstance(self.alpha, tuple) else (self.alpha,)
        topics = len(self.topic_sizes or ()) or self.num_topics
        # How many topics a file holds is seen when it is read, and a wrong number of alphas is refused then.
        right = isinstance(self.alpha, float) or self.phi is not None or len(alphas) == topics
        if not right or not min(alphas, default=0) > 0:
            raise ValueError(f"alpha must be positive, one number or {topics} of them")
        return self


class Masking(Table):
    """[masking]: Knowl 6."""

    p_mask: float = Field(default=0.15, gt=0, lt=1, description="p_m, share of positions selected")
    p_correct: float = Field(default=0.1, ge=0, lt=1, description="p_c, share of the selected left as they are")
    p_random: float = Field(
        default=0.1, ge=0, lt=1, description="p_r, share of the selected replaced by a uniform word"
    )
    hide_selected: bool = Field(
        default=False, description="selected positions are not attended (the released code's variant)"
    )


class Stage(Table):
    """[[training.stages]]: part of a schedule, in which only some matrices move."""

    share: float = Field(gt=0, le=1, description="share of training.steps")
    train: tuple[str, ...] = Field(description="names of the matrices that move, e.g. W_V")
    learning_rate: float | None = Field(default=None, gt=0, description="instead of training.learning_rate")


class Training(Table):
    """[training]: loss, optimiser and schedule."""

    loss: Literal["cross-entropy", "squared"] = Field(
        default="cross-entropy", description="squared: summed over the vocabulary"
    )
    weighting: Literal["document", "token"] = Field(default="document", description="what counts the same in the loss")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(default="adam", description="update rule")
    learning_rate: float = Field(default=0.01, gt=0, description="at the start of the schedule, after warm-up")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled decay of AdamW; a true L2 term is `ridge`")
    schedule: Literal["constant", "cosine", "linear"] = Field(
        default="constant", description="decay to zero within each stage"
    )
    warmup: int = Field(default=0, ge=0, description="steps of linear warm-up at the start of each stage")
    steps: int = Field(default=1000, ge=1, description="updates in all")
    batch_size: int | Literal["all"] = Field(
        default=40, description="documents a step; 'all' for a fixed set used whole"
    )
    ridge: dict[str, float] = Field(default={}, description="λ of λ‖W‖²_F added to the loss, by matrix name")
    average: float = Field(
        default=0.0, ge=0, lt=1, description="the result is the mean iterate of this last share of the steps"
    )
    clip: float | None = Field(default=None, gt=0, description="largest gradient norm of one seed; off unless given")
    dtype: Literal["float32", "float64"] = Field(default="float32", description="of parameters and losses")
    device: str = Field(default="cpu", description="a torch device")
    engine: Literal["auto", "reduced", "token"] = Field(
        default="auto",
        description="reduced: token counts, seeds stacked (fast); token: the plain module; auto: reduced if exact",
    )
    seed: int = Field(default=0, ge=0, description="first seed; run number s uses seed + s for start and data")
    stages: tuple[Stage, ...] = Field(
        default=(), description="a schedule; without one, everything trainable moves all the time"
    )
    checkpoint_every: int = Field(
        default=500, ge=1, description="steps between checkpoints, when there is an output folder"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        if self.momentum and self.optimizer != "sgd":
            raise ValueError("momentum belongs to optimizer = 'sgd'")
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError("weight_decay belongs to optimizer = 'adamw'; use ridge for an L2 term in the loss")
        if self.stages and abs(sum(stage.share for stage in self.stages) - 1) > 1e-9:
            raise ValueError("the shares of training.stages must sum to 1")
        if any(value < 0 for value in self.ridge.values()):
            raise ValueError("ridge must not be negative")
        if self.batch_size != "all" and self.batch_size < 1:
            raise ValueError(f"batch_size = {self.batch_size}: at least 1, or 'all'")
        return self


class History(Table):
    """[history]: when and on what to measure."""

    points_per_decade: int = Field(default=10, ge=1, description="of the logarithmic grid")
    every: int = Field(default=100, ge=1, description="step of the linear grid")
    documents: int = Field(
        default=200, ge=1, description="held-out documents for loss and attention, the same for every seed"
    )


class Recipe(Table):
    """One experiment."""

    name: str = Field(default="unnamed", description="short name, used in titles")
    description: str = Field(default="", description="what it shows")
    data: Data = Field(default_factory=Data)
    masking: Masking = Field(default_factory=Masking)
    model: ModelConfig = Field(default_factory=lambda: ModelConfig.model_validate({}))
    training: Training = Field(default_factory=Training)
    history: History = Field(default_factory=History)
    arrays: dict[str, Array] = Field(
        default={},
        description="start values that a closed form gives, by parameter: theorem-2 and diagonal (W_V), theorem-1 "
        "(b_pred). The command line resolves them; in Python hand them to `train(arrays=...)`",
    )
    references: dict[str, Array] = Field(
        default={},
        description="closed forms whose distance to a trained matrix is followed: theorem-2, finite-n, diagonal (W_V)",
    )

    # Kept out of what is saved and compared: a run may be resumed, and a recipe moved, with the files beside it.
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        if self.training.batch_size == "all" and self.data.source != "fixed":
            raise ValueError("batch_size = 'all' needs data.source = 'fixed'")
        return self

    def path(self, name: str) -> Path:
        """Where a file that the recipe names lies: beside the recipe; without a recipe file in the working folder."""
        return self._folder / name

    def setting(self) -> Setting | None:
        """The set-up in which closed forms speak of this recipe, or None: unequal, shared, linked or own topics, a
        saved set, Dirichlet, mixed N.

        Raises:
            InputError: an impossible set-up.
        """
        data, masking, length = self.data, self.masking, self.data.length
        fixed_length = data.source == "population" or isinstance(length, int) or length[0] == length[1]
        other_topics = data.topic_sizes or data.shared_words or data.linked or data.phi or data.file
        if other_topics or data.topics_per_document is None or not fixed_length:
            return None
        return Setting(
            data.num_topics,
            data.words_per_topic,
            data.topics_per_document,
            masking.p_mask,
            masking.p_correct,
            masking.p_random,
            document_length=None if data.source == "population" else length if isinstance(length, int) else length[0],
            weighting=self.training.weighting,
        )


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a TOML recipe; `overrides` are "table.key=value" with a TOML value (a bare word is taken as text).

    Raises:
        InputError: no such file, not TOML, an unknown key (with the nearest valid name) or a value out of range.
    """
    path = Path(path)
    document = read_toml(path, "recipe")
    for text in overrides:
        put_field(document, *parsed_override(text))
    return make_recipe(document, where=str(path), folder=path.parent)


def recipe_path(name: str) -> Path:
    """The file of a recipe that comes with topicscope: in the source tree, or beside the package in an installation.

    Raises:
        InputError: it is in neither.
    """
    package = Path(topicscope.__file__).resolve().parent
    places = [folder / "recipes" / f"{name}.toml" for folder in (package, package.parents[1])]
    for path in places:
        if path.is_file():
            return path
    raise InputError(
        f"the recipe {name} is not installed",
        received=str(places[0].parent),
        expected=f"{name}.toml",
        advice="install topicscope from a wheel or work in its source tree",
    )


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        InputError: no such `what`, or not TOML.
    """
    require_regular_file(path, "a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(f"no such {what}", received=str(path), expected="a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("not a TOML file", received=str(error), where=str(path)) from error


def make_recipe(document: Mapping[str, Any], where: str | None = None, folder: Path | str = "") -> Recipe:
    """A validated recipe from plain data; errors as in `load_recipe`. folder: of the files that it names."""
    try:
        recipe = Recipe.model_validate(dict(document))
    except ValidationError as error:
        raise _explain(error, where) from error
    recipe._folder = Path(folder)
    recipe.setting()
    return recipe


def parsed_override(text: str) -> tuple[str, Any]:
    """Field and value of "table.key=value" with a TOML value; a bare word is taken as text.

    Raises:
        InputError: not of this form.
    """
    name, equals, raw = text.partition("=")
    if not equals or not all(name.strip().split(".")):
        raise InputError("not an override", received=text, expected="table.key=value, e.g. training.steps=2000")
    try:
        return name.strip(), tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        return name.strip(), raw.strip()


def put_field(document: dict[str, Any], field: str, value: Any) -> None:
    """Set "table.key" in plain data.

    Raises:
        InputError: something that is no table holds it.
    """
    *tables, last = field.split(".")
    for name in tables:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise InputError("not a table", received=field, expected=f"{name} holds a single value")
    document[last] = value


def _explain(error: ValidationError, where: str | None) -> InputError:
    """The first fault in our words: the key, what stood there, what may stand there."""
    fault = error.errors()[0]
    location = [str(part) for part in fault["loc"]]
    if fault["type"] != "extra_forbidden":
        # A field that may have one of two types adds the type's name to the location; the key alone is meant.
        types = {"int", "float", "str"}
        key = ".".join(part for part in location if part not in types and not part.startswith(("tuple[", "literal[")))
        messages = [str(f["msg"]) for f in error.errors() if f["loc"][: len(key.split("."))] == tuple(key.split("."))]
        received = fault["input"] if not isinstance(fault["input"], dict) else None
        expected = " or: ".join(messages or [fault["msg"]]).replace("Value error, ", "")
        return InputError(f"recipe: {key or 'the whole'}", received=received, expected=expected, where=where)
    key = ".".join(location)
    names = _names(location[:-1])
    near = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.0)
    full = ".".join([*location[:-1], near[0]]) if near else None
    return InputError(
        f"recipe: unknown key {key}",
        received=location[-1],
        expected=", ".join(names),
        where=where,
        advice=f"did you mean {full}?" if full else None,
    )


def _names(path: Sequence[str]) -> list[str]:
    """Valid keys of the table at `path` (indices of lists are skipped)."""
    model: type[BaseModel] = Recipe
    for part in path:
        if part == "stages":
            model = Stage
        elif part in model.model_fields:
            annotation = model.model_fields[part].annotation
            assert isinstance(annotation, type)
            model = annotation
    return sorted(model.model_fields)
