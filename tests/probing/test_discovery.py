"""Types outside the table of families: found by running them, or refused with the check that failed."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

import tiny
from topicscope.errors import UnsupportedModelError
from topicscope.probing.hf import attention_modules, families, view_model
from topicscope.probing.hf.discovery import discovered_family
from topicscope.probing.tokens import align_units, make_batches
from topicscope.text import Unit

SIZE = {"vocab_size": 320, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
SEQUENCE = SIZE | {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64, "decoder_start_token_id": 2,
}  # fmt: skip
STRANGERS = {
    "opt": lambda t: t.OPTModel(
        t.OPTConfig(
            **SIZE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=32, word_embed_proj_dim=32
        )
    ),
    "phi": lambda t: t.PhiModel(
        t.PhiConfig(**SIZE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    ),
    "ernie": lambda t: t.ErnieModel(
        t.ErnieConfig(**SIZE, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
    ),
    "mbart": lambda t: t.MBartModel(t.MBartConfig(**SEQUENCE, forced_eos_token_id=2)),
    "pegasus": lambda t: t.PegasusModel(t.PegasusConfig(**SEQUENCE, forced_eos_token_id=2)),
}


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model whose family is taken out of the table."""

    def take(family: str) -> tuple[Any, Any]:
        model, tokenizer = tiny.build(family)
        monkeypatch.delitem(families.FAMILIES, model.config.model_type)
        return model, tokenizer

    return take


@pytest.mark.parametrize("family", tiny.FAMILIES + tiny.MORE_FAMILIES)
def test_what_is_found_by_running_is_what_the_table_says(family: str) -> None:
    model, _ = tiny.build(family)
    known, found = families.FAMILIES[model.config.model_type], discovered_family(model, family)
    assert [p.spec(model.config) for p in found.parts] == [p.spec(model.config) for p in known.parts]
    for one, other in zip(found.parts, known.parts, strict=True):
        assert one.weights == other.weights
        assert attention_modules(model, one) == attention_modules(model, other)


@pytest.mark.parametrize("name", STRANGERS)
def test_a_type_outside_the_table_gives_what_the_library_gives(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = STRANGERS[name](transformers).eval()
    assert model.config.model_type not in families.FAMILIES
    tokenizer = tiny.tokenizer_for("roberta", tiny.WORDS[:10])
    texts = ["the river bank flows under", "old stone", "the bank under the river flows old"]
    view = view_model(model, tokenizer)
    units, _ = align_units(tokenizer, [Unit("d", i, text) for i, text in enumerate(texts)], max_length=view.max_length)
    (batch,) = make_batches(units)
    found: dict[tuple[str, int], torch.Tensor] = {}
    view.run(batch, lambda part, layer, attention: found.__setitem__((part, layer), attention.clone()))
    names = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    names = names if model.config.is_encoder_decoder else {view.parts[0].name: "attentions"}
    assert {part.name for part in view.parts} == set(names)
    model.set_attn_implementation("eager")
    for row, unit in enumerate(batch.unit_index):
        ids = torch.tensor([units[unit].input_ids])
        inputs = {"input_ids": ids}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = torch.cat([torch.tensor([[2]]), ids[:, :-1]], 1)
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
        n = ids.shape[1]
        for part, field in names.items():
            for layer, expected in enumerate(output[field]):
                torch.testing.assert_close(found[part, layer][row][:, :n, :n], expected[0], atol=1e-5, rtol=0)
    # Pegasus looks its words up in a copy that is tied to the table.
    ids = torch.tensor([5, 7])
    output, rows = view.embedding_output(ids), view.embedding_matrix()[ids]
    scale = (output / rows).flatten()[0]
    torch.testing.assert_close(output, rows * scale)


def test_sinks_of_an_unknown_type_are_noticed(strange: Any) -> None:
    assert view_model(*strange("gpt_oss")).parts[0].sinks


def spoil(module: torch.nn.Module, change: Any) -> None:
    module.register_forward_hook(lambda _module, _inputs, output: (output[0], change(output[1])))


def looks_ahead(weights: torch.Tensor) -> torch.Tensor:
    return torch.full_like(weights, 1 / weights.shape[-1])


@pytest.mark.parametrize(
    ("family", "where", "change", "reason"),
    [
        ("bert", "encoder.layer.0.attention.self", lambda w: w * 1.5, "sum to more than 1"),
        ("bert", "encoder.layer.0.attention.self", lambda w: w[:, :2], "differ in their number of heads"),
        ("gpt2", "h.1.attn", looks_ahead, "some of its layers look at later tokens"),
        ("bart", "decoder.layers.0.self_attn", looks_ahead, "its decoder looks at later tokens"),
        (
            "bert",
            "encoder.layer.0.attention.self",
            lambda w: (w * torch.arange(1, w.shape[-1] + 1)).softmax(-1),
            "padding",
        ),
    ],
)
def test_a_model_that_fails_a_check_is_refused_by_name(
    family: str, where: str, change: Any, reason: str, strange: Any
) -> None:
    model, tokenizer = strange(family)
    spoil(model.get_submodule(where), change)
    with pytest.raises(UnsupportedModelError, match=f"'{family}'.*not in the table.*{reason}") as caught:
        view_model(model, tokenizer, name="my-model")
    assert "my-model" in str(caught.value)
    assert model.config._attn_implementation == "sdpa"


def test_a_model_that_hands_out_nothing_is_refused(strange: Any) -> None:
    model, tokenizer = strange("bert")
    for layer in model.encoder.layer:
        layer.attention.self.register_forward_hook(lambda _module, _inputs, output: (output[0], None))
    with pytest.raises(UnsupportedModelError, match="none of its modules hands out attention weights"):
        view_model(model, tokenizer)


def test_a_model_that_needs_more_than_text_is_refused() -> None:
    config = transformers.CLIPConfig(
        text_config={"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        vision_config={"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8},
    )
    with pytest.raises(UnsupportedModelError, match=r"'clip'.*cannot be run on text alone"):
        view_model(transformers.CLIPModel(config).eval(), tiny.tokenizer_for("roberta", tiny.WORDS[:10]))
