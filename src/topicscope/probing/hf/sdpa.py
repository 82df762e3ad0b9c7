"""Attention in factors, through transformers' own registries of attention and mask functions.

While `factored` is in force, a model that honours the registries calls `_attend` once for each layer. It computes what
"sdpa" computes and hands out the factors of the attention. No code of a model is replaced. What cannot be told by
factors (soft-capping, sinks, position biases, windows that cut) raises `NotFactored`; a model that ignores the
registries makes no call at all, which the caller must notice.

Scaled dot-product attention that also tells the logarithm of each row's normaliser.

    A_ij = exp(s q_i·k_j + m_ij - ℓ_i),   ℓ_i = log Σ_j exp(s q_i·k_j + m_ij),   output_i = Σ_j A_ij v_j

With ℓ known, any entry of A follows from its own query and key, so that A is never built. On the CPU the kernel that
`scaled_dot_product_attention` calls anyway computes ℓ and would throw it away; elsewhere ℓ costs one more product of
queries and keys, made in pieces.

Axes: b unit of the batch, h head, q query position, k key position, d width of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from topicscope.probing.hf.eager import implementation

# Scores alive at a time where ℓ is computed apart from the output.
SCORES_AT_A_TIME = 1 << 24


def attend(
    query: Float[torch.Tensor, "b h q d"],
    key: Float[torch.Tensor, "b h k d"],
    value: Float[torch.Tensor, "b h k v"],
    mask: Float[torch.Tensor, "b 1 q k"] | None,
    causal: bool,
    scale: float,
) -> tuple[Float[torch.Tensor, "b h q v"], Float[torch.Tensor, "b h q"]]:
    """(output, ℓ), ℓ in float32. mask: what is added to the scores, in their precision; causal: only k <= q, no mask.

    Rows without a single attended key may hold anything.
    """
    assert mask is None or not causal
    unit_stride = all(tensor.stride(-1) == 1 for tensor in (query, key, value))
    if query.device.type == "cpu" and query.shape[-1] == value.shape[-1] and unit_stride:
        # Private, and so under a canary test: it takes no boolean masks, and calls the kernel of the public function.
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )
        return output, normaliser.float()
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale
    )
    return output, log_normaliser(query, key, mask, causal, scale)


def log_normaliser(
    query: Float[torch.Tensor, "b h q d"],
    key: Float[torch.Tensor, "b h k d"],
    mask: Float[torch.Tensor, "b 1 q k"] | None,
    causal: bool,
    scale: float,
) -> Float[torch.Tensor, "b h q"]:
    """ℓ by its definition, some rows at a time."""
    b, h, length, _ = query.shape
    rows = max(1, SCORES_AT_A_TIME // (b * h * key.shape[2]))
    keys = key.float().transpose(-1, -2)
    pieces = []
    for start in range(0, length, rows):
        scores = query[:, :, start : start + rows].float() @ keys * scale
        if mask is not None:
            scores += mask[:, :, start : start + rows]
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(start + 1)
            scores = scores.masked_fill(later, -torch.inf)
        pieces.append(scores.logsumexp(-1))
    return torch.cat(pieces, -1)


NAME = "topicscope"


class Factors(NamedTuple):
    """The attention of one layer: A_ij = exp(scale · q_i·k_j - ℓ_i) where query i attends to key j.

    query [b, h, L, d]; key [b, g, L, d], each of the g heads shared by h/g query heads; normaliser ℓ [b, h, L] in
    float32. The caller knows where a query attends: to the tokens of its unit, in a causal part to those up to itself.
    """

    query: torch.Tensor
    key: torch.Tensor
    normaliser: torch.Tensor
    scale: float


class NotFactored(Exception):  # noqa: N818 - no error: the other way of reading is taken
    """This attention has no such factors; the message says why."""


_on_call: ContextVar[Callable[[torch.nn.Module, Factors], None]] = ContextVar("topicscope_on_call")


@contextmanager
def factored(model: PreTrainedModel, on_call: Callable[[torch.nn.Module, Factors], None]) -> Iterator[None]:
    """Inside, a forward pass hands the factors of every call of attention to `on_call(module, factors)`.

    The batch must be padded on the right, if at all. Afterwards the model is as it was found.

    Raises:
        NotFactored: the model has no choice of attention functions.
    """
    # Otherwise transformers only logs a warning.
    if not model._can_set_attn_implementation():
        raise NotFactored("the model computes attention in its own way")
    token = _on_call.set(on_call)
    try:
        with implementation(model, NAME):
            yield
    finally:
        _on_call.reset(token)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' `sdpa_attention_forward`, with the factors handed to the reader in force."""
    for name in ("softcap", "s_aux", "position_bias", "head_mask"):
        if kwargs.get(name) is not None:
            raise NotFactored(f"its scores are changed by {name}")
    if attention_mask is not None and attention_mask.shape[2] > 1 and attention_mask.stride(2) != 0:
        raise NotFactored("its mask differs from query to query")
    if dropout or query.shape[2] != key.shape[2]:
        raise NotFactored("it has dropout, or reads tokens from a cache")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    looks_back = getattr(module, "is_causal", True) if is_causal is None else is_causal
    groups = query.shape[1] // key.shape[1]
    keys, values = (t if groups == 1 else t.repeat_interleave(groups, 1) for t in (key, value))
    causal = attention_mask is None and bool(looks_back) and query.shape[2] > 1
    output, normaliser = attend(query, keys, values, attention_mask, causal, scale)
    _on_call.get()(module, Factors(query, key, normaliser, scale))
    return output.transpose(1, 2).contiguous(), None


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    mask_function: Callable[..., torch.Tensor],
    attention_mask: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    **_kwargs: Any,
) -> torch.Tensor | None:
    """The mask of keys [b, 1, q, k] without a row of its own for each query; None where order alone decides.

    In a causal part padding on the right is later than every token, so it needs no mask.
    """
    first, last = torch.tensor(0, device=device), torch.tensor(q_length - 1, device=device)
    if q_length != kv_length or not bool(mask_function(first, first, last, first)):
        raise NotFactored("a window cuts its attention")
    if q_length > 1 and not bool(mask_function(first, first, first, last)):
        return None
    if attention_mask is None or bool(attention_mask.all()):
        return None
    mask = torch.zeros(batch_size, 1, 1, kv_length, dtype=dtype, device=device)
    mask.masked_fill_(~attention_mask[:, None, None].bool(), -torch.inf)
    return mask.expand(-1, -1, q_length, -1)


# Entries under a name of our own; they stand in nobody's way.
AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask)
