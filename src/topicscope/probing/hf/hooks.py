"""Attention weights read by forward hooks on the modules that compute them, one layer alive at a time."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from topicscope.probing.hf.eager import Finished, LayerCalls
from topicscope.probing.hf.families import PartPattern, PartSpec

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
