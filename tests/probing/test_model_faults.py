"""What the view refuses: wrong weights at run time, models and tokenizers it cannot read."""

from typing import Any

import pytest
import torch
import transformers

import tiny
from topicscope.errors import InputError, RunError, UnsupportedModelError
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import Batch, align_units, make_batches
from topicscope.text import Unit

TEXT = "the river flows under the old stone bridge toward the sea"


def batch_for(a_view: ModelView) -> Batch:
    units, _ = align_units(a_view.tokenizer, [Unit("d", 0, TEXT)], max_length=a_view.max_length)
    return make_batches(units)[0]


def spoil(attention: torch.Tensor, how: str) -> torch.Tensor | None:
    return {
        "missing": None,
        "a lost causal mask": torch.full_like(attention, 1 / attention.shape[-1]),
        "dropout": attention * 1.1,
        "another shape": attention[:, :, :-1],
        "heads first": attention.transpose(0, 1).contiguous(),
        "not a number": attention * float("nan"),
    }[how]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "no attention weights"),
        ("a lost causal mask", "attends to later tokens"),
        ("dropout", "do not sum to 1"),
        ("another shape", "wrong shape"),
        ("heads first", "wrong shape"),
        ("not a number", "do not sum to 1"),
    ],
)
def test_symptoms_2_3_and_7_wrong_weights_name_layer_and_model(how: str, message: str) -> None:
    model, tokenizer = tiny.build("gpt2")
    a_view = view_model(model, tokenizer, name="my-model")
    batch = batch_for(a_view)
    handle = model.h[1].attn.register_forward_hook(lambda _m, _i, out: (out[0], spoil(out[1], how)))
    layers: list[int] = []
    with pytest.raises(RunError, match=message) as caught:
        a_view.run(batch, lambda _part, layer, _a: layers.append(layer))
    assert layers == [0]
    assert "decoder layer 1 of my-model (gpt2)" in str(caught.value)
    handle.remove()
    a_view.run(batch, lambda *_: None)


def test_a_layer_that_is_not_called_is_noticed() -> None:
    model, tokenizer = tiny.build("bert")
    a_view = view_model(model, tokenizer)
    model.encoder.layer = model.encoder.layer[:1]
    batch = batch_for(a_view)
    with pytest.raises(RunError, match="computed attention 1 times"):
        a_view.run(batch, lambda *_: None)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            lambda: transformers.MambaModel(
                transformers.MambaConfig(vocab_size=200, hidden_size=8, num_hidden_layers=1)
            ),
            "'mamba'.*no attention",
        ),
        (
            lambda: transformers.BartForCausalLM(tiny.build("bart")[0].config),
            "BartForCausalLM.*no encoder attention",
        ),
        (
            lambda: transformers.BertModel(transformers.BertConfig(vocab_size=200, hidden_size=12, is_decoder=True)),
            "configured as a decoder",
        ),
    ],
)
def test_unsupported_models_are_refused_by_name_with_the_reason(model: Any, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"(?s){reason}"):
        view_model(model(), tiny.tokenizer_for("bert"))


def test_symptom_11_outputs_of_generate_are_not_a_model() -> None:
    with pytest.raises(InputError, match="needs a Hugging Face model"):
        view_model(((torch.zeros(1, 1, 1, 1),),), tiny.tokenizer_for("gpt2"))


def test_a_foreign_tokenizer_is_refused() -> None:
    model, _ = tiny.build("bert")
    with pytest.raises(InputError, match="does not belong to the model"):
        view_model(model, tiny.tokenizer_for("gpt2"))
