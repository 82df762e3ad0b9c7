"""Every option of a probe, written down once: the command line with its help, the keyword arguments of Python, the
record of a result and the reference come from `ProbeConfig`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_type_hints, no_type_check

from cyclopts import Parameter
from pydantic import Field, ValidationError, create_model

from topicscope.errors import InputError
from topicscope.options import ADVANCED, COMPUTE, MEASUREMENT, MODEL, STATISTICS, TEXT, TOPICS, Whole

DEFAULT_THRESHOLDS = (0.0005, 0.001, 0.002)

_SEVERAL = Parameter(consume_multiple=True)
_SPACED = Parameter(show_default=lambda values: " ".join(map(str, values)))


class _Bounds(NamedTuple):
    """What a value must keep to. Hidden from cyclopts, so that Python and the command line give the same error."""

    ge: int | None = None
    lt: int | None = None
    min_length: int | None = None


_FROM_0, _FROM_1 = _Bounds(ge=0), _Bounds(ge=1)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """Options of `topicscope.probe`; the defaults are the paper's where the paper states one.

    Raises:
        InputError: a value that is out of range.
    """

    threshold: Annotated[tuple[float, ...], _Bounds(min_length=1), _SEVERAL, _SPACED, TOPICS] = DEFAULT_THRESHOLDS
    "Share of the vocabulary kept for each topic; several may be given."
    unit: Annotated[Literal["sentence", "passage"], TEXT] = "sentence"
    "What the model reads at a time."
    max_units: Annotated[Whole | None, _FROM_1, TEXT] = None
    "Read a seeded sample of this many units. Topics are fitted on the whole corpus all the same."
    controls: Annotated[Whole, _FROM_0, STATISTICS] = 5
    "Random initialisations of the model to compare with."
    permutations: Annotated[Whole, _FROM_0, STATISTICS] = 1000
    "Shuffles of the topics over words of like frequency, which the verdict needs; 0 for none and no verdict."
    exclude_sinks: Annotated[bool, MEASUREMENT] = False
    "Read the text once more without the keys that draw attention anyway: first token, separators, punctuation."
    topic_seeds: Annotated[Whole, _FROM_1, TOPICS] = 1
    "Topic models with different seeds; their spread is reported."
    overlap: Annotated[Literal["drop", "keep"], TOPICS] = "drop"
    "Words of several topics belong to none of them (drop, the paper) or to all (keep)."
    pieces: Annotated[Literal["skip", "merge"], MEASUREMENT] = "skip"
    "Words broken into pieces are skipped and counted (the paper), or merged into one word each."
    layers: Annotated[tuple[Whole, ...] | None, _SEVERAL, MEASUREMENT] = None
    "Read these layers only, numbered from 0, and run the model no further than the last of them."
    heads: Annotated[tuple[Whole, ...] | None, _SEVERAL, MEASUREMENT] = None
    "Read these heads of each layer only."
    contextual: Annotated[bool, MEASUREMENT] = False
    "Compare the mean states of words in the text as well, layer by layer; one more pass for each control too."
    profile: Annotated[Whole, _FROM_0, MEASUREMENT] = 64
    "Profile every head on a sample of this many units: where else it looks, and sentences as examples. 0: none."
    language: Annotated[str, _Bounds(min_length=2), TEXT] = "en"
    "Language of stop words and sentences (ISO 639-1)."
    min_count: Annotated[Whole, _FROM_1, TOPICS] = 5
    "Words rarer than this stay out of the topic model."
    sweeps: Annotated[Whole, _FROM_1, TOPICS] = 300
    "Gibbs sweeps of the topic model."
    seed: Annotated[Whole, _Bounds(ge=0, lt=2**31), STATISTICS] = 0
    "Seed of the sample, the topic models and the random controls."
    shard_units: Annotated[Whole | None, _FROM_1, ADVANCED] = None
    "Least units of a shard, of whole documents, which a worker reads at a time; 4096 on a CPU, else 65536."
    batch_tokens: Annotated[Whole | None, _FROM_1, ADVANCED] = None
    "Tokens read at once, padding counted; 2048 on a CPU, else 16384."
    batch_size: Annotated[Whole | None, _FROM_1, ADVANCED] = None
    "Most units read at once; as many as the tokens allow unless given."
    padding: Annotated[Literal["right", "left"], Parameter(parse=False)] = "right"
    "Side of the padding inside a batch."
    device: Annotated[str, COMPUTE] = "cpu"
    "cpu, cuda, cuda:N or mps; auto takes the best that is there."
    dtype: Annotated[str | None, COMPUTE] = None
    "float32, float16 or bfloat16."
    revision: Annotated[str | None, MODEL] = None
    "Revision of the model on the hub; MODEL@REVISION says the same."
    trust_remote_code: Annotated[str | None, MODEL] = None
    "Run the code that comes with a model; the model's name must be repeated here."

    def __post_init__(self) -> None:
        try:
            checked = _CHECKED(**vars(self))
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]).replace("_", "-")
            raise InputError(f"bad option --{name}", received=first.get("input"), expected=first["msg"]) from error
        for name, value in checked:  # a list has become a tuple
            object.__setattr__(self, name, value)
        for value in self.threshold:
            if not 0 < value <= 1:
                raise InputError(
                    "bad option --threshold",
                    received=value,
                    expected="a share of the vocabulary, 0 < threshold <= 1",
                    advice="the paper uses 0.0005, 0.001 and 0.002",
                )
        if len(set(self.threshold)) < len(self.threshold):
            raise InputError(
                "bad option --threshold", received=list(self.threshold), expected="every threshold only once"
            )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, for the record of a result; what code was trusted is not kept."""
        kept = {name: value for name, value in vars(self).items() if name != "trust_remote_code"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}

    def updated(self, overrides: Mapping[str, Any], call: Callable[..., Any]) -> "ProbeConfig":
        """With other values; overrides: keywords of `call` that are none of its own parameters.

        Raises:
            InputError: a name that neither has, with the nearest of both; a value that is out of range.
        """
        for name, value in overrides.items():
            if name not in vars(self):
                near = get_close_matches(name, [*vars(self), *inspect.signature(call).parameters], n=1)
                expected = f"{near[0]}=, perhaps" if near else ", ".join(f"{option}=" for option in vars(self))
                raise InputError(f"unknown option {name}=", received=value, expected=expected)
        return replace(self, **overrides)


