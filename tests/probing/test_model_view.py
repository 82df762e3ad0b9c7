"""Every family through one view, against what the library itself returns from a second, eager copy of the model."""

import copy
import gc
from typing import Any

import pytest
import torch
import transformers

import tiny
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import AlignedUnit, Batch, align_units, make_batches
from topicscope.text import Unit

ALL = tiny.FAMILIES + tiny.MORE_FAMILIES
CAUSAL = (
    "gpt2", "llama", "gpt_neox", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gpt_oss",
)  # fmt: skip
SEQUENCE_TO_SEQUENCE = ("bart", "t5", "mt5")
TEXTS = (
    "the river flows under the old stone bridge toward the sea",
    "castle war",
    "the king and the queen with an army of the city and the sword in the battle of snow and ice",
    "a song",
    "planet moon star light orbit rocket",
    "doctor",
    "the bird in the tree was with the fish on the water",
    "school book",
)


def view(family: str, **options: Any) -> ModelView:
    return view_model(*tiny.build(family, **options))


def aligned(a_view: ModelView, texts: tuple[str, ...] = TEXTS) -> list[AlignedUnit]:
    units = [Unit("d", i, text) for i, text in enumerate(texts)]
    return align_units(a_view.tokenizer, units, max_length=a_view.max_length)[0]


def read(a_view: ModelView, batch: Batch) -> dict[tuple[str, int], torch.Tensor]:
    found: dict[tuple[str, int], torch.Tensor] = {}
    a_view.run(batch, lambda part, layer, attention: found.__setitem__((part, layer), attention.clone()))
    return found


def by_unit(a_view: ModelView, batches: list[Batch]) -> dict[tuple[int, str, int], torch.Tensor]:
    """Attention [head, query, key] of each unit, part and layer without the padding."""
    found = {}
    for batch in batches:
        for (part, layer), attention in read(a_view, batch).items():
            for row, unit in enumerate(batch.unit_index):
                kept = batch.attention_mask[row].bool()
                found[unit, part, layer] = attention[row][:, kept][:, :, kept]
    return found


def reference(model: Any, ids: torch.Tensor) -> dict[tuple[str, int], torch.Tensor]:
    """All attentions of one unpadded unit [1, L], as the library returns them."""
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    inputs = {"input_ids": ids, "output_attentions": True}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), ids[:, :-1]], 1)
    with torch.no_grad():
        output = twin.eval()(**inputs)
    if model.config.is_encoder_decoder:
        named = {"encoder": output.encoder_attentions, "decoder": output.decoder_attentions}
        named["cross"] = output.cross_attentions
    else:
        named = {"decoder" if model.config.model_type in CAUSAL else "encoder": output.attentions}
    return {(part, layer): a for part, layers in named.items() for layer, a in enumerate(layers)}


