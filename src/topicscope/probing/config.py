"""Every option of a probe that can change its numbers, validated and recorded with the result."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from topicscope.errors import InputError

DEFAULT_THRESHOLDS = (0.0005, 0.001, 0.002)


class ProbeOptions(BaseModel):
    """Options of `topicscope.probe`; the defaults are the paper's where the paper states one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: tuple[float, ...] = Field(
        DEFAULT_THRESHOLDS, min_length=1, description="ambiguity thresholds: share of each topic's best words kept"
    )
    unit: Literal["sentence", "passage"] = Field("sentence", description="what the model reads at a time")
    max_units: int | None = Field(None, ge=1, description="a seeded sample of this many units; None: all")
    controls: int = Field(5, ge=0, description="random initialisations of the same architecture to compare with")
    permutations: int = Field(1000, ge=0, description="shuffles of topics over words of like frequency; 0: no verdict")
    exclude_sinks: bool = Field(False, description="read again without the first token, separators and punctuation")
    topic_seeds: int = Field(1, ge=1, description="LDA fits with different seeds; their spread is reported")
    overlap: Literal["drop", "keep"] = Field("drop", description="words of several topics: none of them, or all")
    pieces: Literal["skip", "merge"] = Field("skip", description="words of several tokens: left out, or one word each")
    layers: tuple[int, ...] | None = Field(None, description="layers whose attention is read, from 0; None: all")
    heads: tuple[int, ...] | None = Field(None, description="heads that are read of each layer, from 0; None: all")
    contextual: bool = Field(False, description="compare the mean states of words in the text as well: one more pass")
    profile: int = Field(64, ge=0, description="units whose whole rows of attention are read to profile heads; 0: none")
    language: str = Field("en", min_length=2, description="language of stop words and sentences (ISO 639-1)")
    min_count: int = Field(5, ge=1, description="words rarer than this are left out of the topic model")
    sweeps: int = Field(300, ge=1, description="Gibbs sweeps of the topic model")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of the sample, the topic models and the random controls")
    shard_units: int | None = Field(
        None, ge=1, description="least units of a shard, of whole documents; None: 4096 on a CPU, 65536 elsewhere"
    )
    batch_tokens: int | None = Field(
        None, ge=1, description="tokens the model reads at once, padding counted; None: 2048 on a CPU, 16384 elsewhere"
    )
    batch_size: int | None = Field(None, ge=1, description="most units of a batch; None: as many as the tokens allow")
    padding: Literal["right", "left"] = Field("right", description="side of the padding inside a batch")

    @classmethod
    def checked(cls, **values: Any) -> "ProbeOptions":
        """Validate, with topicscope's own error for what is out of range."""
        try:
            options = cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"][:1])
            raise InputError(
                f"bad option --{name.replace('_', '-')}", received=first.get("input"), expected=first["msg"]
            ) from error
        for value in options.threshold:
            if not 0 < value <= 1:
                raise InputError(
                    "bad option --threshold",
                    received=value,
                    expected="a share of the vocabulary, 0 < threshold <= 1",
                    advice="the paper uses 0.0005, 0.001 and 0.002",
                )
        if len(set(options.threshold)) < len(options.threshold):
            raise InputError(
                "bad option --threshold", received=list(options.threshold), expected="every threshold only once"
            )
        return options
