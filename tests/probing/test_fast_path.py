"""Attention read in factors: the same sums as by its weights, chosen by a trial, and the model left as it was."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
from probing.test_attention import TEXTS, TOPICS, assignment, prepared, summed
from topicscope.probing.attention import Configuration, PartSums, TopicLookup, batch_sums
from topicscope.probing.hf import Factors, ModelView, NotFactored, view_model
from topicscope.probing.hf import sdpa as registry
from topicscope.probing.tokens import AlignedUnit, Batch, align_units, make_batches
from topicscope.text import Unit

EVERY = (*tiny.FAMILIES, *tiny.MORE_FAMILIES)
# Families whose attention has no factors here, by why: they compute it themselves, add position biases, cap scores,
# have learned sinks, or cut it by a window.
BY_HOOKS = {"mpnet", "deberta-v2", "t5", "mt5", "modernbert", "gemma2", "gemma3_text", "gpt_oss", "mistral"}
HONOURING = tuple(family for family in EVERY if family not in BY_HOOKS)


def assert_same(found: list[PartSums], expected: list[PartSums]) -> None:
    """Equal sums up to float32, and equal counts."""
    for one, other in zip(found, expected, strict=True):
        assert one.part == other.part
        for name in ("heads", "corrected", "binned"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a is None) == (b is None)
            if a is not None:
                assert (b > 0).any()
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7, err_msg=name)
        np.testing.assert_array_equal(one.counts, other.counts)
        np.testing.assert_array_equal(one.binned_counts, other.binned_counts)


def state_of(model: torch.nn.Module) -> list[Any]:
    """All that reading could leave changed."""
    modules = list(model.modules())
    return [
        model.config._attn_implementation,
        [module.training for module in modules],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules],
        [module.forward.__func__ for module in modules if "forward" in vars(type(module))],
        [key for module in modules for key in vars(module) if key == "forward"],
    ]


def batch_of(view: ModelView, pad_side: str = "right") -> Batch:
    units, _ = prepared(view)
    return make_batches(units, pad_side=pad_side)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("family", EVERY)
@pytest.mark.parametrize("pad_side", ["right", "left"])
def test_both_ways_give_the_same_sums_and_the_way_taken_is_known(family: str, pad_side: str) -> None:
    model, tokenizer = tiny.build(family)
    model.train()
    before = state_of(model)
    view, slow = view_model(model, tokenizer), view_model(model, tokenizer, hooks_only=True)
    units, lookup = prepared(view, "keep")
    assert_same(summed(view, units, lookup, pad_side=pad_side), summed(slow, units, lookup, pad_side=pad_side))
    assert view.path == ("hooks" if family in BY_HOOKS else "registry")
    assert slow.path == "hooks"
    assert state_of(model) == before


def test_every_layer_is_heard_once_and_the_pass_ends_at_the_last() -> None:
    view = view_model(*tiny.build("bart"))
    batch, heard, ran = batch_of(view), [], []
    model = view._model
    handles = [
        layer.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, layer in (("first", model.decoder.layers[0].fc2), ("last", model.decoder.layers[-1].fc2))
    ]
    view.run_factored(batch, lambda part, layer, _f: heard.append((part, layer)))
    assert sorted(heard) == [
        (part.name, layer) for part in sorted(view.parts, key=lambda p: p.name) for layer in part.layers
    ]
    assert ran == ["first"]  # nothing after the last attention is wanted
    view.run_factored(batch, lambda *_: None, whole=True)
    assert ran == ["first", "first", "last"]
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_the_model_is_as_found_after_an_exception(family: str) -> None:
    model, tokenizer = tiny.build(family)
    model.train()
    before, view = state_of(model), view_model(model, tokenizer)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    for run in (view.run_factored, view.run):
        with pytest.raises(ZeroDivisionError):
            run(batch_of(view), fail)
        assert state_of(model) == before


def test_attention_that_differs_from_its_factors_is_read_by_hooks() -> None:
    """A user's hook that changes the weights is seen by hooks only, so the trial must fail."""
    view = view_model(*tiny.build("bert"))
    assert view.can_be_factored(batch_of(view))

    def uniform(_module: object, _inputs: object, output: Any) -> Any:
        weights = output[1]
        return output if weights is None else (output[0], torch.full_like(weights, 1 / weights.shape[-1]))

    model, tokenizer = tiny.build("bert")
    model.encoder.layer[1].attention.self.register_forward_hook(uniform)
    changed = view_model(model, tokenizer)
    units, lookup = prepared(changed)
    parts = summed(changed, units[:1], lookup)
    assert changed.path == "hooks"
    assert parts[0].heads[0, 0, 1].max() > 0
    assert np.ptp(parts[0].heads[0, 0, 1], axis=0).max() < 1e-6  # over the heads of the layer that was changed