@pytest.mark.parametrize("family", ALL)
def test_a_padded_batch_gives_what_the_library_gives_for_each_unit_alone(family: str) -> None:
    model, tokenizer = tiny.build(family)
    a_view = view_model(model, tokenizer)
    units = aligned(a_view)
    found = by_unit(a_view, make_batches(units, batch_size=8))
    for i, unit in enumerate(units):
        expected = reference(model, torch.tensor([unit.input_ids]))
        assert {key[1:] for key in found if key[0] == i} == set(expected)
        for (part, layer), attention in expected.items():
            torch.testing.assert_close(found[i, part, layer], attention[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_symptom_8_neither_batch_nor_padding_side_matters(family: str) -> None:
    a_view = view(family)
    units = aligned(a_view)
    alone = by_unit(a_view, make_batches(units, batch_size=1))
    for side in ("right", "left"):
        together = by_unit(a_view, make_batches(units, batch_size=8, pad_side=side))
        assert together.keys() == alone.keys()
        for key, attention in alone.items():
            torch.testing.assert_close(together[key], attention, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_rows_sum_to_one_and_causal_parts_look_back(family: str) -> None:
    a_view = view(family)
    (batch,) = make_batches(aligned(a_view), batch_size=8)
    causal = {part.name: part.causal for part in a_view.parts}
    assert any(causal.values()) == (family in (*CAUSAL, *SEQUENCE_TO_SEQUENCE))
    for (part, _layer), attention in read(a_view, batch).items():
        assert attention.dtype == torch.float32
        sums = (attention * batch.attention_mask[:, None, None]).sum(-1)
        attended = batch.attention_mask[:, None].expand_as(sums).bool()
        if family == "gpt_oss":  # learned sinks take their part of each row
            assert bool((sums[attended] < 1).all())
        else:
            torch.testing.assert_close(sums[attended], torch.ones_like(sums[attended]))
        ahead = attention.triu(1) * attended[..., None]  # padded queries may hold anything
        assert bool((ahead == 0).all()) == causal[part]


def test_symptom_12_albert_has_a_row_for_every_call_of_its_one_module() -> None:
    a_view = view("albert")
    (batch,) = make_batches(aligned(a_view), batch_size=8)
    found = read(a_view, batch)
    assert list(found) == [("encoder", 0), ("encoder", 1), ("encoder", 2)]
    assert not torch.allclose(found["encoder", 0], found["encoder", 1], atol=1e-6)


def test_symptom_10_encoder_decoder_and_cross_attention_are_kept_apart() -> None:
    parts = {part.name: part for part in view("bart").parts}
    assert list(parts) == ["encoder", "decoder", "cross"]
    assert [parts[name].num_layers for name in parts] == [2, 3, 3]
    assert [parts[name].num_heads for name in parts] == [4, 2, 2]
    assert (parts["decoder"].query_shift, parts["decoder"].key_shift) == (1, 1)
    assert (parts["cross"].query_shift, parts["cross"].key_shift) == (1, 0)


def test_what_the_decoder_reads_is_the_text_one_to_the_right_as_bart_shifts_it() -> None:
    model, tokenizer = tiny.build("bart")
    a_view = view_model(model, tokenizer)
    (batch,) = make_batches(aligned(a_view, TEXTS[:1]), batch_size=1)
    read_ids = []
    handle = model.decoder.embed_tokens.register_forward_pre_hook(lambda _m, args: read_ids.append(args[0]))
    read(a_view, batch)
    handle.remove()
    shift = transformers.models.bart.modeling_bart.shift_tokens_right
    assert torch.equal(read_ids[-1], shift(batch.input_ids, 1, model.config.decoder_start_token_id))


def test_heads_are_query_heads_where_keys_and_values_are_shared() -> None:
    model, tokenizer = tiny.build("llama")
    assert model.config.num_key_value_heads == 2
    assert view_model(model, tokenizer).parts[0].num_heads == 4


def state_of(model: Any) -> Any:
    hooks = [
        (name, list(m._forward_hooks), list(m._forward_pre_hooks), m.training) for name, m in model.named_modules()
    ]
    weights = {name: p.clone() for name, p in model.state_dict().items()}
    return hooks, model.config.to_dict(), model.config._attn_implementation, weights, torch.get_rng_state()


def assert_same_state(before: Any, after: Any) -> None:
    assert before[:3] == after[:3]
    assert all(torch.equal(before[3][name], after[3][name]) for name in before[3])
    assert torch.equal(before[4], after[4])


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_symptoms_1_and_7_the_model_is_left_as_it_was_found(family: str, fails: bool, kernel: str) -> None:
    model, tokenizer = tiny.build(family)
    kernel = "eager" if family == "mpnet" else kernel
    a_view = view_model(model, tokenizer)
    (batch,) = make_batches(aligned(a_view), batch_size=8)
    expected = read(a_view, batch)
    # Dropout on, one module apart from the others, and all outputs asked for by the config.
    model.train()
    next(model.children()).eval()
    model.set_attn_implementation(kernel)
    model.config.output_attentions = kernel == "eager"  # a config may not ask for it otherwise
    before = state_of(model)

    def on_attention(part: str, layer: int, attention: torch.Tensor) -> None:
        assert model.config._attn_implementation == "eager"
        torch.testing.assert_close(attention, expected[part, layer])
        if fails and layer == 1:
            raise ValueError("of the caller")

    if fails:
        with pytest.raises(ValueError, match="of the caller"):
            a_view.run(batch, on_attention)
    else:
        a_view.run(batch, on_attention)
    assert_same_state(before, state_of(model))


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_symptoms_1_and_4_the_kernel_makes_no_difference_and_is_recorded(family: str, kernel: str) -> None:
    model, tokenizer = tiny.build(family)
    model.set_attn_implementation(kernel)
    a_view = view_model(model, tokenizer)
    assert (a_view.kernel, a_view.dtype, a_view.device) == (kernel, "float32", "cpu")
    (batch,) = make_batches(aligned(a_view), batch_size=8)
    found, expected = read(a_view, batch), read(view(family), batch)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert model.config._attn_implementation == kernel


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_only_one_layer_is_alive_at_a_time(family: str) -> None:
    a_view = view(family)
    (batch,) = make_batches(aligned(a_view), batch_size=8)
    length, alive = batch.input_ids.shape[1], []

    def count(_part: str, _layer: int, attention: torch.Tensor) -> None:
        shapes = {tuple(attention.shape)} | {(8, part.num_heads, length, length) for part in a_view.parts}
        # By type(): isinstance would wake deprecated attributes of unrelated objects.
        tensors = (t for t in gc.get_objects() if issubclass(type(t), torch.Tensor))
        storages = {t.data_ptr() for t in tensors if tuple(t.shape) in shapes}
        alive.append(len(storages))

    a_view.run(batch, count)
    # MPNet computes its position bias once, in the shape of the attention.
    assert max(alive) == (2 if family == "mpnet" else 1)


@pytest.mark.parametrize(
    ("family", "with_head"),
    [
        ("bert", transformers.BertForMaskedLM),
        ("gpt2", transformers.GPT2LMHeadModel),
        ("llama", transformers.LlamaForCausalLM),
        ("bart", transformers.BartForConditionalGeneration),
        ("distilbert", transformers.DistilBertForSequenceClassification),
    ],
)
def test_a_head_is_never_run(family: str, with_head: Any) -> None:
    base, tokenizer = tiny.build(family)
    model = with_head(base.config).eval()
    a_view = view_model(model, tokenizer)
    (batch,) = make_batches(aligned(a_view), batch_size=8)

    def forbidden(*_: Any) -> None:
        raise AssertionError("the head was run")

    for name, child in model.named_children():
        if name != model.base_model_prefix:
            child.register_forward_pre_hook(forbidden)
    expected = read(view_model(model.base_model, tokenizer), batch)
    found = read(a_view, batch)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert a_view.weights_hash() == view_model(model.base_model, tokenizer).weights_hash()


def test_half_precision_gives_float32_probabilities() -> None:
    model, tokenizer = tiny.build("bert")
    (batch,) = make_batches(aligned(view_model(model, tokenizer)), batch_size=8)
    exact = read(view_model(copy.deepcopy(model), tokenizer), batch)
    a_view = view_model(model.to(torch.bfloat16), tokenizer)
    assert a_view.dtype == "bfloat16"
    for key, attention in read(a_view, batch).items():
        assert attention.dtype == torch.float32
        torch.testing.assert_close(attention, exact[key], atol=5e-3, rtol=0)


def test_the_window_is_that_of_the_model_or_the_tokenizer() -> None:
    for family in ALL:
        a_view = view(family)
        assert a_view.max_length == tiny.MAX_LENGTH
        ids = torch.full((1, a_view.max_length), 5)
        batch = Batch(ids, torch.ones_like(ids), (0,))
        assert all(a.shape[-1] == tiny.MAX_LENGTH for a in read(a_view, batch).values())
    model, tokenizer = tiny.build("roberta")
    tokenizer.model_max_length = 10**30
    assert view_model(model, tokenizer).max_length == tiny.MAX_LENGTH
    tokenizer.model_max_length = 20
    assert view_model(model, tokenizer).max_length == 20
