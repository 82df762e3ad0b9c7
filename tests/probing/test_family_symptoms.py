"""What people ran into with neighbouring tools, looked for in every family in which it can occur."""

import tempfile
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from probing.twin import pair_sums
from topicscope.errors import RunError
from topicscope.probing.attention import Configuration, TopicLookup, sum_attention
from topicscope.probing.hf import ModelView, attention_modules, view_model
from topicscope.probing.hf.families import PartPattern
from topicscope.probing.tokens import Batch, align_units, make_batches
from topicscope.text import Unit
from topicscope.topics import TopicAssignment

FAMILIES = tiny.FAMILIES + tiny.MORE_FAMILIES
CAUSAL = tuple(f for f in FAMILIES if any(part.causal for part in view_model(*tiny.build(f)).parts))
GROUPED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gpt_oss")
PIECES = ("skip", "merge")  # of `--pieces`
ONE_KERNEL = ("mpnet", "deberta-v2", "gemma2", "gpt_oss")  # the library knows no other than eager


def batch_for(view: ModelView) -> Batch:
    units = [Unit("d", i, text) for i, text in enumerate(texts(3)[0].split(". "))]
    return make_batches(align_units(view.tokenizer, units, max_length=view.max_length)[0])[0]


def read(view: ModelView, batch: Batch) -> dict[tuple[str, int], torch.Tensor]:
    found: dict[tuple[str, int], torch.Tensor] = {}
    view.run(batch, lambda part, layer, attention: found.__setitem__((part, layer), attention.clone()))
    return found


def spoil(model: Any, pattern: PartPattern, change: Any) -> None:
    """Change the weights that the last attention module of a part hands out."""
    at = pattern.weights

    def hook(_module: Any, _inputs: Any, output: Any) -> Any:
        return (*output[:at], change(output[at]), *output[at + 1 :])

    attention_modules(model, pattern)[-1].register_forward_hook(hook)


def last_layer(view: ModelView, number: int) -> str:
    """How an error names the last layer of a part; ALBERT's one module fails at its first call."""
    part = view.parts[number]
    return f"{part.name} layer {0 if view.model_type == 'albert' else part.num_layers - 1} of my-model"


@cache
def heads_under(family: str, kernel: str) -> pd.DataFrame:
    """The table of heads, which two symptoms look at; without what they do not need (shuffles, profiles)."""
    model, tokenizer = tiny.build(family)
    model.set_attn_implementation(kernel)
    assert model.config._attn_implementation == kernel
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words.csv"
        words.write_text(WORDS_CSV)
        options: dict[str, Any] = {"controls": 0, "permutations": 0, "profile": 0}
        result = topicscope.probe(model, tokenizer, texts(4), topics=words, **options)
    assert model.config._attn_implementation == result.model["kernel"] == kernel
    return result.heads()


