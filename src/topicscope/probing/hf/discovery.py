"""Models of a type outside the table of families: where they keep their attention is found by running them.

The base model reads a few random tokens under eager attention. A module that hands out weights of the shape
[batch, head, query, key] computes attention; the lengths tell encoder, decoder and cross attention apart, since the two
sides of a sequence-to-sequence model read different numbers of tokens. What is found must pass the checks that hold for
every family (shapes, row sums, no look at later tokens in a decoder, padding without effect), or the model is refused.
"""

import inspect
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from topicscope.errors import UnsupportedModelError
from topicscope.probing.hf.eager import ROW_SUM_TOLERANCE, evaluating, implementation
from topicscope.probing.hf.families import FAMILIES, Family, PartPattern

# Tokens read by the encoder (or the only stack) and by the decoder of a sequence-to-sequence model.
LENGTHS = (11, 7)
PADDED = 3


@dataclass(frozen=True)
class _Call:
    """One call of a module that handed out attention weights [batch, head, query, key] at `place` of its output."""

    module: str
    place: int
    weights: torch.Tensor


def discovered_family(model: PreTrainedModel, name: str) -> Family:
    """How a model of an unknown type is viewed.

    Its embedding layer is the table of input embeddings: what else a model adds there is not known. Learned sinks are
    taken for granted where rows sum to less than 1.

    Raises:
        UnsupportedModelError: the model cannot be run on text alone, hands out no weights, or fails a check; the
            message names the check.
    """
    lengths = LENGTHS if model.config.is_encoder_decoder else LENGTHS[:1]
    try:
        calls, padded = _run(model, lengths, 0), _run(model, lengths, PADDED)
    except Exception as error:  # a foreign model raises whatever it likes
        raise _refused(model, name, f"it cannot be run on text alone ({type(error).__name__}: {error})") from error
    if not calls:
        raise _refused(model, name, "none of its modules hands out attention weights [batch, head, query, key]")
    parts = tuple(_pattern(model, name, part, found) for part, found in _parts(model, name, calls).items())
    tolerance = max(ROW_SUM_TOLERANCE.get(model.dtype, 1e-3) / 10, 1e-4)
    same = [c.module for c in calls] == [c.module for c in padded]
    pairs = zip(calls, padded, strict=same)
    if not same or any(float((c.weights - d.weights).abs().max()) > tolerance for c, d in pairs):
        raise _refused(model, name, "padding changes its attention between the other tokens")
    return Family(parts, _embedding_layer(model, name, lengths))


def _run(model: PreTrainedModel, lengths: tuple[int, ...], padding: int) -> list[_Call]:
    """Calls of the innermost modules that hand out weights; the input is padded on the right by `padding` tokens."""
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    vocabulary = embedding.num_embeddings
    generator = torch.Generator().manual_seed(0)
    names = ("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")
    inputs: dict[str, Any] = {"output_attentions": True}
    for (tokens, mask), length in zip(names, lengths, strict=False):
        row = torch.randint(min(4, vocabulary - 1), vocabulary, (1, length), generator=generator)
        inputs[tokens] = torch.nn.functional.pad(row, (0, padding)).to(model.device)
        inputs[mask] = torch.nn.functional.pad(torch.ones_like(row), (0, padding)).to(model.device)
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs["use_cache"] = False
    calls: list[_Call] = []
    sizes = {length + padding for length in lengths}

    def listen(_module: torch.nn.Module, _inputs: Any, output: Any, *, name: str) -> None:
        # Place 0 is the module's own output, which may have four axes as well. Position biases have the shape of
        # weights, but negative numbers.
        for place, value in enumerate(output if isinstance(output, tuple) else ()):
            if not (place and isinstance(value, torch.Tensor) and value.ndim == 4 and value.is_floating_point()):
                continue
            if {value.shape[2], value.shape[3]} <= sizes and bool((value >= 0).all()) and bool((value > 0).any()):
                cut = value[:, :, : value.shape[2] - padding, : value.shape[3] - padding]
                calls.append(_Call(name, place, cut.float().cpu()))
                return

    with torch.inference_mode(), evaluating(model), implementation(model, "eager"), ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(partial(listen, name=name)))
        model(**inputs)
    modules = {call.module for call in calls}
    outer = {name for name in modules if any(other.startswith(f"{name}.") for other in modules)}
    return [call for call in calls if call.module not in outer]


