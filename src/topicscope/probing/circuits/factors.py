"""The factors of a head's OV and QK circuits between words, out of the weights of any supported model.

Axes: head (query heads), word, k (a head's width). For words i, j with x_i what enters a layer's attention:

    QK_ij = (W_Q x_i) · (W_K x_j) scale     i the querying, j the attended word
    OV_ij = u_i · W_O W_V x_j               i the word that is written, j the attended one; u_i its output embedding

x is the embedding itself in every layer: beyond the first this is the direct path, which skips what other layers add
(Elhage et al. 2021). It is taken at two places:

    raw     the input embedding, with only the linear part of the layer's input norm N(x) = g ∘ (x - x̄)/sd + b folded
            in: x = g ∘ (e - ē) for a layer norm, g ∘ e for an RMS norm (no centring), g = 1 + w in Gemma. No bias.
    layer   the embedding layer's output h (with its own norm and position 1, where the family has them), through the
            whole input norm with division and bias: in the first layer, what truly enters its attention.

Post-norm families (BERT, BART, …) have no input norm: x = e, or h. ALBERT's and ELECTRA's projection to the layers'
width is part of x. The norm of each head's queries and keys (Qwen 3, Gemma 3) is applied in full at both places.
Biases of W_Q and W_K belong to "layer", so that its QK are the model's scores; biases of W_V and W_O are left out of OV
at both, since they write the same whatever word is attended. Into u go the linear part of the norm of the attention's
output (Gemma 2 and 3) and that of the final norm (pre-norm families).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from transformers.pytorch_utils import Conv1D

from topicscope.errors import UnsupportedModelError
from topicscope.probing.circuits.layouts import LAYOUTS, Layout
from topicscope.probing.hf import FIXED_POSITION, ModelView, PartSpec, attention_modules, evaluating, output_of

PLACES = ("raw", "layer")
Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class CircuitFactors:
    """One circuit of all heads of one layer: A_ij = left_i · right_j, float64 [head word k]. circuit: "OV" or "QK"."""

    part: str
    layer: int
    place: str
    circuit: str
    left: Float[np.ndarray, "head word k"]
    right: Float[np.ndarray, "head word k"]


@dataclass(frozen=True, eq=False)
class _Heads:
    """Matrices of one layer, one for each query head; biases 0 where there are none."""

    W_Q: Float[Tensor, "head k d"]
    query_bias: Float[Tensor, "head k"]
    W_K: Float[Tensor, "head k d"]
    key_bias: Float[Tensor, "head k"]
    W_V: Float[Tensor, "head value d"]
    W_O: Float[Tensor, "head d value"]
    scale: float


def layouts_of(view: ModelView) -> dict[str, Layout]:
    """The layout of each part of the model.

    Raises:
        UnsupportedModelError: a type whose matrices are not known, or a model that only hands out attention.
    """
    known = LAYOUTS.get(view.model_type)
    if known is None or not hasattr(view, "_model"):
        raise UnsupportedModelError(
            f"the circuits of a model of type {view.model_type!r} are not known: where its heads keep their matrices "
            "is written down for some types only",
            received=view.name,
            expected=", ".join(sorted(LAYOUTS)),
            advice="add the type to LAYOUTS in topicscope/probing/circuits/layouts.py",
        )
    return {part.name: known[part.name] if isinstance(known, dict) else known for part in view.parts}


def attention_weights(view: ModelView) -> Iterator[tuple[str, int, dict[str, Float[Tensor, "out in"]]]]:
    """(part, layer, {"W_Q", "W_K", "W_V", "W_O"}) of every layer that is read, float64 on the CPU, heads side by side.

    Layers that share one module (ALBERT) give the same matrices.

    Raises:
        UnsupportedModelError: see `layouts_of`.
    """
    layouts = layouts_of(view)
    for part, pattern in zip(view.parts, view._family.parts, strict=True):
        found = _Part(view, part, layouts[part.name], pattern)
        for number in part.layers:
            (W_Q, _), (W_K, _), (W_V, _), (W_O, _) = found.maps(number)
            yield part.name, number, {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}


def circuit_factors(
    view: ModelView,
    token_ids: Int64[Tensor, " word"],
    output_embeddings: Float[Tensor, "token width"] | None = None,
    *,
    direct_values_only: bool = False,
) -> Iterator[CircuitFactors]:
    """The circuits between the tokens, layer by layer, for every part, place and circuit.

    direct_values_only: of the circuits only OV at the place "raw", which needs no forward pass.

    output_embeddings: W_U [token, d]; the input embeddings, as they enter the layers, where there are none or where
    they are of another width (ALBERT, ELECTRA).

    Raises:
        UnsupportedModelError: see `layouts_of`.
    """
    layouts = layouts_of(view)
    with torch.inference_mode(), evaluating(view._model):
        for part, pattern in zip(view.parts, view._family.parts, strict=True):
            found = _Part(view, part, layouts[part.name], pattern)
            if direct_values_only:
                yield from found.direct_values(token_ids, output_embeddings)
            else:
                yield from found.factors(token_ids, output_embeddings)


class _Part:
    """One stack of attention and its modules."""

    def __init__(self, view: ModelView, part: PartSpec, layout: Layout, pattern: Any) -> None:
        self._view, self._part, self._model = view, part, view._model
        # ELECTRA projects only embeddings that are narrower than its states.
        projects = layout.project in dict(self._model.named_modules())
        self._layout = layout if projects else replace(layout, project="")
        found = {id(module): name for name, module in self._model.named_modules()}
        names = [found[id(module)] for module in attention_modules(self._model, pattern)]
        self._layers = [self._model.get_submodule(name.removesuffix(f".{layout.attention}")) for name in names]

    def maps(self, number: int) -> list[tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]]:
        """Weight and bias of the maps to queries, keys, values and of the output of a layer."""
        layer = self._layers[self._module_of(number)]
        return [*self._split(layer), self._weights(self._layout.output, layer)]

    def direct_values(self, ids: Int64[Tensor, " word"], W_U: Tensor | None) -> Iterator[CircuitFactors]:
        raw, u = self._words(ids, W_U)
        for number in self._part.layers:
            layer = self._layers[self._module_of(number)]
            written = self._folded(self._layout.after, u, layer, transposed=True)
            name, where = (self._layout.norm, layer) if self._part.name != "cross" else (self._layout.source_norm, None)
            yield self._values(number, "raw", self._heads(layer), written, self._folded(name, raw, where))

    def factors(self, ids: Int64[Tensor, " word"], W_U: Tensor | None) -> Iterator[CircuitFactors]:
        raw, u = self._words(ids, W_U)
        queries, keys = self._layer_outputs(ids)
        for number in self._part.layers:
            layer = self._layers[self._module_of(number)]
            heads = self._heads(layer)
            written = self._folded(self._layout.after, u, layer, transposed=True)
            norm = self._normed(self._layout.norm, layer)
            source = norm if self._part.name != "cross" else self._normed(self._layout.source_norm)
            x = self._folded(self._layout.norm, raw, layer)
            y = x if self._part.name != "cross" else self._folded(self._layout.source_norm, raw)
            for place, (q, k), bias in (("raw", (x, y), 0.0), ("layer", (norm(queries), source(keys)), 1.0)):
                yield self._factors(number, place, "QK", *self._scores(layer, heads, q, k, bias))
                yield self._values(number, place, heads, written, k)

    def _words(self, ids: Tensor, W_U: Tensor | None) -> tuple[Float[Tensor, "word d"], Float[Tensor, "word d"]]:
        """Input and output embeddings, the latter through the last norm."""
        e = self._view.embedding_matrix()[ids].double()
        raw = e if not self._layout.project else e @ self._weights(self._layout.project)[0].T
        width = raw.shape[1]
        u = W_U[ids].detach().cpu().double() if W_U is not None and W_U.shape[1] == width else raw
        return raw, self._folded(self._layout.final, u, transposed=True)

    def _values(self, layer: int, place: str, heads: _Heads, written: Tensor, x: Tensor) -> CircuitFactors:
        values = torch.einsum("wd,hvd->hwv", x, heads.W_V)
        return self._factors(layer, place, "OV", torch.einsum("wd,hdv->hwv", written, heads.W_O), values)

    def _factors(self, layer: int, place: str, circuit: str, left: Tensor, right: Tensor) -> CircuitFactors:
        heads = list(self._part.heads)
        return CircuitFactors(self._part.name, layer, place, circuit, left[heads].numpy(), right[heads].numpy())

    def _scores(
        self, layer: torch.nn.Module, heads: _Heads, q: Tensor, k: Tensor, bias: float
    ) -> tuple[Float[Tensor, "head word k"], Float[Tensor, "head word k"]]:
        queries = torch.einsum("wd,hkd->hwk", q, heads.W_Q) + bias * heads.query_bias[:, None]
        keys = torch.einsum("wd,hkd->hwk", k, heads.W_K) + bias * heads.key_bias[:, None]
        queries = self._normed(self._layout.query_norm, layer)(queries)
        keys = self._normed(self._layout.key_norm, layer)(keys)
        return queries * heads.scale, keys

    def _layer_outputs(self, ids: Tensor) -> tuple[Float[Tensor, "word d"], Float[Tensor, "word d"]]:
        """What enters the first layer on the side of the queries and on that of the keys and values."""
        own = self._projected(self._view.embedding_output(ids))
        if not self._layout.embedding:
            return own, own
        filler = torch.full_like(ids, self._view._filler_id)
        pair = torch.stack([filler] * FIXED_POSITION + [ids], 1).to(self._view.device)
        inputs = self._view._inputs(pair, torch.ones_like(pair)) | {"decoder_input_ids": pair}
        decoder = output_of(self._model, self._layout.embedding, inputs)[:, FIXED_POSITION].cpu().double()
        return decoder, own if self._part.name == "cross" else decoder

    def _projected(self, output: Tensor) -> Tensor:
        if not self._layout.project:
            return output.double()
        weight, bias = self._weights(self._layout.project)
        return output.double() @ weight.T + bias

    def _module_of(self, layer: int) -> int:
        """ALBERT calls one module, or one for each group, for many layers."""
        if len(self._layers) == self._part.num_layers:
            return layer
        config = self._model.config
        inner = int(config.inner_group_num)
        group = layer // inner * int(config.num_hidden_groups) // int(config.num_hidden_layers)
        return group * inner + layer % inner

    def _weights(
        self, name: str, layer: torch.nn.Module | None = None
    ) -> tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]:
        module = _submodule(self._model if layer is None else layer, name)
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        weight = weight.detach().cpu().double()
        weight = weight.T if isinstance(module, Conv1D) else weight
        bias = getattr(module, "bias", None)
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().cpu().double()

    def _split(self, layer: torch.nn.Module) -> list[tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]]:
        """Weight and bias of the maps to queries, keys and values."""
        layout, h = self._layout, self._part.num_heads
        if layout.fused:
            weight, bias = self._weights(layout.query, layer)
            shape = (3, h, -1) if layout.fused == "thirds" else (h, 3, -1)
            axis = shape.index(3)
            return [
                (w.flatten(0, 1), b.flatten())
                for w, b in zip(
                    weight.reshape(*shape, weight.shape[1]).unbind(axis), bias.reshape(shape).unbind(axis), strict=True
                )
            ]
        return [self._weights(name, layer) for name in (layout.query, layout.key, layout.value)]

    def _heads(self, layer: torch.nn.Module) -> _Heads:
        h = self._part.num_heads
        (W_Q, b_Q), (W_K, b_K), (W_V, _) = self._split(layer)
        W_O = self._weights(self._layout.output, layer)[0]
        shared = [self._part.key_value_head(head) for head in range(h)]
        groups = max(shared) + 1
        k = len(W_Q) // h
        return _Heads(
            W_Q=W_Q.reshape(h, k, -1),
            query_bias=b_Q.reshape(h, k),
            W_K=W_K.reshape(groups, k, -1)[shared],
            key_bias=b_K.reshape(groups, k)[shared],
            W_V=W_V.reshape(groups, -1, W_V.shape[1])[shared],
            W_O=W_O.reshape(len(W_O), h, -1).swapaxes(0, 1),
            scale=_scale(_submodule(layer, self._layout.attention), k),
        )

    def _normed(self, name: str, layer: torch.nn.Module | None = None) -> Callable[[Tensor], Tensor]:
        """The whole norm, in the model's own precision; nothing where there is none."""
        if not name:
            return lambda x: x
        module = _submodule(self._model if layer is None else layer, name)
        dtype = self._model.dtype
        return lambda x: module(x.to(self._view.device, dtype)).cpu().double()

    def _folded(
        self, name: str, x: Float[Tensor, "word d"], layer: torch.nn.Module | None = None, *, transposed: bool = False
    ) -> Float[Tensor, "word d"]:
        """x through the linear part G C of a norm, gain after centring, or through its transpose C G (for u)."""
        module = _submodule(self._model if layer is None else layer, name) if name else None
        if module is None or isinstance(module, torch.nn.Identity):
            return x
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        gain = weight.detach().cpu().double() + (1.0 if self._layout.gain_from_one else 0.0)
        x = x * gain if transposed else x
        x = x - x.mean(1, keepdim=True) if isinstance(module, torch.nn.LayerNorm) else x
        return x if transposed else x * gain


def _submodule(root: torch.nn.Module, name: str) -> torch.nn.Module:
    """The module of this name. A variant of a known type may lack it: then its circuits are not known."""
    try:
        return root.get_submodule(name)
    except AttributeError as error:
        raise UnsupportedModelError(
            "this variant of the model has other modules than its type, so that its circuits are not known",
            received=type(root).__name__,
            expected=f"a module {name!r}",
        ) from error


def _scale(attention: torch.nn.Module, width: int) -> float:
    """What the model multiplies its scores by: 1/√width unless the module says otherwise (T5: 1; DeBERTa)."""
    terms = getattr(attention, "pos_att_type", None)
    if terms is not None:
        return float((width * (1 + sum(kind in terms for kind in ("c2p", "p2c")))) ** -0.5)
    return float(getattr(attention, "scaling", width**-0.5))