# The same fields for pydantic, which checks types and bounds.
_FIELDS: dict[str, Any] = {}
for _name, _hint in get_type_hints(ProbeConfig, include_extras=True).items():
    _bounds = [found for found in _hint.__metadata__ if isinstance(found, _Bounds)]
    _FIELDS[_name] = (_hint, Field(**_bounds[0]._asdict()) if _bounds else ...)
_CHECKED = create_model("ProbeConfig", **_FIELDS)
no_type_check(ProbeConfig.__init__)  # it checks types itself, and says what is wrong as the command line does
ProbeConfig.__init__.__annotations__.update(get_type_hints(ProbeConfig))  # what `help` shows: bare types


class ProbeOverrides(TypedDict, total=False):
    """The fields of `ProbeConfig` as keywords, which type checkers cannot derive: a test compares the two."""

    threshold: tuple[float, ...]
    unit: Literal["sentence", "passage"]
    max_units: int | None
    controls: int
    permutations: int
    exclude_sinks: bool
    topic_seeds: int
    overlap: Literal["drop", "keep"]
    pieces: Literal["skip", "merge"]
    layers: tuple[int, ...] | None
    heads: tuple[int, ...] | None
    contextual: bool
    profile: int
    language: str
    min_count: int
    sweeps: int
    seed: int
    shard_units: int | None
    batch_tokens: int | None
    batch_size: int | None
    padding: Literal["right", "left"]
    device: str
    dtype: str | None
    revision: str | None
    trust_remote_code: str | None