@pytest.mark.parametrize("family", FAMILIES)
def test_symptom_1_the_kernel_makes_no_difference_to_any_family(family: str) -> None:
    columns = ["mean_same", "mean_different", "attention_ratio"]
    eager = heads_under(family, "eager")[columns].to_numpy()
    assert np.isfinite(eager).all()
    if family not in ONE_KERNEL:
        np.testing.assert_allclose(heads_under(family, "sdpa")[columns].to_numpy(), eager, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", CAUSAL)
def test_symptom_2_a_lost_causal_mask_is_noticed_in_every_causal_family(family: str) -> None:
    model, tokenizer = tiny.build(family)
    view = view_model(model, tokenizer, name="my-model")
    number = next(i for i, part in enumerate(view.parts) if part.causal)
    spoil(model, view.family.parts[number], lambda w: torch.full_like(w, 1 / w.shape[-1]))
    unpadded = Batch(batch_for(view).input_ids[-1:], torch.ones_like(batch_for(view).input_ids[-1:]), (0,))
    with pytest.raises(RunError, match="attends to later tokens") as caught:
        view.run(unpadded, lambda *_: None)
    assert last_layer(view, number) in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_symptom_3_wrong_shapes_and_sums_name_layer_and_model_in_every_family(family: str) -> None:
    for change, message in ((lambda w: w[:, :, :-1], "wrong shape"), (lambda w: w * 1.2, "do not sum to 1")):
        model, tokenizer = tiny.build(family)
        view = view_model(model, tokenizer, name="my-model")
        number = len(view.parts) - 1
        spoil(model, view.family.parts[number], change)
        with pytest.raises(RunError, match=message) as caught:
            view.run(batch_for(view), lambda *_: None)
        assert last_layer(view, number) in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_symptom_5_the_attention_of_a_layer_is_gone_before_the_next(family: str) -> None:
    view = view_model(*tiny.build(family))
    seen: list[weakref.ref] = []
    alive: list[int] = []

    def hear(_part: str, _layer: int, attention: torch.Tensor) -> None:
        alive.append(sum(reference() is not None for reference in seen))
        # The storage itself: a view of it would keep it as well.
        seen.append(weakref.ref(attention if attention._base is None else attention._base))

    view.run(batch_for(view), hear)
    assert alive == [0] * sum(part.num_layers for part in view.parts)
    assert all(reference() is None for reference in seen)


@pytest.mark.parametrize("family", FAMILIES)
def test_symptom_6_layers_and_heads_that_are_not_wanted_cost_no_work(family: str) -> None:
    model, tokenizer = tiny.build(family)
    view = view_model(model, tokenizer)
    batch = batch_for(view)
    whole = read(view, batch)
    calls = {part.name: 0 for part in view.parts}
    for pattern in view.family.parts:
        for module in attention_modules(model, pattern):
            module.register_forward_pre_hook(
                lambda *_, name=pattern.name: calls.__setitem__(name, calls[name] + 1), with_kwargs=True
            )
    some = read(view.only([0], [1]), batch)
    assert set(some) == {(part.name, 0) for part in view.parts}
    for key, attention in some.items():
        assert torch.equal(attention, whole[key][:, 1:2])
    # The pass ends with the first layer of the last part; an encoder runs to its end where a decoder reads it.
    wanted = {part.name: 1 for part in view.parts}
    if len(view.parts) > 1:
        wanted["encoder"] = view.parts[0].num_layers
    assert calls == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_symptom_13_query_heads_are_counted_and_their_group_is_shown(family: str) -> None:
    """That each group shows the structure of its own keys is in test_conformance: Δ differs between them."""
    heads = heads_under(family, "eager")
    for part, rows in heads.groupby("part"):
        number = 2 if (family, part) in (("bart", "decoder"), ("bart", "cross")) else 4
        assert sorted(set(rows["head"])) == list(range(number))
        shared = rows["head"] // 2 if family in GROUPED else rows["head"]
        assert list(rows["key_value_head"]) == list(shared)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pieces", PIECES)
def test_symptom_18_words_of_pieces_are_counted_and_merged_in_every_family(family: str, pieces: str) -> None:
    view = view_model(*tiny.build(family))
    text = "the riverbank and the sea, castlewards to the king: riverbank, ship and sword"
    units, coverage = align_units(
        view.tokenizer,
        [Unit("d", 0, text)],
        max_length=view.max_length,
        pieces=pieces,  # type: ignore[arg-type]
    )
    assert coverage.words == 13
    assert (coverage.lost["pieces"], coverage.found) == ((3, 10) if pieces == "skip" else (0, 13))
    if pieces == "skip":
        return
    topics = {"riverbank": 0, "sea": 0, "ship": 0, "king": 1, "castlewards": 1, "sword": 1}
    assignment = TopicAssignment(
        2, 0.1, "drop", tuple(topics), tuple(frozenset({t}) for t in topics.values()), None, 0, 0, ()
    )
    words = [word for unit in units for word in unit.words if word is not None]
    lookup = TopicLookup([Configuration(0.1, 0, assignment)], words)
    sums = {part.part.name: part for part in sum_attention(view, make_batches(units), units, np.zeros(1, int), lookup)}
    twin = pair_sums(view, units, lookup, 0)
    assert any(kind.name == "same_word" for *_, kind in twin), "riverbank stands twice"
    for (_, part, layer, head, kind), (expected, _, count) in twin.items():
        assert sums[part].counts[0, 0, kind] == count
        assert sums[part].heads[0, 0, layer, head, kind] == pytest.approx(expected, rel=1e-4)
