"""The reduced model against the token-level module: the same losses and gradients, or a refusal with a reason."""

import itertools

import numpy as np
import pytest
import torch

from topicscope.errors import InputError
from topicscope.lab import (
    CountTensors,
    ModelConfig,
    ReducedTransformer,
    TopicTransformer,
    start,
    why_not_reduced,
)
from topicscope.synthetic import DocumentLaw, MaskedBatch, Masking, count_tokens
from topicscope.topics import TopicModel

TOPICS = TopicModel.disjoint(3, 4)
CONFIGS = {
    "uniform": ModelConfig(attention="uniform", sigma=0.3),
    "trained": ModelConfig(sigma=0.5, attention_width=5),
    "frozen block": ModelConfig(sigma=0.5, value="block", value_scale=2.0),
    "frozen diagonal": ModelConfig(sigma=0.5, value="diagonal", value_scale=2.0, bias="trained"),
    "identity": ModelConfig(sigma=0.5, value="identity"),
    "biased": ModelConfig(sigma=0.5, bias="trained"),
    "tied embedding": ModelConfig(
        embedding="trained", width=6, attention="uniform", value="identity", bias="fixed", sigma=0.4
    ),
    "everything": ModelConfig(
        embedding="trained", width=6, attention_width=3, head="trained", bias="trained", sigma=0.5
    ),
}


def batch_of(masking: Masking, seed: int, documents: int = 12) -> MaskedBatch:
    rng = np.random.default_rng(seed)
    return masking.apply(rng, DocumentLaw(TOPICS, 2, (1, 12)).draw(rng, documents))


def starts_of(config: ModelConfig, masking: Masking, seeds: int) -> list:
    D = masking.num_tokens(12)
    arrays = {"b_pred": np.linspace(-1, 1, D)} if config.bias == "fixed" else {}
    return [start(config, D, TOPICS, arrays, seed=s, dtype=torch.float64) for s in range(seeds)]


def by_tokens(config, one_start, batch, loss, weighting):
    model = TopicTransformer(config, one_start)
    value = model.data_loss(batch, loss, weighting)
    value.backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters()}


def by_counts(config, starts, batches, masking, loss, weighting):
    model = ReducedTransformer(config, starts)
    D = masking.num_tokens(12)
    counts = [count_tokens(b, D, weighting, by_query=model.by_query) for b in batches]
    value = model.data_loss(CountTensors.of(counts, torch.float64), loss)
    value.sum().backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize(("specials", "hidden"), list(itertools.product([False, True], repeat=2)))
def test_losses_and_gradients_equal_the_token_level(name, loss, weighting, specials, hidden) -> None:
    config = CONFIGS[name]
    masking = Masking(0.3, 0.3, 0.3, weighting, specials, hidden)
    starts = starts_of(config, masking, 3)
    batches = [batch_of(masking, seed) for seed in range(3)]
    values, gradients = by_counts(config, starts, batches, masking, loss, weighting)
    assert gradients
    for seed in range(3):
        value, expected = by_tokens(config, starts[seed], batches[seed], loss, weighting)
        assert abs(values[seed] - value) <= 1e-12 * max(1, abs(value))
        assert expected.keys() == gradients.keys()
        for key, gradient in expected.items():
            assert gradient.abs().max() > 1e-6, key
            torch.testing.assert_close(gradients[key][seed], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["uniform", "trained", "everything"])
def test_a_batch_shared_by_all_seeds(name) -> None:
    config, masking = CONFIGS[name], Masking(0.3, 0.3, 0.3)
    starts, batch = starts_of(config, masking, 3), batch_of(masking, 0)
    shared, g_shared = by_counts(config, starts, [batch], masking, "cross-entropy", "document")
    own, g_own = by_counts(config, starts, [batch] * 3, masking, "cross-entropy", "document")
    torch.testing.assert_close(shared, own, rtol=1e-13, atol=0)
    for key in g_own:
        torch.testing.assert_close(g_shared[key], g_own[key], rtol=1e-12, atol=1e-14)


