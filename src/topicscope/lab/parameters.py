"""Start values and frozen parts: the same for the token-level and the reduced model."""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from topicscope.errors import InputError
from topicscope.lab.config import ModelConfig
from topicscope.topics import TopicModel

_NO_NORMAL = {"b_pred": 0.0, "b_in": 0.0, "b_out": 0.0, "ln_attention_bias": 0.0, "ln_feed_forward_bias": 0.0}
_NO_NORMAL |= {"ln_attention_gain": 1.0, "ln_feed_forward_gain": 1.0}


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
    fixed = _fixed(config, known, num_tokens, topic_model)
    for name in [*(["W_V"] if config.value == "fixed" else []), *(["b_pred"] if config.bias == "fixed" else [])]:
        if name not in arrays:
            raise InputError(f"{name} is to be fixed, but no array was handed in", expected=known[name])
    parameters = {}
    for name, shape in known.items():
        value = arrays[name] if name in arrays else fixed.get(name, _drawn(config, name, shape, seed))
        if np.shape(value) != shape:
            raise InputError(f"{name} has the wrong shape", received=np.shape(value), expected=shape)
        parameters[name] = torch.tensor(np.asarray(value), dtype=dtype)
    return Start(parameters, _frozen(config, known))


def _base(name: str) -> str:
    """The name without its layer's suffix."""
    stem, _, suffix = name.rpartition("_")
    return stem if suffix.isdigit() else name


def _drawn(config: ModelConfig, name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    base = _base(name)
    if base in _NO_NORMAL:
        return np.full(shape, _NO_NORMAL[base])
    sigma = config.sigmas.get(name, config.sigmas.get(base, config.sigma))
    return np.asarray(sigma * np.random.default_rng([seed, crc32(name.encode())]).standard_normal(shape))


def _frozen(config: ModelConfig, known: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    bases = set(config.frozen)
    bases |= {"W_E"} if config.embedding == "one-hot" else set()
    bases |= {"W_K", "W_Q"} if config.attention == "uniform" else set()
    bases |= {"W_V"} if config.value != "trained" else set()
    bases |= {"b_pred"} if config.bias != "trained" else set()
    return frozenset(name for name in known if name in bases or _base(name) in bases)


def _fixed(
    config: ModelConfig, known: Mapping[str, tuple[int, ...]], num_tokens: int, topic_model: TopicModel | None
) -> dict[str, np.ndarray]:
    """What the config itself fixes."""
    fixed: dict[str, np.ndarray] = {}
    if config.embedding == "one-hot":
        fixed["W_E"] = np.eye(num_tokens)
    for name, shape in known.items():
        if _base(name) in ("W_K", "W_Q") and config.attention == "uniform":
            fixed[name] = np.zeros(shape)
        if _base(name) == "W_V" and config.value in ("identity", "block", "diagonal"):
            fixed[name] = config.value_scale * _value(config.value, shape[0], topic_model)
    return fixed


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
