"""What a reading of a model needs around it: its state put back afterwards, padding moved aside, weights checked.

Axes: b unit of the batch, h head, q query position, k key position, L positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Float32, Int64
from transformers import PreTrainedModel

from topicscope.errors import RunError
from topicscope.probing.families import PartSpec

# Largest |Σ_k A_qk - 1| by precision: a probability is rounded to the model's dtype before it is read.
ROW_SUM_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 2e-2}


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) inside; afterwards every module has its own flag back."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


@contextmanager
def eager(model: PreTrainedModel) -> Iterator[None]:
    """The eager attention implementation inside, the only one that returns weights; afterwards the one found."""
    found = model.config._attn_implementation
    if found == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(found)


def checked_attention(
    attention: torch.Tensor | None, part: PartSpec, mask: Int64[torch.Tensor, "b L"], where: str
) -> Float32[torch.Tensor, "b h q k"]:
    """The weights of one layer in float32, after all that must hold for them was checked.

    mask [b, L]: 1 for attended tokens. Rows of padded queries may hold anything. Where a part has learned sinks, rows
    may sum to less than 1.

    Raises:
        RunError: no weights, a wrong shape, a row that does not sum to 1 over the attended tokens, or a causal part
            that looks ahead; `where` names layer and model.
    """
    if attention is None:
        raise RunError("the model gave no attention weights", where=where, advice='try attn_implementation="eager"')
    b, length = mask.shape
    expected = (b, part.num_heads, length, length)
    if tuple(attention.shape) != expected:
        raise RunError(
            "attention weights of a wrong shape", received=tuple(attention.shape), expected=expected, where=where
        )
    probabilities = attention.float()
    sums = torch.einsum("bhqk,bk->bhq", probabilities, mask.float())
    deviation = (sums - 1).clamp(min=0) if part.sinks else (sums - 1).abs()
    error = float(deviation.masked_fill(mask[:, None] == 0, 0).max())
    tolerance = ROW_SUM_TOLERANCE[attention.dtype]
    if not error <= tolerance:  # NaN fails as well
        raise RunError(
            "rows of attention do not sum to 1 over the attended tokens",
            received=f"a deviation of {error:.3g}",
            expected=f"at most {tolerance:g}",
            where=where,
        )
    if part.causal and float((probabilities.triu(1) * mask[:, None, :, None]).abs().max()) > 0:
        raise RunError("a causal part attends to later tokens: its causal mask was lost", where=where)
    return probabilities


def rolled(values: Int64[torch.Tensor, "b L"], start: Int64[torch.Tensor, " b"]) -> Int64[torch.Tensor, "b L"]:
    """Each row moved left by its `start`; what falls off comes back at the end."""
    length = values.shape[1]
    return values.gather(1, (torch.arange(length, device=values.device) + start[:, None]) % length)


def unrolled(
    attention: Float[torch.Tensor, "b h q k"], start: Int64[torch.Tensor, " b"]
) -> Float[torch.Tensor, "b h q k"]:
    """The inverse move, of queries and keys."""
    length = attention.shape[-1]
    index = (torch.arange(length, device=attention.device) - start[:, None]) % length
    return attention.take_along_dim(index[:, None, :, None], 2).take_along_dim(index[:, None, None, :], 3)