def _parts(model: PreTrainedModel, name: str, calls: list[_Call]) -> dict[str, list[_Call]]:
    """The calls of each part, in the order of the parts."""
    if not model.config.is_encoder_decoder:
        back = [_looks_back(call) for call in calls]
        if any(back) != all(back):
            raise _refused(model, name, "some of its layers look at later tokens and some do not")
        return {"decoder" if all(back) else "encoder": calls}
    shapes = {"encoder": (LENGTHS[0],) * 2, "decoder": (LENGTHS[1],) * 2, "cross": (LENGTHS[1], LENGTHS[0])}
    parts = {part: [c for c in calls if tuple(c.weights.shape[2:]) == shape] for part, shape in shapes.items()}
    missing = [part for part, found in parts.items() if not found]
    if missing:
        raise _refused(model, name, f"no module hands out weights of {' and '.join(missing)} attention")
    if not all(_looks_back(call) for call in parts["decoder"]):
        raise _refused(model, name, "its decoder looks at later tokens")
    if getattr(model.config, "decoder_start_token_id", None) is None:
        raise _refused(model, name, "its config has no decoder_start_token_id, so what its decoder reads is not known")
    return parts


def _pattern(model: PreTrainedModel, name: str, part: str, calls: list[_Call]) -> PartPattern:
    """What the table of families would say of a part, its rows checked."""
    heads, places = {call.weights.shape[1] for call in calls}, {call.place for call in calls}
    if len(heads) > 1 or len(places) > 1:
        raise _refused(model, name, f"the layers of its {part} differ in their number of heads or their outputs")
    sums = torch.stack([call.weights.sum(-1) for call in calls])
    tolerance = ROW_SUM_TOLERANCE.get(model.dtype, 1e-3)
    if not float(sums.max()) <= 1 + tolerance:
        raise _refused(model, name, f"rows of what its {part} hands out sum to more than 1")
    shifted = model.config.is_encoder_decoder and part != "encoder"
    modules = sorted({re.sub(r"\d+", r"\\d+", re.escape(call.module)) for call in calls})
    return PartPattern(
        name=part,
        modules="|".join(modules),
        causal=part == "decoder",
        layers=(len(calls),),
        heads=heads.pop(),
        query_shift=int(shifted),
        key_shift=int(shifted and part == "decoder"),
        weights=places.pop(),
        sinks=float(sums.min()) < 1 - tolerance,
    )


def _looks_back(call: _Call) -> bool:
    return not bool(call.weights.triu(1).any())


def _embedding_layer(model: PreTrainedModel, name: str, lengths: tuple[int, ...]) -> str:
    """The table of input embeddings, under the name by which it is called: some models tie copies (Pegasus)."""
    weight = model.get_input_embeddings().weight
    called: list[str] = []
    with ExitStack() as hooks:
        for place, module in model.named_modules():
            if isinstance(module, torch.nn.Embedding) and module.weight is weight:
                hooks.enter_context(module.register_forward_hook(lambda *_, place=place: called.append(place)))
        _run(model, lengths, 0)
    if not called:
        raise _refused(model, name, "its table of input embeddings is never looked up")
    return called[0]


def _refused(model: PreTrainedModel, name: str, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"a model of type {model.config.model_type!r} is not in the table of families and cannot be viewed: {reason}",
        received=name,
        expected=f"{', '.join(sorted(FAMILIES))}, or another type whose modules hand out attention weights",
        advice="probe a model of one of these types, or add the type to FAMILIES in topicscope/probing/hf/families.py",
    )
