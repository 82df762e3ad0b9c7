"""What a reading of a model needs around it: its state put back afterwards, padding moved aside, weights checked.

Axes: b unit of the batch, h head, q query position, k key position, L positions.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float32, Int64
from transformers import PreTrainedModel

from topicscope.errors import RunError
from topicscope.probing.hf.families import PartPattern, PartSpec

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
def implementation(model: PreTrainedModel, name: str) -> Iterator[None]:
    """The attention implementation `name` inside; afterwards the one found."""
    found = model.config._attn_implementation
    if found == name:
        yield
        return
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(found)


class Finished(Exception):  # noqa: N818 - ends a forward pass that has given all that is wanted
    """Everything wanted of a forward pass was read."""


def next_layer(calls: Counter[str], part: PartSpec, parts: Sequence[PartSpec]) -> tuple[int, bool]:
    """The layer that computes its attention, and whether no layer that is read is still to come after it.

    The layers of a part come in their order. calls: of each part so far; this one is counted in.
    """
    layer = calls[part.name]
    calls[part.name] += 1
    return layer, all(calls[p.name] > max(p.layers, default=-1) for p in parts)


class Rows:
    """The rows of attention in one reading of a batch, layer by layer, and what was seen of them.

    attended [b, L]: 1 for the tokens of the batch as it was given; mask [b, L]: 1 where the model read them, which is
    `start` [b] places to the left (see `aligned`).

    not_a_number[part]: bool [b, q], the attended queries with a NaN in some layer and head, which half precision can
    bring about; their rows are handed out as zeros. missing[part]: [b], 1 - Σ_k A_qk summed over the attended queries,
    mean over layers and heads; 0 in parts without sinks.
    """

    def __init__(
        self,
        parts: Sequence[PartSpec],
        attended: Int64[torch.Tensor, "b L"],
        mask: Int64[torch.Tensor, "b L"],
        start: Int64[torch.Tensor, " b"],
    ) -> None:
        self.not_a_number = {part.name: torch.zeros_like(attended, dtype=torch.bool) for part in parts}
        self.missing = {part.name: torch.zeros(len(attended), dtype=torch.float64) for part in parts}
        self._attended, self._mask, self._start = attended.bool(), mask, start
        self._moved = bool(start.any())

    def checked(self, attention: torch.Tensor | None, part: PartSpec, where: str) -> Float32[torch.Tensor, "b h q k"]:
        """The weights of one layer's heads that are read, for the batch as it was given, after all necessary checks.

        Rows of padded queries may hold anything. Where a part has learned sinks, rows may sum to less than 1. In half
        precision rows may hold NaN.

        Raises:
            RunError: no weights, a wrong shape, a row that does not sum to 1 over the attended tokens, or a causal part
                that looks ahead; `where` names layer and model.
        """
        if attention is None:
            raise RunError("the model gave no attention weights", where=where, advice='try attn_implementation="eager"')
        mask = self._mask
        b, length = mask.shape
        expected = (b, part.num_heads, length, length)
        if tuple(attention.shape) != expected:
            raise RunError(
                "attention weights of a wrong shape", received=tuple(attention.shape), expected=expected, where=where
            )
        found = attention.float()
        sums = torch.einsum("bhqk,bk->bhq", found, mask.float())
        deviation = (sums - 1).clamp(min=0) if part.sinks else (sums - 1).abs()
        skipped = mask[:, None] == 0
        if attention.dtype in (torch.float16, torch.bfloat16):
            skipped = skipped | deviation.isnan()
        error = float(deviation.masked_fill(skipped, 0).max())
        tolerance = ROW_SUM_TOLERANCE[attention.dtype]
        if not error <= tolerance:  # NaN fails as well
            raise RunError(
                "rows of attention do not sum to 1 over the attended tokens",
                received=f"a deviation of {error:.3g}",
                expected=f"at most {tolerance:g}",
                where=where,
            )
        ahead = found.triu(1) * mask[:, None, :, None] if part.causal else found[:0]
        if bool((ahead.nan_to_num(0) > 0).any()):
            raise RunError("a causal part attends to later tokens: its causal mask was lost", where=where)

        if part.only_heads is not None:
            found = found[:, list(part.heads)]
        if self._moved:  # queries and keys back to where they stand in the batch
            index = (torch.arange(length, device=found.device) - self._start[:, None]) % length
            found = found.take_along_dim(index[:, None, :, None], 2).take_along_dim(index[:, None, None, :], 3)
        if part.sinks:
            missing = (1 - found.sum(-1)).mean(1).masked_fill(~self._attended, 0).nansum(-1)
            self.missing[part.name] += missing.double().cpu() / len(part.layers)
        rows = found.isnan().any(-1) & self._attended[:, None]  # [b, h, q]
        if not bool(rows.any()):
            return found
        self.not_a_number[part.name] |= rows.any(1)
        return found.masked_fill(rows[..., None], 0)


def aligned(
    values: Int64[torch.Tensor, "b L"], mask: Int64[torch.Tensor, "b L"]
) -> tuple[Int64[torch.Tensor, "b L"], Int64[torch.Tensor, "b L"], Int64[torch.Tensor, " b"]]:
    """Values and mask with the padding on the right, and by how far each row was moved to the left."""
    length, start = mask.shape[1], mask.argmax(1)
    # What falls off on the left comes back at the end.
    index = (torch.arange(length, device=mask.device) + start[:, None]) % length
    moved = mask.gather(1, index)
    assert bool((moved[:, :-1] >= moved[:, 1:]).all()), "the tokens of a unit stand in one run"
    return values.gather(1, index), moved, start


def attention_modules(model: torch.nn.Module, part: PartPattern) -> list[torch.nn.Module]:
    """The attention modules of a part, in the order of the model."""
    return [module for name, module in model.named_modules() if re.fullmatch(part.modules, name)]


def output_of(model: torch.nn.Module, name: str, inputs: dict[str, Any]) -> torch.Tensor:
    """The output of one module; the forward pass ends there."""
    found: list[torch.Tensor] = []

    def stop(_module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        found.append(output)
        raise Finished

    with model.get_submodule(name).register_forward_hook(stop), suppress(Finished):
        model(**inputs)
    return found[0]


def ask_for_weights(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """For families that compute attention themselves (MPNet, DeBERTa) and return weights only on demand."""
    call = inspect.signature(module.forward).bind(*args, **kwargs)
    call.arguments["output_attentions"] = True
    return call.args, call.kwargs
