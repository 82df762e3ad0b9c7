"""What a reading of a model needs around it: its state put back afterwards, padding moved aside, weights checked.

Axes: b unit of the batch, h head, q query position, k key position, L positions.

Attention weights read by forward hooks on the modules that compute them, one layer alive at a time.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from transformers import PreTrainedModel

from topicscope.errors import RunError
from topicscope.probing.hf.families import PartPattern, PartSpec

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


def eager(model: PreTrainedModel) -> AbstractContextManager[None]:
    """The eager attention implementation, the only one that returns weights."""
    return implementation(model, "eager")


class Finished(Exception):  # noqa: N818 - ends a forward pass that has given all that is wanted
    """Everything wanted of a forward pass was read."""


class LayerCalls:
    """Numbers the layers of each part by the order in which their attention is computed."""

    def __init__(self, parts: Sequence[PartSpec]) -> None:
        self._parts = parts
        self._calls = dict.fromkeys((part.name for part in parts), 0)

    def number(self, part: PartSpec) -> int | None:
        """The layer of this call; None where it is not one of those that are read."""
        layer = self._calls[part.name]
        self._calls[part.name] += 1
        return layer if layer in part.layers else None

    @property
    def all_read(self) -> bool:
        """Whether no layer that is read is still to come."""
        return all(self._calls[part.name] > max(part.layers, default=-1) for part in self._parts)

    @property
    def complete(self) -> bool:
        """Whether every layer was called exactly once."""
        return all(self._calls[part.name] == part.num_layers for part in self._parts)

    def check(self, where: str) -> None:
        """After a whole forward pass: every layer was called once.

        Raises:
            RunError: another number of calls.
        """
        for part in self._parts:
            if self._calls[part.name] != part.num_layers:
                raise RunError(
                    f"{where}: the {part.name} computed attention {self._calls[part.name]} times",
                    expected=f"{part.num_layers} layers",
                )


class Rows:
    """What was seen of the rows of attention in one reading of a batch.

    not_a_number[part]: bool [b, q], the attended queries with a NaN in some layer and head, which half precision can
    bring about; their rows are handed out as zeros. missing[part]: [b], 1 - Σ_k A_qk summed over the attended queries,
    mean over layers and heads; 0 in parts without sinks.
    """

    def __init__(self, parts: Sequence[PartSpec], attended: torch.Tensor) -> None:
        self.not_a_number = {part.name: torch.zeros_like(attended, dtype=torch.bool) for part in parts}
        self.missing = {part.name: torch.zeros(len(attended), dtype=torch.float64) for part in parts}
        self._attended = attended.bool()

    def see(self, part: PartSpec, attention: Float32[torch.Tensor, "b h q k"]) -> Float32[torch.Tensor, "b h q k"]:
        """The same layer with zeros in the rows that hold a NaN."""
        if part.sinks:
            missing = (1 - attention.sum(-1)).mean(1).masked_fill(~self._attended, 0).nansum(-1)
            self.missing[part.name] += missing.double().cpu() / len(part.layers)
        rows = attention.isnan().any(-1) & self._attended[:, None]  # [b, h, q]
        if not bool(rows.any()):
            return attention
        self.not_a_number[part.name] |= rows.any(1)
        return attention.masked_fill(rows[..., None], 0)


def checked_attention(
    attention: torch.Tensor | None, part: PartSpec, mask: Int64[torch.Tensor, "b L"], where: str
) -> Float32[torch.Tensor, "b h q k"]:
    """The weights of one layer in float32, after all that must hold for them was checked.

    mask [b, L]: 1 for attended tokens. Rows of padded queries may hold anything. Where a part has learned sinks, rows
    may sum to less than 1. In half precision rows may hold NaN (see `Rows`).

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
    ahead = probabilities.triu(1) * mask[:, None, :, None] if part.causal else probabilities[:0]
    if bool((ahead.nan_to_num(0) > 0).any()):
        raise RunError("a causal part attends to later tokens: its causal mask was lost", where=where)
    return probabilities


def aligned(
    values: Int64[torch.Tensor, "b L"], mask: Int64[torch.Tensor, "b L"]
) -> tuple[Int64[torch.Tensor, "b L"], Int64[torch.Tensor, "b L"], Int64[torch.Tensor, " b"]]:
    """Values and mask with the padding on the right, and by how far each row was moved to the left."""
    start = mask.argmax(1)
    moved = rolled(mask, start)
    assert bool((moved[:, :-1] >= moved[:, 1:]).all()), "the tokens of a unit stand in one run"
    return rolled(values, start), moved, start


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


Deliver = Callable[[PartSpec, int, torch.Tensor | None], None]


def attention_modules(model: torch.nn.Module, part: PartPattern) -> list[torch.nn.Module]:
    """The attention modules of a part, in the order of the model."""
    return [module for name, module in model.named_modules() if re.fullmatch(part.modules, name)]


@contextmanager
def hooked(
    model: torch.nn.Module,
    patterns: Sequence[PartPattern],
    parts: Sequence[PartSpec],
    deliver: Deliver,
    calls: LayerCalls,
) -> Iterator[None]:
    """Inside, a forward pass hands the weights of every layer that is read to `deliver(part, layer, weights)`.

    Where the last layers are not read, `Finished` ends the forward pass before them. The hooks are removed afterwards.
    """
    cut = any(part.layers[-1] + 1 < part.num_layers for part in parts)
    handles: list[Any] = []
    for pattern, part in zip(patterns, parts, strict=True):

        def read(
            _module: torch.nn.Module, _inputs: Any, output: Any, part: PartSpec = part, place: int = pattern.weights
        ) -> Any:
            layer = calls.number(part)
            if layer is not None:
                deliver(part, layer, output[place] if isinstance(output, tuple) and len(output) > place else None)
            if cut and calls.all_read:
                raise Finished
            # Nothing downstream uses the weights: passing them on would only keep them alive.
            return (*output[:place], None, *output[place + 1 :])

        for module in attention_modules(model, pattern):
            if "output_attentions" in inspect.signature(module.forward).parameters:
                handles.append(module.register_forward_pre_hook(_ask_for_weights, with_kwargs=True))
            handles.append(module.register_forward_hook(read))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def output_of(model: torch.nn.Module, name: str, inputs: dict[str, Any]) -> torch.Tensor:
    """The output of one module; the forward pass ends there."""
    found: list[torch.Tensor] = []

    def stop(_module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        found.append(output)
        raise Finished

    handle = model.get_submodule(name).register_forward_hook(stop)
    try:
        with suppress(Finished):
            model(**inputs)
    finally:
        handle.remove()
    return found[0]


def _ask_for_weights(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """For families that compute attention themselves (MPNet, DeBERTa) and return weights only on demand."""
    call = inspect.signature(module.forward).bind(*args, **kwargs)
    call.arguments["output_attentions"] = True
    return call.args, call.kwargs


# Largest |Σ_k A_qk - 1| by precision: a probability is rounded to the model's dtype before it is read.
