"""The circuits' factors against what every family computes: scores before the softmax, and the attention's output.

Positions are switched off in the models (no rotation, zero position embeddings and biases), so that a word is the same
wherever it stands; then log A_ij - log A_ij' of a real forward pass is QK_ij - QK_ij'.
"""

import re

import pytest
import torch

import tiny
from topicscope.errors import UnsupportedModelError
from topicscope.probing.circuits import circuit_factors
from topicscope.probing.circuits.layouts import LAYOUTS
from topicscope.probing.hf import view_model
from topicscope.probing.hf.families import FAMILIES
from topicscope.probing.tokens import Batch

CONTENT = tiny.WORDS[20:25]


# Parameters by which positions enter, set to 0, and learned sinks, which take a share of what a lone word attends.
POSITIONS = ("position_embeddings", "wpe", "embed_positions", "relative_attention_bias", "rel_embeddings")
POSITIONS += ("pos_key_proj", "pos_query_proj")


def without_positions(family, *, hand_on=False):
    """A tiny model whose gains, biases and norms all matter, but whose positions do not."""
    model, tokenizer = tiny.build(family)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        noise = 0.3 * torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if any(part in name for part in POSITIONS):
                parameter.zero_()
            else:
                parameter.copy_(-50.0 * torch.ones_like(parameter) if "sinks" in name else parameter + noise)
    if hand_on and model.config.is_encoder_decoder:
        _hand_on_embeddings(model)
    for name, buffer in model.named_buffers():
        if "inv_freq" in name:
            buffer.zero_()
    return view_model(model, tokenizer, name=f"tiny {family}", hooks_only=True)


def _hand_on_embeddings(model):
    """So that cross attention meets embeddings: the encoder's layers and the decoder's self-attention add nothing."""
    ends = (".o.", ".wo.", "out_proj", "fc2")
    for name, parameter in model.named_parameters():
        adds = any(end in name for end in ends) and "encoder_attn" not in name and "EncDecAttention" not in name
        with torch.no_grad():
            if adds and (name.startswith("encoder") or "self_attn" in name or "SelfAttention" in name):
                parameter.zero_()
            elif "bart" in type(model).__name__.lower() and ("layer_norm" in name or "layernorm" in name):
                parameter.fill_(float(name.endswith("weight")))  # a norm of a normalised vector then changes nothing


def word_ids(view):
    return torch.tensor([view.tokenizer.encode(f" {word}", add_special_tokens=False)[0] for word in CONTENT])


def one_unit(ids):
    return Batch(ids[None], torch.ones_like(ids)[None], (0,))


def factors(view, ids, **options):
    return {(f.part, f.layer, f.place, f.circuit): f for f in circuit_factors(view, ids, **options)}


def form(found):
    return torch.from_numpy(found.left @ found.right.swapaxes(1, 2))


def layout_of(view, part):
    layout = LAYOUTS[view.model_type]
    return layout[part.name] if isinstance(layout, dict) else layout


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_scores_are_the_models_own(family):
    view = without_positions(family, hand_on=True)
    ids = word_ids(view)
    attention = {}
    view.run(one_unit(ids), lambda part, layer, weights: attention.setdefault((part, layer), weights[0].double()))
    found = factors(view, ids)
    for part in view.parts:
        scores = form(found[part.name, 0, "layer", "QK"])
        cap = getattr(view._model.config, "attn_logit_softcapping", None)
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        # A decoder of two stacks reads the words one place to the right, behind its start token.
        weights = attention[part.name, 0][:, part.query_shift :, part.key_shift :]
        assert weights.shape[1:] == (len(ids) - part.query_shift, len(ids) - part.key_shift)
        for query in range(weights.shape[1]):
            seen = query + 1 if part.causal else weights.shape[2]
            real = torch.log(weights[:, query, :seen])
            ours = scores[:, query, :seen]
            assert torch.allclose(real - real[:, :1], ours - ours[:, :1], atol=1e-3, rtol=1e-3)
        assert (scores - scores[:, :, :1]).abs().max() > 0.01


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_values_are_what_the_attention_writes(family):
    """Between two lone words the output of the map W_O differs by Σ_h W_O W_V (x_i - x_j)."""
    check_values(without_positions(family), ("encoder", "decoder"))


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_values_of_cross_attention(family):
    check_values(without_positions(family, hand_on=True), ("cross",))


