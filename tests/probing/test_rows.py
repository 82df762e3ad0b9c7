"""Rows of attention that are not whole: NaN in half precision, and what learned sinks take."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, texts
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import AlignedUnit, align_units, make_batches
from topicscope.text import Unit


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_text(WORDS_CSV)
    return path


def spoiled(dtype: torch.dtype, *, family: str = "bert", row: int | None = None) -> ModelView:
    """A view whose last layer gives NaN in one head of the queries `row` of units longer than 8 tokens."""
    model, tokenizer = tiny.build(family)
    model = model.to(dtype)

    def spoil(_module: object, _inputs: object, output: tuple[torch.Tensor, ...]) -> object:
        weights = output[1]
        if row is None or weights is None or weights.shape[-1] <= 8:
            return None
        weights = weights.clone()
        weights[:, 2, row] = float("nan")
        return (output[0], weights)

    model.encoder.layer[1].attention.self.register_forward_hook(spoil)
    return view_model(model, tokenizer)


def all_nan() -> PreTrainedModel:
    """A model in half precision whose every row is NaN."""
    model, _ = tiny.build("bert")
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.attention.self.query.weight.fill_(float("nan"))
    return model.bfloat16()


def units_of(view: ModelView) -> list[AlignedUnit]:
    return align_units(view.tokenizer, [Unit("d", 0, texts(1)[0])], max_length=view.max_length)[0]


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_with_nan_are_told_and_handed_out_as_zeros(side: str) -> None:
    view = spoiled(torch.bfloat16, row=3)
    units = [*units_of(view), AlignedUnit("d", 1, 0, units_of(view)[0].input_ids[:20], (None,) * 20)]
    (batch,) = make_batches(units, pad_side=side)  # type: ignore[arg-type]
    layers = {}
    rows = view.run(batch, lambda _part, layer, attention: layers.__setitem__(layer, attention.clone()))
    starts = batch.attention_mask.argmax(1)
    expected = torch.zeros_like(batch.attention_mask, dtype=torch.bool)
    expected[torch.arange(2), starts + 3] = True
    assert torch.equal(rows.not_a_number["encoder"], expected)
    assert bool((layers[1][expected.nonzero()[:, 0], 2, expected.nonzero()[:, 1]] == 0).all())
    assert bool(layers[1].isfinite().all())
    assert bool((layers[0].sum(-1)[expected[:, None].expand(-1, 4, -1)] > 0.9).all())


def test_queries_with_nan_leave_sums_and_counts_and_are_warned_of(words: Path) -> None:
    documents = texts(8)
    result = topicscope.probe(spoiled(torch.bfloat16, row=3), None, documents, topics=words, controls=0)
    whole = topicscope.probe(spoiled(torch.bfloat16), None, documents, topics=words, controls=0)
    rows = result.coverage["rows"]["encoder"]
    long = result.coverage["alignment"]["windows"]
    assert rows["not_a_number"] == long > 0
    assert rows["read"] == result.coverage["alignment"]["tokens"]
    assert any("not a number" in warning and "--dtype float32" in warning for warning in result.warnings)
    assert whole.coverage["rows"]["encoder"]["not_a_number"] == 0
    assert not any("not a number" in warning for warning in whole.warnings)
    # The third word of each sentence is no query any more, in every head: fewer pairs, and still about the same ratio.
    (left,), (all_,) = (r.coverage["pairs"] for r in (result, whole))
    lost = sum(all_[k] - left[k] for k in ("same_word", "same_topic", "different_topic"))
    assert lost > 0
    assert result.table()["attention_ratio"].iloc[0] == pytest.approx(
        whole.table()["attention_ratio"].iloc[0], rel=0.01
    )
    assert np.isfinite(result.heads()["attention_ratio"]).all()


def test_where_every_row_is_nan_the_error_says_so(words: Path) -> None:
    with pytest.raises(topicscope.InputError, match=r"(?s)no same-topic.*not a number.*--dtype float32"):
        topicscope.probe(all_nan(), tiny.build("bert")[1], texts(4), topics=words, controls=0)


def test_in_single_precision_a_nan_is_an_error(words: Path) -> None:
    with pytest.raises(topicscope.RunError, match="layer 1"):
        topicscope.probe(spoiled(torch.float32, row=3), None, texts(4), topics=words, controls=0)


def test_what_learned_sinks_take_is_reported_as_missing_mass(words: Path) -> None:
    model, tokenizer = tiny.build("gpt_oss")
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attn.sinks.fill_(0.0)
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.q_proj.bias.zero_()
    result = topicscope.probe(model, tokenizer, texts(6), topics=words, controls=0)
    # All scores are 0: row i sees min(i+1, window) tokens and the sink, which takes one part of them.
    units, _ = align_units(
        tokenizer,
        [
            Unit(str(i), i, sentence + ".")
            for i, text in enumerate(texts(6))
            for sentence in text.rstrip(".").split(". ")
        ],
        max_length=64,
    )
    lengths = [len(unit.input_ids) for unit in units]
    assert sum(lengths) == result.coverage["rows"]["decoder"]["read"]
    windows = [64 if kind == "full_attention" else model.config.sliding_window for kind in model.config.layer_types]
    taken = [np.mean([1 / (1 + min(i + 1, w)) for w in windows]) for n in lengths for i in range(n)]
    assert result.coverage["rows"]["decoder"]["missing_mass"] == pytest.approx(np.mean(taken), rel=1e-5)
    assert any("learned sinks take" in warning for warning in result.warnings)
    assert topicscope.probe(*tiny.build("bert"), texts(6), topics=words, controls=0).coverage["rows"] == {
        "encoder": {"read": sum(lengths) + 2 * len(lengths), "not_a_number": 0, "missing_mass": 0.0}
    }