def test_the_comparison_notices_a_wrong_weighting_and_a_wrong_key_set() -> None:
    config, masking = CONFIGS["trained"], Masking(0.3, 0.3, 0.3)
    starts, batch = starts_of(config, masking, 1), batch_of(masking, 0)
    right, _ = by_tokens(config, starts[0], batch, "squared", "document")
    for other, weighting in ((masking, "token"), (Masking(0.3, 0.3, 0.3, hide_selected=True), "document")):
        value, _ = by_counts(config, starts, [batch_of(other, 0)], other, "squared", weighting)
        assert abs(value - right) > 1e-5


def test_gradients_agree_with_finite_differences() -> None:
    masking = Masking(0.3, 0.3, 0.3)
    config = ModelConfig(sigma=0.5, bias="trained", attention_width=3)
    model = ReducedTransformer(config, starts_of(config, masking, 2))
    counts = CountTensors.of([count_tokens(batch_of(masking, 1, 4), 13, "document", by_query=True)], torch.float64)
    names = [name for name, _ in model.named_parameters()]
    for loss in ("cross-entropy", "squared"):

        def function(*values, loss=loss):
            return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (counts, loss))

        model.forward = model.data_loss
        assert torch.autograd.gradcheck(function, tuple(model.parameters()))


def test_a_document_with_nothing_to_attend_predicts_the_bias() -> None:
    masking = Masking(0.999, 0.3, 0.3, hide_selected=True)
    config = CONFIGS["biased"]
    batches = [batch_of(masking, 5)]
    assert not batches[0].attendable.any(axis=1).all()
    starts = starts_of(config, masking, 1)
    values, gradients = by_counts(config, starts, batches, masking, "squared", "document")
    value, expected = by_tokens(config, starts[0], batches[0], "squared", "document")
    assert torch.isfinite(values).all()
    torch.testing.assert_close(values[0], value, rtol=1e-12, atol=0)
    for key, gradient in expected.items():
        torch.testing.assert_close(gradients[key][0], gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layers": 2}, "layer"),
        ({"heads": 2}, "head"),
        ({"positions": 20}, "positions"),
        ({"residual": True}, "residual"),
        ({"layer_norm": True}, "normalisation"),
        ({"feed_forward": 8}, "feed-forward"),
        ({"output_projection": True}, "output projection"),
    ],
)
def test_what_counts_cannot_hold_is_refused_with_the_reason(change, reason) -> None:
    config = ModelConfig(**change)
    assert reason in (why_not_reduced(config) or "")
    with pytest.raises(InputError, match=reason):
        ReducedTransformer(config, [start(config, 13)])
    assert why_not_reduced(ModelConfig()) is None


def test_a_seed_trains_alone_as_it_does_in_the_stack() -> None:
    config, masking = CONFIGS["trained"], Masking(0.3, 0.3, 0.3)
    counts = [count_tokens(batch_of(masking, s), 13, "document", by_query=True) for s in range(3)]
    starts = starts_of(config, masking, 3)
    ends = []
    for chosen in ([0, 1, 2], [1]):
        model = ReducedTransformer(config, [starts[s] for s in chosen])
        optimiser = torch.optim.AdamW(list(model.parameters()), lr=0.01)
        for _ in range(5):
            optimiser.zero_grad()
            data = CountTensors.of([counts[s] for s in chosen], torch.float64)
            model.data_loss(data, "cross-entropy").sum().backward()
            optimiser.step()
        ends.append({name: value[chosen.index(1)] for name, value in model.weights().items()})
    assert not torch.equal(ends[0]["W_K"], starts[1].parameters["W_K"])
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-12, atol=1e-14)


def test_one_nan_seed_leaves_the_others_alone() -> None:
    config, masking = CONFIGS["uniform"], Masking(0.3, 0.3, 0.3)
    starts = starts_of(config, masking, 2)
    starts[0].parameters["W_V"].fill_(float("nan"))
    values, gradients = by_counts(config, starts, [batch_of(masking, 0)], masking, "squared", "document")
    assert torch.isnan(values).tolist() == [True, False]
    assert torch.isfinite(gradients["W_V"][1]).all()
