"""Embeddings, random controls and the hash of the weights."""

import copy

import pytest
import torch

import tiny
from topicscope.probing.hf import view_model

ALL = tiny.FAMILIES + tiny.MORE_FAMILIES


@pytest.mark.parametrize("family", ALL)
def test_the_output_of_the_embedding_layer_is_what_the_blocks_read(family: str) -> None:
    model, tokenizer = tiny.build(family)
    # Larger weights than at the start of training, so that a forgotten term shows.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    view = view_model(model, tokenizer)
    tokens = torch.arange(5, 60)
    found = view.embedding_output(tokens)
    inputs = torch.stack([torch.full_like(tokens, 3), tokens], 1)
    with torch.no_grad():
        reads = model.encoder if model.config.is_encoder_decoder else model
        output = reads(inputs, output_hidden_states=True)
    expected = output.hidden_states[0][:, 1]
    if family == "albert":
        found = model.encoder.embedding_hidden_mapping_in(found)
    if family == "electra":
        found = model.embeddings_project(found)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_embeddings_are_those_of_the_model_and_nothing_is_changed(family: str) -> None:
    model, tokenizer = tiny.build(family)
    model.train()
    view = view_model(model, tokenizer)
    tokens = torch.tensor([5, 6, 5])
    first = view.embedding_output(tokens)
    assert torch.equal(first, view.embedding_output(tokens))  # no dropout
    assert torch.equal(first[0], first[2])
    matrix = view.embedding_matrix()
    assert torch.equal(matrix, model.get_input_embeddings().weight)
    assert matrix.shape[1] == first.shape[1]
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert view.embedding_output(torch.empty(0, dtype=torch.int64)).shape == (0, matrix.shape[1])


def test_the_neighbour_of_a_token_makes_no_difference() -> None:
    view = view_model(*tiny.build("roberta"))
    tokens = torch.arange(5, 60)
    alone = torch.cat([view.embedding_output(token[None]) for token in tokens])
    torch.testing.assert_close(view.embedding_output(tokens), alone)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_random_controls_are_fixed_by_their_seed_and_touch_nothing(family: str) -> None:
    model, tokenizer = tiny.build(family)
    view = view_model(model, tokenizer, name="m")
    own, state = view.weights_hash(), torch.get_rng_state()
    one, again, two = view.randomised(1), view.randomised(1), view.randomised(2)
    assert torch.equal(torch.get_rng_state(), state)
    assert one.weights_hash() == again.weights_hash()
    assert len({own, one.weights_hash(), two.weights_hash()}) == 3
    assert view.weights_hash() == own
    assert (one.parts, one.kernel, one.max_length, one.dtype) == (view.parts, view.kernel, view.max_length, view.dtype)
    assert one.name == "m (random weights, seed 1)"


def test_random_controls_follow_the_initialisation_of_the_config() -> None:
    model, tokenizer = tiny.build("bert")
    model.config.initializer_range = 0.5
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight.fill_(7.0)
    matrix = view_model(model, tokenizer).randomised(0).embedding_matrix()
    assert float(matrix.std()) == pytest.approx(0.5, rel=0.05)


def test_random_controls_keep_the_precision() -> None:
    model, tokenizer = tiny.build("bert")
    assert view_model(model.to(torch.bfloat16), tokenizer).randomised(0).dtype == "bfloat16"


def test_the_hash_sees_one_bit_of_one_weight_but_no_pooler() -> None:
    model, tokenizer = tiny.build("bert")
    view = view_model(model, tokenizer)
    before = view.weights_hash()
    assert view_model(copy.deepcopy(model), tokenizer).weights_hash() == before
    with torch.no_grad():
        model.pooler.dense.weight.add_(1)
        assert view.weights_hash() == before
        bias = model.encoder.layer[1].attention.self.key.bias
        bias[3] = torch.nextafter(bias[3], torch.tensor(1.0))
    assert view.weights_hash() != before
    assert view_model(copy.deepcopy(model).to(torch.bfloat16), tokenizer).weights_hash() != view.weights_hash()
