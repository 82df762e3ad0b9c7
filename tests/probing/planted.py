"""Topic structure planted in the weights of a random model of any family, and the attention it must then have.

All that moves information between positions, or tells places apart, is set to zero, so that every query and key sees
the embedding of its own token: one vector for each topic, one for words without a topic and for specials. W_Q and W_K
are solved so that the score of two tokens is Δ_g where they share a topic and 0 otherwise, with another Δ_g for each
key-value head g. What the model must show then follows from topics and lengths alone (`expected_ratios`).
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.pytorch_utils import Conv1D

from topicscope.probing.hf import ModelView, PartSpec, attention_modules
from topicscope.probing.tokens import AlignedUnit

BASE = 0.6  # Δ of key-value head 0; each further one has half as much more
QUERY_KEY = (
    ("query", "key"), ("q_proj", "k_proj"), ("q", "k"), ("q_lin", "k_lin"), ("query_proj", "key_proj"),
)  # fmt: skip
FUSED = ("c_attn", "query_key_value", "Wqkv")
INTO_THE_BLOCKS = ("embedding_hidden_mapping_in", "embeddings_project")  # ALBERT, ELECTRA


def delta(part: PartSpec, head: int) -> float:
    """The planted difference of scores of a query head."""
    return BASE * (1 + part.key_value_head(head) / 2)


def plant(view: ModelView, classes: Sequence[Sequence[int]]) -> None:
    """classes: token ids of each topic. All other tokens have no topic."""
    model = view._model
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        for name, parameter in model.named_parameters():
            if parameter is not embedding and not re.search(r"norm|\bln_", name.lower()):
                parameter.zero_()
        for name, buffer in model.named_buffers():
            if "inv_freq" in name:
                buffer.zero_()  # rotary positions do not turn
        vectors = torch.randn(len(classes) + 1, embedding.shape[1], generator=generator)
        embedding.copy_(vectors[-1].expand_as(embedding))
        for row, ids in enumerate(classes):
            embedding[torch.tensor(ids)] = vectors[row]
        for name, module in model.named_modules():
            if name.endswith(INTO_THE_BLOCKS):
                # Normalised, so that ALBERT's one block reads the same at every call.
                wide = torch.randn(len(classes) + 1, module.out_features, generator=generator)
                _set(view, module, torch.nn.functional.layer_norm(wide, wide.shape[1:]), classes)
        for pattern, part in zip(view.family.parts, view.parts, strict=True):
            for module in attention_modules(model, pattern):
                _solve(view, part, module, classes)


def _solve(view: ModelView, part: PartSpec, module: torch.nn.Module, classes: Sequence[Sequence[int]]) -> None:
    head_dim = _head_dim(view._model.config, part)
    normed = hasattr(module, "q_norm") and not isinstance(module.q_norm, torch.nn.Identity)
    scale = _scale(view._model.config, head_dim)
    groups = part.key_value_heads or part.num_heads
    query, key = [], []
    for head in range(part.num_heads):
        query.append(_vectors(len(classes), head_dim, delta(part, head), scale, normed, len(classes)))
    for group in range(groups):
        wanted = BASE * (1 + group / 2)
        key.append(_vectors(len(classes), head_dim, wanted, scale, normed, len(classes) + 1))
    children = dict(module.named_children())
    pair = next(((q, k) for q, k in QUERY_KEY if q in children and k in children), None)
    if pair is not None:
        for name, vectors in zip(pair, (query, key), strict=True):
            _set(view, children[name], torch.cat(vectors, 1), classes)
        return
    name = next(name for name in FUSED if name in children)
    outputs = torch.zeros(len(classes) + 1, 3, part.num_heads, head_dim)
    outputs[:, 0], outputs[:, 1] = torch.stack(query, 1), torch.stack(key, 1)
    if name == "query_key_value":  # GPT-NeoX: each head has its query, key and value together
        outputs = outputs.transpose(1, 2)
    _set(view, children[name], outputs.reshape(len(classes) + 1, -1), classes)


def _vectors(topics: int, head_dim: int, wanted: float, scale: float, normed: bool, filler: int) -> torch.Tensor:
    """Queries (or keys) [topic or none, head_dim]: √(Δ/scale) along the topic's own axis.

    Where a norm follows (Qwen 3, Gemma 3), every vector gets length √head_dim, so that Δ is set by the angle to an
    axis that queries and keys do not share.
    """
    assert topics + 2 <= head_dim
    found = torch.zeros(topics + 1, head_dim)
    along = math.sqrt(wanted / scale)
    if normed:
        across = math.sqrt(head_dim - along**2)
        found[:, filler] = across
    for topic in range(topics):
        found[topic, topic] = along
    return found


def _set(view: ModelView, linear: Any, wanted: torch.Tensor, classes: Sequence[Sequence[int]]) -> None:
    """Weights of a linear map that give `wanted` [class, out] for the inputs it sees."""
    inputs = _inputs(view, linear, classes)
    solution = torch.linalg.pinv(inputs.double()) @ wanted.double()
    torch.testing.assert_close(inputs.double() @ solution, wanted.double(), atol=1e-6, rtol=0)
    weight = solution if isinstance(linear, Conv1D) else solution.T
    linear.weight.copy_(weight)


def _inputs(view: ModelView, linear: Any, classes: Sequence[Sequence[int]]) -> torch.Tensor:
    """What the map reads at a token of each class [class, in]."""
    model = view._model
    taken = {token for ids in classes for token in ids}
    size = model.get_input_embeddings().num_embeddings
    free = next(token for token in range(size - 1, 0, -1) if token not in taken)
    ids = torch.tensor([[row[0]] * 4 for row in classes] + [[free] * 4])
    seen: list[torch.Tensor] = []
    handle = linear.register_forward_pre_hook(lambda _module, args: seen.append(args[0].detach()))
    model.eval()(**view._inputs(ids, torch.ones_like(ids)))
    handle.remove()
    return seen[-1][:, 2]


def _head_dim(config: Any, part: PartSpec) -> int:
    named = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
    width = next(getattr(config, n) for n in ("hidden_size", "d_model", "dim", "n_embd") if hasattr(config, n))
    return named or width // part.num_heads


def _scale(config: Any, head_dim: int) -> float:
    """The factor that each family gives its scores."""
    if config.model_type in ("t5", "mt5"):
        return 1.0
    if config.model_type == "deberta-v2":
        return (head_dim * (1 + len(config.pos_att_type))) ** -0.5
    return getattr(config, "query_pre_attn_scalar", head_dim) ** -0.5


def expected_attention(config: Any, part: PartSpec, layer: int, head: int, topics: np.ndarray) -> np.ndarray:
    """Attention [query, key] that the planted scores give; topics [position]: of every token, -1 for none.

    Queries of a decoder hold the token before (`PartSpec.query_shift`), behind a start token without a topic.
    """
    query, key = (np.concatenate([[-1] * s, topics])[: len(topics)] for s in (part.query_shift, part.key_shift))
    score = delta(part, head) * ((query[:, None] == key[None, :]) & (query >= 0)[:, None])
    cap = getattr(config, "attn_logit_softcapping", None)
    score = cap * np.tanh(score / cap) if cap else score
    i, j = np.arange(len(query))[:, None], np.arange(len(key))[None, :]
    seen = (j <= i) if part.causal else np.ones_like(score, dtype=bool)
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window and (kinds is None or kinds[layer] == "sliding_attention"):
        # ModernBERT counts its window to each side, the causal models count the token itself.
        seen = seen & ((i - j < window) if part.causal else (np.abs(i - j) <= window))
    weight = np.exp(score) * seen
    return weight / (weight.sum(1, keepdims=True) + (1.0 if part.sinks else 0.0))


def expected_ratios(view: ModelView, units: Sequence[AlignedUnit], topic_of: dict[str, int]) -> dict[str, np.ndarray]:
    """Mean attention of pairs of one topic over that of different topics, part -> [layer, head] (Knowl 8)."""
    return {part: sums[..., 0] / sums[..., 1] for part, sums in _expected_means(view, units, topic_of).items()}


def expected_ratio(view: ModelView, units: Sequence[AlignedUnit], topic_of: dict[str, int]) -> dict[str, float]:
    """The same with the attention averaged over layers and heads first."""
    means = {part: sums.mean((0, 1)) for part, sums in _expected_means(view, units, topic_of).items()}
    return {part: float(same / different) for part, (same, different) in means.items()}


def _expected_means(view: ModelView, units: Sequence[AlignedUnit], topic_of: dict[str, int]) -> dict[str, np.ndarray]:
    """Mean attention of pairs of one topic and of different topics, part -> [layer, head, 2]."""
    found = {}
    for part in view.parts:
        sums, counts = np.zeros((part.num_layers, part.num_heads, 2)), np.zeros(2)
        for unit in units:
            topics = np.array([-1 if word is None else topic_of.get(word, -1) for word in unit.words])
            query, key = (np.concatenate([[-1] * s, topics])[: len(topics)] for s in (part.query_shift, part.key_shift))
            i, j = np.arange(len(query))[:, None] - part.query_shift, np.arange(len(key))[None, :] - part.key_shift
            pair = (query >= 0)[:, None] & (key >= 0)[None, :] & (i != j)
            pair = pair & (j <= i) if part.causal else pair
            same = pair & (query[:, None] == key[None, :])
            for layer, head in np.ndindex(part.num_layers, part.num_heads):
                attention = expected_attention(view._model.config, part, layer, head, topics)
                sums[layer, head] += [attention[kind].sum() * len(topics) / 100 for kind in (same, pair & ~same)]
            counts += [same.sum(), (pair & ~same).sum()]
        found[part.name] = sums / counts
    return found
