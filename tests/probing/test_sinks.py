"""Attention without the keys that draw it anyway, against rows that are made again pair by pair."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
import topicscope
from probing.test_attention import prepared
from probing.test_probe import themed_documents, word_list  # noqa: F401 - a fixture
from probing.twin import attention_of, class_of, words_of
from topicscope.probing.attention import sum_attention
from topicscope.probing.hf import ModelView, view_model
from topicscope.probing.tokens import make_batches
from topicscope.topics import PairClass


@pytest.mark.parametrize(
    ("family", "side"), [("bert", "right"), ("bert", "left"), ("gpt2", "right"), ("bart", "right")]
)
def test_sums_without_sinks_equal_rows_made_again(family: str, side: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    membership = lookup.memberships[0]
    topics = {w: set(membership[i].nonzero()[0].tolist()) for i, w in enumerate(lookup.words)}
    want = {part.name: np.zeros((len(PairClass), 2)) for part in view.parts}
    removed = 0
    for unit in units:
        attention = attention_of(view, unit)
        texts = [view.tokenizer.decode([i]).strip() for i in unit.input_ids]
        for part in view.parts:
            standing = ["", *texts[:-1]] if part.key_shift else texts
            special = set(view.tokenizer.all_special_tokens) | {".", ",", ":", ";"}
            kept = [j for j, text in enumerate(standing) if j > 0 and text not in special]
            removed += len(texts) - len(kept)
            words = [(word, places[0]) for word, places in words_of(unit)]
            for i, (word_i, at_i) in enumerate(words):
                for j, (word_j, at_j) in enumerate(words):
                    m, n = at_i + part.query_shift, at_j + part.key_shift
                    if i == j or (part.causal and j > i) or m >= len(texts) or n not in kept:
                        continue
                    cell = want[part.name][class_of(word_i, word_j, topics[word_i], topics[word_j])]
                    rows = [layer[:, m].double().numpy() for layer in attention[part.name]]
                    cell[0] += np.mean([row[:, n] / row[:, kept].sum(1) for row in rows]) * len(kept) / 100
                    cell[1] += 1
    assert removed > 2 * len(units)
    batches = make_batches(units, batch_size=2, pad_side=side)  # type: ignore[arg-type]
    for part in sum_attention(view, batches, units, np.zeros(len(units), dtype=int), lookup, exclude_sinks=True):
        np.testing.assert_array_equal(part.counts[0, 0], want[part.part.name][:, 1])
        np.testing.assert_allclose(part.heads[0, 0].mean((0, 1)), want[part.part.name][:, 0], rtol=1e-4, atol=1e-9)


SINK_HEAD = 1


def with_a_sink(strength: float) -> ModelView:
    """A GPT-2 of which one head of layer 0 adds `strength` to the score of position 0, and changes no other score."""
    view = view_model(*tiny.build("gpt2"))
    model, width = view._model, 32
    first = torch.zeros(width)
    first[0], first[1] = 1, -1  # its mean is 0, so that the layer norm keeps what is at right angles to it
    key, query = width + (SINK_HEAD + 1) * 8 - 1, (SINK_HEAD + 1) * 8 - 1  # the head's last dimension is free for this
    with torch.no_grad():
        for table in (model.wte.weight, model.wpe.weight):
            table.sub_(torch.outer(table @ first, first) / 2)
        model.wpe.weight[0] += 100 * first
        attention = model.h[0].attn.c_attn
        attention.weight[:, [query, key]] = 0
        attention.bias[query], attention.bias[key] = 1, 0
        attention.weight[:, key] = first / 8**0.5 * strength
    return view


def test_symptom_9_a_sink_is_seen_in_its_head_and_excluded(word_list: Path) -> None:  # noqa: F811
    options = {"documents": themed_documents(), "topics": word_list, "controls": 0, "permutations": 0, "layers": [0]}
    plain, sunk = (topicscope.probe(with_a_sink(s), exclude_sinks=True, **options) for s in (0, 6))
    one, other = (result.heads()["first_token"].to_numpy() for result in (plain, sunk))
    assert one.max() < 0.4
    assert other[SINK_HEAD] > 0.95
    np.testing.assert_allclose(np.delete(other, SINK_HEAD), np.delete(one, SINK_HEAD), rtol=1e-5)
    # With the sink the head's ratio is that of pairs whose key stands first, whatever the words.
    one, other = (result.heads()["attention_ratio"].to_numpy() for result in (plain, sunk))
    assert abs(other - one)[SINK_HEAD] > 0.01 > 100 * np.delete(abs(other - one), SINK_HEAD).max()
    before, after = (r.table().query("source == 'measured'").iloc[0] for r in (plain, sunk))
    for name in ("attention_ratio", "attention_ratio_distinct_distance_matched"):
        for end in ("", "_se", "_low", "_high"):
            column = f"{name}_sinks_excluded{end}"
            assert after[column] == pytest.approx(before[column], rel=1e-3), column
