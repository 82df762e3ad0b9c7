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

from collections.abc import Iterator
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
    for part, pattern in zip(view.parts, view.family.parts, strict=True):
        found = _Part(view, part, layouts[part.name], pattern)
        for number, layer in found.layers.items():
            (W_Q, _), (W_K, _), (W_V, _), (W_O, _) = found.maps(layer)
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
        for part, pattern in zip(view.parts, view.family.parts, strict=True):
            found = _Part(view, part, layouts[part.name], pattern)
            yield from found.factors(token_ids, output_embeddings, direct_values_only=direct_values_only)


class _Part:
    """One stack of attention and its modules; layers: the module of each layer that is read, by its number."""

    def __init__(self, view: ModelView, part: PartSpec, layout: Layout, pattern: Any) -> None:
        self._view, self._part, self._model = view, part, view._model
        # ELECTRA projects only embeddings that are narrower than its states.
        projects = layout.project in dict(self._model.named_modules())
        self._layout = layout if projects else replace(layout, project="")
        found = {id(module): name for name, module in self._model.named_modules()}
        names = [found[id(module)] for module in attention_modules(self._model, pattern)]
        modules = [self._model.get_submodule(name.removesuffix(f".{layout.attention}")) for name in names]
        if len(modules) != part.num_layers:  # ALBERT calls one module, or one for each group, for many layers
            config = self._model.config
            inner, groups = int(config.inner_group_num), int(config.num_hidden_groups)
            group = [n // inner * groups // int(config.num_hidden_layers) for n in range(part.num_layers)]
            modules = [modules[group[n] * inner + n % inner] for n in range(part.num_layers)]
        self.layers = {number: modules[number] for number in part.layers}

    def factors(
        self, ids: Int64[Tensor, " word"], W_U: Tensor | None, *, direct_values_only: bool
    ) -> Iterator[CircuitFactors]:
        """See `circuit_factors`."""
        layout, part, model = self._layout, self._part, self._model

        # Input embeddings as wide as the layers, and output embeddings through the last norm, each [word d].
        raw = self._view.embedding_matrix()[ids].double()
        if layout.project:
            project, shift = self._weights(model, layout.project)
            raw = raw @ project.T
        u = W_U[ids].detach().cpu().double() if W_U is not None and W_U.shape[1] == raw.shape[1] else raw
        u = self._folded(model, layout.final, u, transposed=True)

        # What enters the first layer on the side of the queries and on that of the keys and values, each [word d].
        if not direct_values_only:
            encoded = self._view.embedding_output(ids).double()
            encoded = encoded @ project.T + shift if layout.project else encoded
            asking = encoded
            if layout.embedding:
                pair = torch.stack([torch.full_like(ids, self._view._filler_id)] * FIXED_POSITION + [ids], 1)
                pair = pair.to(self._view.device)
                inputs = self._view._inputs(pair, torch.ones_like(pair)) | {"decoder_input_ids": pair}
                asking = output_of(model, layout.embedding, inputs)[:, FIXED_POSITION].cpu().double()
            asked = encoded if part.name == "cross" else asking

        h, read = part.num_heads, list(part.heads)
        shared = [part.key_value_head(head) for head in range(h)]
        groups = max(shared) + 1
        for number, layer in self.layers.items():
            # One matrix for each query head, [head k d] but for W_O [head d value]; biases [head 1 k].
            (W_Q, b_Q), (W_K, b_K), (W_V, _), (W_O, _) = self.maps(layer)
            k = len(W_Q) // h
            W_Q, b_Q = W_Q.reshape(h, k, -1), b_Q.reshape(h, 1, k)
            W_K, b_K = W_K.reshape(groups, k, -1)[shared], b_K.reshape(groups, 1, k)[shared]
            W_V = W_V.reshape(groups, -1, W_V.shape[1])[shared]
            W_O = W_O.reshape(len(W_O), h, -1).swapaxes(0, 1)
            # What the model multiplies its scores by: 1/√k unless the module says otherwise (T5: 1; DeBERTa).
            attention = _submodule(layer, layout.attention)
            scale, terms = getattr(attention, "scaling", k**-0.5), getattr(attention, "pos_att_type", None)
            if terms is not None:
                scale = (k * (1 + sum(kind in terms for kind in ("c2p", "p2c")))) ** -0.5
            # Cross attention takes its keys and values from the other stack, through that stack's last norm.
            owner, norm = (model, layout.source_norm) if part.name == "cross" else (layer, layout.norm)
            places = [("raw", self._folded(layer, layout.norm, raw), self._folded(owner, norm, raw), 0.0)]
            if not direct_values_only:
                x, y = self._normed(layer, layout.norm, asking), self._normed(owner, norm, asked)
                places.append(("layer", x, y, 1.0))
            written = self._folded(layer, layout.after, u, transposed=True)
            written = torch.einsum("wd,hdv->hwv", written, W_O)[read]
            for place, x, y, bias in places:
                if not direct_values_only:
                    queries = torch.einsum("wd,hkd->hwk", x, W_Q) + bias * b_Q
                    keys = torch.einsum("wd,hkd->hwk", y, W_K) + bias * b_K
                    queries = self._normed(layer, layout.query_norm, queries) * float(scale)
                    keys = self._normed(layer, layout.key_norm, keys)
                    yield CircuitFactors(part.name, number, place, "QK", queries[read].numpy(), keys[read].numpy())
                values = torch.einsum("wd,hvd->hwv", y, W_V)[read]
                yield CircuitFactors(part.name, number, place, "OV", written.numpy(), values.numpy())

    def maps(self, layer: torch.nn.Module) -> list[tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]]:
        """Weight and bias of the maps to queries, keys and values and of the output of a layer."""
        layout = self._layout
        names = (*(f"{layout.attention}.{name}" for name in layout.maps), layout.output)
        *maps, output = (self._weights(layer, name) for name in names)
        if not layout.fused:
            return [*maps, output]
        weight, bias = maps[0]
        h = self._part.num_heads
        shape, axis = ((3, h, -1), 0) if layout.fused == "thirds" else ((h, 3, -1), 1)
        weights = weight.reshape(*shape, weight.shape[1]).unbind(axis)
        biases = bias.reshape(shape).unbind(axis)
        return [*((w.flatten(0, 1), b.flatten()) for w, b in zip(weights, biases, strict=True)), output]

    def _weights(self, root: torch.nn.Module, name: str) -> tuple[Float[Tensor, "out in"], Float[Tensor, " out"]]:
        module = _submodule(root, name)
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        weight = weight.detach().cpu().double()
        weight = weight.T if isinstance(module, Conv1D) else weight
        bias = getattr(module, "bias", None)
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().cpu().double()

    def _normed(self, root: torch.nn.Module, name: str, x: Tensor) -> Tensor:
        """x through the whole norm, in the model's own precision; as it is where there is none."""
        if not name:
            return x
        found: Tensor = _submodule(root, name)(x.to(self._view.device, self._model.dtype))
        return found.cpu().double()

    def _folded(
        self, root: torch.nn.Module, name: str, x: Float[Tensor, "word d"], *, transposed: bool = False
    ) -> Float[Tensor, "word d"]:
        """x through the linear part G C of a norm, gain after centring, or through its transpose C G (for u)."""
        module = _submodule(root, name) if name else None
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
