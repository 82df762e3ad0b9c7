"""ModelConfig: which transformer, what is trained in it, and how it starts."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from topicscope.errors import InputError


class NotReducibleError(InputError):
    """A model that cannot be computed from token counts; the message gives the reason."""


class ModelConfig(BaseModel):
    """The paper's one-layer transformer and, one switch at a time, the way to a full BERT layer.

    At token level, X̃ one-hot [token position], A = softmax over keys of (W_K Z)ᵀ (W_Q Z) / √d_a:

        Z = W_E X̃        X̂ = W_pred W_V Z A + b_pred

    The defaults are the setting of Theorem 2's attention stage: one-hot embeddings, identity head, no bias.

    Raises:
        InputError: parts that exclude each other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    embedding: Literal["one-hot", "trained"] = Field("one-hot", description="W_E: frozen identity, or trained")
    width: int | None = Field(None, ge=1, description="d, rows of a trained W_E")
    head: Literal["tied", "trained"] = Field("tied", description="W_pred: W_Eᵀ, or its own trained matrix")
    bias: Literal["zero", "fixed", "trained"] = Field("zero", description="b_pred; fixed: the array handed in")
    attention: Literal["trained", "uniform"] = Field("trained", description="uniform: W_K = W_Q = 0, frozen")
    attention_width: int | None = Field(None, ge=1, description="d_a of a head; default d over the number of heads")
    value: Literal["trained", "identity", "block", "diagonal", "fixed"] = Field(
        "trained",
        description="W_V: trained, or frozen at s·I, s on same-topic words, s on words' diagonal, the array given",
    )
    value_scale: float = Field(1.0, description="s of a frozen identity, block or diagonal W_V")
    heads: int = Field(1, ge=1, description="attention heads; without output projection their outputs are added")
    layers: int = Field(1, ge=1, description="layers")
    output_projection: bool = Field(False, description="W_O after the heads, whose values then have width d/heads")
    residual: bool = Field(False, description="add the input of each sub-layer to its output")
    layer_norm: bool = Field(False, description="normalise after each sub-layer, as BERT does")
    feed_forward: int = Field(0, ge=0, description="hidden width of a feed-forward sub-layer; 0: none")
    positions: int = Field(0, ge=0, description="learned positions for documents up to this length; 0: none")
    sigma: float = Field(0.02, ge=0, description="standard deviation of the centred normal start of every matrix")
    sigmas: dict[str, float] = Field(default_factory=dict, description="the same for single matrices, by name")
    frozen: tuple[str, ...] = Field(
        (),
        description="further parameters that keep their start value, by name: W_Q freezes that of every layer, W_Q_2 "
        "only the second layer's",
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> "ModelConfig":
        if (self.embedding == "trained") != (self.width is not None):
            raise InputError(
                "embedding and width disagree",
                received=f'embedding = "{self.embedding}", width = {self.width}',
                expected="a width with trained embeddings, none with one-hot ones",
            )
        if self.value in ("block", "diagonal") and self.embedding != "one-hot":
            raise InputError(
                f'value = "{self.value}" speaks of words', expected='embedding = "one-hot"', received=self.embedding
            )
        if self.value in ("identity", "block", "diagonal") and (self.heads > 1 or self.output_projection):
            raise InputError(
                f'value = "{self.value}" needs one head and no output projection',
                received=f"heads = {self.heads}, output_projection = {self.output_projection}",
            )
        return self


def why_not_reduced(config: ModelConfig) -> str | None:
    """Why this model is not a function of token counts alone, or None if it is."""
    reasons = {
        "more than one layer": config.layers > 1,
        "more than one head": config.heads > 1,
        "positions": config.positions > 0,
        "a residual connection": config.residual,
        "layer normalisation": config.layer_norm,
        "a feed-forward sub-layer": config.feed_forward > 0,
        "an output projection": config.output_projection,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    return f"the model has {', '.join(found)}" if found else None