def check_values(view, names):
    ids = word_ids(view)
    found = factors(view, ids)
    for part, pattern in zip(view.parts, view.family.parts, strict=True):
        if part.name not in names or part.key_shift:
            continue  # a lone word is not attended in a shifted decoder: the start token is
        layout = layout_of(view, part)
        attention = next(name for name, _ in view._model.named_modules() if re.fullmatch(pattern.modules, name))
        W_O = view._model.get_submodule(f"{attention.removesuffix(layout.attention)}{layout.output}")
        written = []
        handle = W_O.register_forward_hook(lambda _module, _inputs, output, to=written: to.append(output[0]))
        for token in ids:
            view.run(one_unit(token[None]), lambda *_: None)
        handle.remove()
        first = torch.cat(written[:: len(written) // len(ids)]).double()  # ALBERT calls one map in every layer
        real = output_embeddings(view, layout, ids) @ (first - first[:1]).T
        ours = form(found[part.name, 0, "layer", "OV"]).sum(0)
        assert torch.allclose(real, ours - ours[:, :1], atol=1e-4, rtol=1e-4)
        assert real.abs().max() > 0.01


def output_embeddings(view, layout, ids):
    """Rows of the input embeddings, since no head is given, times each norm's linear part as a matrix."""
    e, model = view.embedding_matrix()[ids].double(), view._model
    if layout.project:
        e = e @ model.get_submodule(layout.project).weight.detach().double().T
    for name in (layout.final, f"layers.0.{layout.after}" if layout.after else ""):
        if name:
            e = e @ jacobian(model.get_submodule(name), e.shape[1])
    return e


def jacobian(norm, d):
    """∂(N(x) · spread of x)/∂x of a norm N, from N at d directions whose spread is known."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * d, d, generator=generator, dtype=torch.float64)
    x = x - x.mean(1, keepdim=True) * (isinstance(norm, torch.nn.LayerNorm))
    spread = x.square().mean(1, keepdim=True).sqrt()
    with torch.no_grad():
        at_zero = norm.bias.double() if getattr(norm, "bias", None) is not None else 0.0
        y = (norm(x.float()).double() - at_zero) * spread
    # Directions that the norm removes (the mean) get 0 from the least squares.
    return torch.linalg.lstsq(x, y, driver="gelsd").solution.T


def test_raw_is_linear_in_the_embeddings():
    """At "raw", doubling every embedding makes OV and QK four times as large, and biases do not enter."""
    view = without_positions("gpt2")
    ids = word_ids(view)
    before = factors(view, ids)
    with torch.no_grad():
        view._embedding.weight.mul_(2)
        view._model.h[0].attn.c_attn.bias.add_(1)
        view._model.h[0].ln_1.bias.add_(1)
    after = factors(view, ids)
    for circuit in ("OV", "QK"):
        key = ("decoder", 0, "raw", circuit)
        assert torch.allclose(4 * form(before[key]), form(after[key]))
        key = ("decoder", 0, "layer", circuit)
        assert not torch.allclose(form(before[key]), form(after[key]), rtol=0.1)


def test_output_embeddings_of_a_head():
    view = without_positions("bert")
    ids = word_ids(view)
    W_U = torch.randn(view.embedding_matrix().shape, dtype=torch.float64)
    own, given = factors(view, ids), factors(view, ids, output_embeddings=W_U)
    key = ("encoder", 1, "layer", "OV")
    W_O = view._model.encoder.layer[1].attention.output.dense.weight.detach().double()
    for head in range(4):
        expected = W_U[ids] @ W_O[:, 8 * head : 8 * head + 8]
        assert torch.allclose(torch.from_numpy(given[key].left[head]), expected)
    assert (own[key].right == given[key].right).all()


def test_only_the_heads_that_are_read():
    view = without_positions("llama")
    ids = word_ids(view)
    every, some = factors(view, ids), factors(view.only([1], [3]), ids)
    assert {key[1] for key in some} == {1}
    key = ("decoder", 1, "layer", "QK")
    assert (some[key].left[0] == every[key].left[3]).all()


def test_every_family_has_a_layout():
    assert set(LAYOUTS) == set(FAMILIES)


def test_an_unknown_type_is_refused_by_name(monkeypatch):
    view = without_positions("bert")
    monkeypatch.setattr(view, "model_type", "strange")
    with pytest.raises(UnsupportedModelError, match="'strange'"):
        factors(view, word_ids(view))


def test_electra_projects_only_embeddings_that_are_narrower():
    """As in electra-base and -large, whose embeddings are as wide as the states."""
    model, tokenizer = tiny.build("electra")
    config = type(model.config).from_dict(model.config.to_dict() | {"embedding_size": model.config.hidden_size})
    view = view_model(type(model)(config).eval(), tokenizer, name="wide electra")
    ids = word_ids(view)
    found = factors(view, ids)[("encoder", 0, "raw", "OV")]
    value = view._model.encoder.layer[0].attention.self.value.weight.detach().double()
    expected = view.embedding_matrix()[ids].double() @ value[:8].T
    assert torch.allclose(torch.from_numpy(found.right[0]), expected)


def test_a_variant_without_a_module_is_refused_by_its_name():
    model, tokenizer = tiny.build("qwen3")
    del model.layers[0].self_attn.q_norm
    with pytest.raises(UnsupportedModelError, match="q_norm"):
        factors(view_model(model, tokenizer, name="variant"), torch.tensor([5, 6]))
