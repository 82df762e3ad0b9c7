"""The token-level model against its formula, a library's layer, and what freezing promises."""

import math

import numpy as np
import pytest
import torch

from topicscope.errors import InputError
from topicscope.lab import ModelConfig, Start, TopicTransformer, start
from topicscope.synthetic import DocumentLaw, MaskedBatch, Masking
from topicscope.topics import TopicModel

TOPICS = TopicModel.disjoint(3, 4)
PLAIN = ModelConfig(embedding="trained", width=5, attention_width=3, bias="trained", sigma=0.7)


def batch_of(seed: int = 0, documents: int = 4, length=(3, 9), **masking) -> MaskedBatch:
    rng = np.random.default_rng(seed)
    return Masking(0.3, 0.3, 0.3, **masking).apply(rng, DocumentLaw(TOPICS, 2, length).draw(rng, documents))


def model_of(config: ModelConfig, num_tokens: int = 13, **kwargs) -> TopicTransformer:
    return TopicTransformer(config, start(config, num_tokens, TOPICS, dtype=torch.float64, **kwargs))


def test_the_paper_formula_column_by_column() -> None:
    """X̂ = W_predᵀ-tied W_V Z A + b with A's columns summing to 1, and the loss of Knowl 6, in plain loops."""
    batch, model = batch_of(), model_of(PLAIN)
    W_E, W_K, W_Q, W_V, b = (model.weights()[n].numpy() for n in ("W_E", "W_K", "W_Q", "W_V", "b_pred"))
    b = b + np.linspace(0, 1, 13)
    model.b_pred.data[:] = torch.from_numpy(b)
    squared = entropy = 0.0
    for d in range(len(batch)):
        N = int(batch.attendable[d].sum())
        X = np.eye(13)[:, batch.input_ids[d, :N]]
        Z = W_E @ X
        scores = (W_K @ Z).T @ (W_Q @ Z) / math.sqrt(3)
        A = np.exp(scores) / np.exp(scores).sum(axis=0, keepdims=True)
        out = W_E.T @ W_V @ Z @ A + b[:, None]
        np.testing.assert_allclose(model(batch)[d, :N].detach().numpy().T, out, atol=1e-12)
        np.testing.assert_allclose(model.attention(batch)[0][d, 0, :N, :N].detach().numpy(), A.T, atol=1e-13)
        chosen = np.flatnonzero(batch.selected[d])
        for j in chosen:
            x = np.eye(13)[batch.labels[d, j]]
            squared += ((out[:, j] - x) ** 2).sum() / len(chosen) / len(batch)
            entropy -= np.log(np.exp(out[:, j]) @ x / np.exp(out[:, j]).sum()) / len(chosen) / len(batch)
    assert model.data_loss(batch, "squared", "document").item() == pytest.approx(squared, rel=1e-12)
    assert model.data_loss(batch, "cross-entropy", "document").item() == pytest.approx(entropy, rel=1e-12)


def test_token_weighting_is_the_mean_over_selected_positions() -> None:
    batch, model = batch_of(), model_of(PLAIN)
    selected = torch.from_numpy(batch.selected)
    logits, labels = model(batch)[selected], torch.from_numpy(batch.labels)[selected]
    expected = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(model.data_loss(batch, "cross-entropy", "token"), expected)
    assert (model.data_loss(batch, "cross-entropy", "document") - expected).abs() > 1e-6


def test_uniform_attention_spreads_evenly_over_the_attended_keys() -> None:
    for hidden in (False, True):
        batch = batch_of(hide_selected=hidden)
        (pattern,) = model_of(ModelConfig(attention="uniform")).attention(batch)
        keys = batch.attendable / batch.attendable.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(pattern[:, 0].numpy(), np.repeat(keys[:, None], keys.shape[1], 1), atol=1e-15)


def test_padding_and_order_change_nothing() -> None:
    batch, model = batch_of(), model_of(PLAIN)
    more = MaskedBatch(
        *(np.pad(getattr(batch, n), ((0, 0), (0, 3)), constant_values=f) for n, f in
          (("input_ids", 15), ("labels", 15), ("selected", False), ("attendable", False))),
        batch.vocabulary_size,
    )  # fmt: skip
    reverse = batch_of()
    reverse = MaskedBatch(
        reverse.input_ids[:, ::-1].copy(), reverse.labels[:, ::-1].copy(), reverse.selected[:, ::-1].copy(),
        reverse.attendable[:, ::-1].copy(), 12,
    )  # fmt: skip
    value = model.data_loss(batch, "squared", "document")
    for other in (more, reverse):
        torch.testing.assert_close(model.data_loss(other, "squared", "document"), value, rtol=1e-12, atol=0)
    placed = model_of(PLAIN.model_copy(update={"positions": 12}))
    assert (
        placed.data_loss(reverse, "squared", "document") - placed.data_loss(batch, "squared", "document")
    ).abs() > 1e-4


