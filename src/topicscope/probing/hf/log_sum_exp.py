"""Scaled dot-product attention that also tells the logarithm of each row's normaliser.

    A_ij = exp(s q_i·k_j + m_ij - ℓ_i),   ℓ_i = log Σ_j exp(s q_i·k_j + m_ij),   output_i = Σ_j A_ij v_j

With ℓ known, any entry of A follows from its own query and key, so that A is never built. On the CPU the kernel that
`scaled_dot_product_attention` calls anyway computes ℓ and would throw it away; elsewhere ℓ costs one more product of
queries and keys, made in pieces.

Axes: b unit of the batch, h head, q query position, k key position, d width of a head.
"""

import torch
from jaxtyping import Float

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
    if _fused(query, key, value):
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


def _fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    if query.device.type != "cpu" or query.shape[-1] != value.shape[-1]:
        return False
    return all(tensor.stride(-1) == 1 for tensor in (query, key, value))