def test_a_window_that_cuts_only_long_units_sends_only_those_to_hooks() -> None:
    _, tokenizer = tiny.build("mistral")
    config = transformers.MistralConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=64, sliding_window=24, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MistralModel(config).eval()
    view, slow = view_model(model, tokenizer), view_model(model, tokenizer, hooks_only=True)
    units, _ = align_units(tokenizer, [Unit(d, i, text) for i, (d, text) in enumerate(TEXTS)], max_length=64)
    units = [*units[:2], AlignedUnit("c", 9, 0, units[2].input_ids * 2, units[2].words * 2)]
    assert len(units[0].input_ids) < 24 < len(units[-1].input_ids)
    lookup = TopicLookup(
        [Configuration(0.1, 0, assignment(TOPICS))], [w for u in units for w in u.words if w is not None]
    )
    assert_same(summed(view, units, lookup, batch_size=1), summed(slow, units, lookup, batch_size=1))
    assert view.path == "registry, hooks"


def test_a_wrong_normaliser_is_noticed_in_the_middle_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_model(*tiny.build("bert"))
    units, lookup = prepared(view)
    expected = summed(view, units, lookup)
    right = registry.attend

    def wrong(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output, normaliser = right(*args)
        return output, normaliser + 0.1

    monkeypatch.setattr(registry, "attend", wrong)
    assert_same(summed(view, units, lookup), expected)
    assert view.path == "registry, hooks"
    fresh = view_model(*tiny.build("bert"))
    assert not fresh.can_be_factored(batch_of(fresh))


def test_a_batch_is_not_counted_twice_where_factors_fail_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_model(*tiny.build("gpt2"))
    units, lookup = prepared(view)
    expected = summed(view, units, lookup)
    run_factored = ModelView.run_factored

    def half(self: ModelView, batch: Batch, on_factors: Any, *, whole: bool = False) -> None:
        def hear(part: str, layer: int, factors: Factors) -> None:
            if layer:
                raise NotFactored("half way")
            on_factors(part, layer, factors)

        run_factored(self, batch, hear, whole=whole)

    monkeypatch.setattr(ModelView, "run_factored", half)
    assert_same(summed(view, units, lookup), expected)


@pytest.mark.parametrize("family", ["bert", "bart", "qwen2"])
def test_the_size_of_the_blocks_does_not_matter(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    one_for_all = summed(view, units, lookup)
    monkeypatch.setattr(batch_sums, "CPU_BLOCK", 1)
    monkeypatch.setattr(batch_sums, "SINGLE_PAIRS_AT_A_TIME", 3)
    assert_same(summed(view, units, lookup), one_for_all)


@pytest.mark.parametrize("family", ["bert", "bart", "qwen2", "gpt2", "mpnet"])
def test_chosen_layers_and_heads_are_those_of_a_whole_reading(family: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    for layers, heads in (((1,), (0, 1)), (None, (1,)), ((0,), None)):
        chosen = view.only(layers, heads)
        for part, whole in zip(summed(chosen, units, lookup), summed(view, units, lookup), strict=True):
            assert part.part.layers == (layers or whole.part.layers)
            assert part.part.heads == (heads or whole.part.heads)
            np.testing.assert_allclose(
                part.heads, whole.heads[:, :, layers or slice(None)][..., heads or slice(None), :], rtol=1e-5, atol=1e-8
            )
            np.testing.assert_allclose(
                part.binned.sum(-1), part.heads.mean((2, 3))[..., [0, 2, 3]], rtol=1e-4, atol=1e-8
            )


@pytest.mark.parametrize("hooks_only", [False, True])
def test_layers_after_the_last_one_read_are_not_run(hooks_only: bool) -> None:
    model, tokenizer = tiny.build("bert")
    view = view_model(model, tokenizer, hooks_only=hooks_only)
    units, lookup = prepared(view)
    chosen = view.only([0])
    summed(chosen, units[:1], lookup)  # with the trial
    calls: list[int] = []
    handle = model.encoder.layer[1].register_forward_hook(lambda *_: calls.append(1))
    summed(chosen, units, lookup)
    handle.remove()
    assert calls == []
