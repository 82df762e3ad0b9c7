"""The paper's transformer at token level, to be read from top to bottom: its config, its parameters, what it computes.

The parameters and how they start are the same for the model on token counts (`lab.engine`).

Axes: batch (document), query and key (positions), head, d (width), a (width of a head's keys), token (D types).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from topicscope.errors import InputError
from topicscope.synthetic import MaskedBatch, Weighting
from topicscope.topics import TopicModel

Loss = Literal["cross-entropy", "squared"]

_NO_NORMAL = {"b_pred": 0.0, "b_in": 0.0, "b_out": 0.0, "ln_attention_bias": 0.0, "ln_feed_forward_bias": 0.0}
_NO_NORMAL |= {"ln_attention_gain": 1.0, "ln_feed_forward_gain": 1.0}


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
    parameters, kept = {}, set()
    for name, shape in known.items():
        base = re.sub(r"_\d+$", "", name)  # W_K of W_K_2
        value: Any
        if name in arrays:
            value = arrays[name]
        elif base == "W_E" and config.embedding == "one-hot":
            value = np.eye(shape[1])
        elif base in ("W_K", "W_Q") and config.attention == "uniform":
            value = np.zeros(shape)
        elif base == "W_V" and config.value == "identity":
            value = config.value_scale * np.eye(shape[0])
        elif base == "W_V" and config.value in ("block", "diagonal"):
            if topic_model is None:
                raise InputError(f'value = "{config.value}" needs the topic model', expected="topic_model=")
            words = len(topic_model.vocabulary)
            member = topic_model.members.astype(np.float64)
            pairs = np.minimum(member.T @ member, 1) if config.value == "block" else np.eye(words)
            value = config.value_scale * np.pad(pairs, (1, shape[0] - 1 - words))  # [MASK], START and END give 0
        elif base in _NO_NORMAL:
            value = np.full(shape, _NO_NORMAL[base])
        else:
            sigma = config.sigmas.get(name, config.sigmas.get(base, config.sigma))
            value = sigma * np.random.default_rng([seed, crc32(name.encode())]).standard_normal(shape)
        if np.shape(value) != shape:
            raise InputError(f"{name} has the wrong shape", received=np.shape(value), expected=shape)
        parameters[name] = torch.tensor(np.asarray(value), dtype=dtype)
        if frozen & {name, base}:
            kept.add(name)
    return Start(parameters, frozenset(kept))


def data_loss(
    logits: Float[Tensor, "selected token"],
    labels: Int[Tensor, " selected"],
    weights: Float[Tensor, " selected"],
    loss: Loss,
) -> Float[Tensor, ""]:
    """Σ_j w_j ℓ(z_j, e_{x_j}): ℓ = -log softmax(z)_x, or ‖z - e_x‖² summed over the vocabulary (the paper's).

    The weights hold 1/|M| and the mean over documents (`MaskedBatch.position_weights`).
    """
    if loss == "cross-entropy":
        each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    else:
        each = (logits - torch.nn.functional.one_hot(labels, logits.shape[-1])).square().sum(-1)
    return (weights * each).sum()


class TopicTransformer(nn.Module):
    """Z = W_E X̃;  X̂ = W_pred W_V Z A + b_pred;  A = softmax over keys of (W_K Z)ᵀ(W_Q Z)/√d_a (Knowls 1-5).

    Parts that are not trained are buffers: no optimiser can move them. With uniform attention W_K = W_Q = 0, so that
    every attended key weighs the same. A document with nothing to attend gets a value of 0.
    """

    def __init__(self, config: ModelConfig, start: Start) -> None:
        super().__init__()
        self.config = config
        self.frozen = start.frozen
        for name, value in start.parameters.items():
            if name in start.frozen:
                self.register_buffer(name, value.clone())
            else:
                self.register_parameter(name, nn.Parameter(value.clone()))

    def weights(self) -> dict[str, Tensor]:
        """Every matrix by name, frozen ones too; detached, sharing memory."""
        return {name: value.detach() for name, value in self.state_dict(keep_vars=True).items()}

    def forward(self, batch: MaskedBatch) -> Float[Tensor, "batch position token"]:
        """The prediction X̂ at every position."""
        return self._run(batch)[0]

    def attention(self, batch: MaskedBatch) -> list[Float[Tensor, "batch head query key"]]:
        """The attention of each layer; rows sum to 1 over the keys."""
        return self._run(batch)[1]

    def data_loss(self, batch: MaskedBatch, loss: Loss, weighting: Weighting) -> Float[Tensor, ""]:
        """The loss of Knowl 6 on one batch."""
        logits = self(batch)
        selected = torch.from_numpy(batch.selected).to(logits.device)
        labels = torch.from_numpy(batch.labels).to(logits.device)
        weights = torch.from_numpy(batch.position_weights(weighting)).to(logits)
        return data_loss(logits[selected], labels[selected], weights[selected], loss)

    def _part(self, name: str, layer: int = 0) -> Tensor:
        part = getattr(self, layer_name(name, layer))
        assert isinstance(part, Tensor)
        return part

    def _run(self, batch: MaskedBatch) -> tuple[Tensor, list[Tensor]]:
        W_E = self._part("W_E")  # [d token]
        ids = torch.from_numpy(batch.input_ids).to(W_E.device)
        attendable = torch.from_numpy(batch.attendable).to(W_E.device)
        # PAD has no embedding: it shows [MASK]'s, which nothing attends and no loss reads.
        ids = ids.masked_fill(ids == batch.vocabulary_size + 3, 0)
        self._check(ids)
        z = W_E.T[ids]  # [batch position d]
        if self.config.positions:
            z = z + self._part("W_pos").T[: z.shape[1]]
        patterns = []
        for layer in range(self.config.layers):
            pattern = self._pattern(z, attendable, layer)
            z = self._sub_layer(z, self._attend(z, pattern, layer), "ln_attention", layer)
            if self.config.feed_forward:
                z = self._sub_layer(z, self._feed_forward(z, layer), "ln_feed_forward", layer)
            patterns.append(pattern)
        W_pred = self._part("W_pred") if self.config.head == "trained" else W_E.T  # [token d]
        return z @ W_pred.T + self._part("b_pred"), patterns

    def _pattern(
        self, z: Float[Tensor, "batch position d"], attendable: Bool[Tensor, "batch key"], layer: int
    ) -> Float[Tensor, "batch head query key"]:
        """softmax over attended keys k of (W_Q z_q)·(W_K z_k)/√d_a."""
        q = self._heads(z @ self._part("W_Q", layer).T)  # [batch query head a]
        k = self._heads(z @ self._part("W_K", layer).T)  # [batch key head a]
        scores = torch.einsum("bqha,bkha->bhqk", q, k) / math.sqrt(q.shape[-1])
        keys = attendable[:, None, None, :]
        scores = scores.masked_fill(~keys, torch.finfo(scores.dtype).min)
        # The product clears rows in which no key is attended.
        return torch.softmax(scores, dim=-1) * keys

    def _attend(
        self, z: Float[Tensor, "batch position d"], pattern: Float[Tensor, "batch head query key"], layer: int
    ) -> Float[Tensor, "batch position d"]:
        values = self._heads(z @ self._part("W_V", layer).T)  # [batch key head value]
        if not self.config.output_projection:
            return torch.einsum("bhqk,bkhd->bqd", pattern, values)
        mixed = torch.einsum("bhqk,bkhv->bqhv", pattern, values)
        return mixed.flatten(2) @ self._part("W_O", layer).T

    def _feed_forward(self, z: Float[Tensor, "batch position d"], layer: int) -> Float[Tensor, "batch position d"]:
        hidden = torch.nn.functional.gelu(z @ self._part("W_in", layer).T + self._part("b_in", layer))
        return hidden @ self._part("W_out", layer).T + self._part("b_out", layer)

    def _sub_layer(self, z: Tensor, out: Tensor, norm: str, layer: int) -> Float[Tensor, "batch position d"]:
        """Residual connection and layer norm around a sub-layer's output, where the config has them."""
        if self.config.residual:
            out = z + out
        if self.config.layer_norm:
            gain, bias = self._part(f"{norm}_gain", layer), self._part(f"{norm}_bias", layer)
            out = torch.nn.functional.layer_norm(out, out.shape[-1:], gain, bias)
        return out

    def _heads(self, x: Float[Tensor, "batch position all"]) -> Float[Tensor, "batch position head each"]:
        return x.reshape(*x.shape[:2], self.config.heads, -1)

    def _check(self, ids: Int[Tensor, "batch position"]) -> None:
        limit = self._part("W_E").shape[1]
        if ids.numel() and int(ids.max()) >= limit:
            raise InputError(
                "the documents hold tokens that the model does not know",
                received=f"token id {int(ids.max())}",
                expected=f"ids below {limit}",
                advice="give documents with START and END a model with as many tokens (Masking.num_tokens)",
            )
        if self.config.positions and ids.shape[1] > self.config.positions:
            raise InputError(
                "a document is longer than the model's positions",
                received=ids.shape[1],
                expected=f"at most {self.config.positions}",
            )
