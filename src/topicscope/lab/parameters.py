"""ModelConfig: which transformer, what is trained in it, and how it starts; and from it the parameters and their start.

The same for the token-level and the reduced model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from topicscope.errors import InputError
from topicscope.topics import TopicModel

_NO_NORMAL = {"b_pred": 0.0, "b_in": 0.0, "b_out": 0.0, "ln_attention_bias": 0.0, "ln_feed_forward_bias": 0.0}
_NO_NORMAL |= {"ln_attention_gain": 1.0, "ln_feed_forward_gain": 1.0}


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


@dataclass(frozen=True, eq=False)
class Start:
    """Every parameter's start value by name, and the names of those that are never trained."""

    parameters: dict[str, Tensor]
    frozen: frozenset[str]


def layer_name(name: str, layer: int) -> str:
    """The parameter's name in layer 0, 1, …: W_K, W_K_2, W_K_3, …"""
    return name if layer == 0 else f"{name}_{layer + 1}"


def shapes(config: ModelConfig, num_tokens: int) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of the model, by name; D = num_tokens, d the width, h heads.

    W_E [d D], W_pred [D d] if not tied, b_pred [D], W_pos [d position]; in each layer W_K, W_Q [h·d_a d],
    W_V [h·d_v d] with d_v = d, or d/h before W_O [d h·d_v]; W_in [f d], b_in [f], W_out [d f], b_out [d];
    gains and biases of the layer norms [d].
    """
    D = num_tokens
    d = D if config.width is None else config.width
    d_a = config.attention_width or max(1, d // config.heads)
    d_v = max(1, d // config.heads) if config.output_projection else d
    out: dict[str, tuple[int, ...]] = {"W_E": (d, D)}
    if config.head == "trained":
        out["W_pred"] = (D, d)
    out["b_pred"] = (D,)
    if config.positions:
        out["W_pos"] = (d, config.positions)
    layer: dict[str, tuple[int, ...]] = {
        "W_K": (config.heads * d_a, d),
        "W_Q": (config.heads * d_a, d),
        "W_V": (config.heads * d_v, d),
    }
    if config.output_projection:
        layer["W_O"] = (d, config.heads * d_v)
    if config.layer_norm:
        layer |= {"ln_attention_gain": (d,), "ln_attention_bias": (d,)}
    if config.feed_forward:
        f = config.feed_forward
        layer |= {"W_in": (f, d), "b_in": (f,), "W_out": (d, f), "b_out": (d,)}
        if config.layer_norm:
            layer |= {"ln_feed_forward_gain": (d,), "ln_feed_forward_bias": (d,)}
    for index in range(config.layers):
        out |= {layer_name(name, index): shape for name, shape in layer.items()}
    return out


def start(
    config: ModelConfig,
    num_tokens: int,
    topic_model: TopicModel | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Start:
    """Start values: handed in (`arrays`), set by the config, or centred normal with the matrix's σ; biases 0.

    Each matrix is drawn from its own generator of (seed, name): freezing or resizing one never changes another.
    topic_model is needed for value = "block".

    Raises:
        InputError: an unknown name, a wrong shape, or a fixed part that was not handed in.
    """
    arrays = arrays or {}
    known = shapes(config, num_tokens)
    for field, given in (("arrays", arrays), ("sigmas", config.sigmas), ("frozen", config.frozen)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise InputError(f"unknown parameter in {field}", received=unknown, expected=f"some of {', '.join(known)}")
    for name in [*(["W_V"] if config.value == "fixed" else []), *(["b_pred"] if config.bias == "fixed" else [])]:
        if name not in arrays:
            raise InputError(f"{name} is to be fixed, but no array was handed in", expected=known[name])
    frozen = {*config.frozen}
    frozen |= {"W_E"} if config.embedding == "one-hot" else set()
    frozen |= {"W_K", "W_Q"} if config.attention == "uniform" else set()
    frozen |= {"W_V"} if config.value != "trained" else set()
    frozen |= {"b_pred"} if config.bias != "trained" else set()
    parameters = {}
    for name, shape in known.items():
        value = arrays[name] if name in arrays else _own(config, name, shape, topic_model, seed)
        if np.shape(value) != shape:
            raise InputError(f"{name} has the wrong shape", received=np.shape(value), expected=shape)
        parameters[name] = torch.tensor(np.asarray(value), dtype=dtype)
    return Start(parameters, frozenset(name for name in known if name in frozen or _base(name) in frozen))


def _base(name: str) -> str:
    """The name without its layer's suffix."""
    stem, _, suffix = name.rpartition("_")
    return stem if suffix.isdigit() else name


def _own(
    config: ModelConfig, name: str, shape: tuple[int, ...], topic_model: TopicModel | None, seed: int
) -> np.ndarray:
    """The config's own start value: what it fixes, else 0 or 1 for biases and gains, else drawn."""
    base = _base(name)
    if base == "W_E" and config.embedding == "one-hot":
        return np.eye(shape[1])
    if base in ("W_K", "W_Q") and config.attention == "uniform":
        return np.zeros(shape)
    if base == "W_V" and config.value in ("identity", "block", "diagonal"):
        return config.value_scale * _value(config.value, shape[0], topic_model)
    if base in _NO_NORMAL:
        return np.full(shape, _NO_NORMAL[base])
    sigma = config.sigmas.get(name, config.sigmas.get(base, config.sigma))
    return np.asarray(sigma * np.random.default_rng([seed, crc32(name.encode())]).standard_normal(shape))


def _value(kind: str, size: int, topic_model: TopicModel | None) -> np.ndarray:
    """Identity; block: 1 where two words share a topic; diagonal: 1 for words. [MASK], START and END give 0 in both."""
    if kind == "identity":
        return np.eye(size)
    if topic_model is None:
        raise InputError(f'value = "{kind}" needs the topic model', expected="topic_model=")
    words = len(topic_model.vocabulary)
    member = topic_model.members.astype(np.float64)
    block = np.minimum(member.T @ member, 1) if kind == "block" else np.eye(words)
    return np.pad(block, (1, size - 1 - words))