def test_heads_add_up() -> None:
    batch = batch_of()
    config = ModelConfig(heads=2, attention_width=3, sigma=0.5)
    both = model_of(config)
    w = both.weights()
    total = 0
    for head in range(2):
        part = {n: w[n].unflatten(0, (2, -1))[head] for n in ("W_K", "W_Q", "W_V")}
        single = Start({**w, **part}, frozenset())
        total = total + TopicTransformer(ModelConfig(attention_width=3), single)(batch)
    torch.testing.assert_close(both(batch), total, rtol=1e-12, atol=1e-13)
    assert both.attention(batch)[0].shape[1] == 2


def test_the_full_layer_is_the_library_encoder_layer() -> None:
    """All switches on, one by one tested by the library's own post-norm layer (its attention biases set to 0)."""
    batch = batch_of(length=6)
    config = ModelConfig(
        embedding="trained", width=8, heads=2, output_projection=True, residual=True, layer_norm=True,
        feed_forward=16, positions=6, layers=2, head="trained", sigma=0.5,
    )  # fmt: skip
    model = model_of(config)
    w = model.weights()
    z = (w["W_E"].T[torch.from_numpy(batch.input_ids)] + w["W_pos"].T).detach()
    for suffix in ("", "_2"):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, dtype=torch.float64).train()
        with torch.no_grad():
            layer.self_attn.in_proj_weight.copy_(torch.cat([w[n + suffix] for n in ("W_Q", "W_K", "W_V")]))
            layer.self_attn.in_proj_bias.zero_()
            layer.self_attn.out_proj.weight.copy_(w["W_O" + suffix])
            layer.self_attn.out_proj.bias.zero_()
            layer.linear1.weight.copy_(w["W_in" + suffix])
            layer.linear1.bias.copy_(w["b_in" + suffix])
            layer.linear2.weight.copy_(w["W_out" + suffix])
            layer.linear2.bias.copy_(w["b_out" + suffix])
        z = layer(z)
    torch.testing.assert_close(model(batch), z @ w["W_pred"].T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "switch",
    [
        {"heads": 2}, {"layers": 2}, {"output_projection": True}, {"residual": True}, {"layer_norm": True},
        {"feed_forward": 7}, {"positions": 9}, {"head": "trained"}, {"bias": "trained"},
    ],
    ids=lambda s: next(iter(s)),
)  # fmt: skip
def test_every_switch_works_alone_and_its_parameters_are_trained(switch) -> None:
    batch = batch_of(length=9)
    base = ModelConfig(embedding="trained", width=6, sigma=0.5)
    model = model_of(base.model_copy(update=switch))
    model.data_loss(batch, "cross-entropy", "document").backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A constant added to every value before a softmax or nothing at all moves; every other parameter must.
    assert still == []
    if switch != {"bias": "trained"}:
        assert (model(batch) - model_of(base)(batch)).abs().max() > 1e-3


FROZEN = {
    "uniform": (ModelConfig(attention="uniform"), {"W_E", "W_K", "W_Q", "b_pred"}),
    "identity": (ModelConfig(value="identity", value_scale=3.0), {"W_E", "W_V", "b_pred"}),
    "named": (PLAIN.model_copy(update={"frozen": ("W_K", "W_E")}), {"W_K", "W_E"}),
    "each layer": (ModelConfig(layers=2, frozen=("W_Q",)), {"W_E", "W_Q", "W_Q_2", "b_pred"}),
}


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_parts_stay_frozen_whatever_moves_the_rest(name) -> None:
    config, frozen = FROZEN[name]
    config = config.model_copy(update={"sigma": 0.0}) if name == "identity" else config
    model, batch = model_of(config), batch_of()
    assert model.frozen == frozen
    assert model.frozen.isdisjoint(dict(model.named_parameters()))
    before = {n: w.clone() for n, w in model.weights().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        model.data_loss(batch, "squared", "document").backward()
        optimiser.step()
    moved = {n for n, w in model.weights().items() if not torch.equal(w, before[n])}
    assert moved.isdisjoint(frozen)
    # From exact zero W_K and W_Q have no gradient: the saddle that the paper's near-zero start avoids.
    assert moved == (set() if name == "identity" else set(dict(model.named_parameters())))


def test_unknown_tokens_and_long_documents_are_refused() -> None:
    with pytest.raises(InputError, match="tokens that the model does not know"):
        model_of(PLAIN)(batch_of(specials=True))
    with pytest.raises(InputError, match="longer than the model's positions"):
        model_of(PLAIN.model_copy(update={"positions": 5}))(batch_of(length=9))
    assert model_of(PLAIN, num_tokens=15)(batch_of(specials=True)).shape[-1] == 15


def test_the_state_dict_holds_frozen_matrices_too() -> None:
    model = model_of(ModelConfig(attention="uniform"))
    other = model_of(ModelConfig(attention="uniform"), seed=1)
    assert not torch.equal(other.W_V, model.W_V)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.W_V, model.W_V)
    assert {"W_E", "W_K", "W_Q", "W_V", "b_pred"} == set(model.state_dict())
