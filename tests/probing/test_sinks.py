"""Attention without the keys that draw it anyway, against rows that are made again pair by pair."""

import numpy as np
import pytest

import tiny
from probing.test_attention import prepared
from probing.twin import attention_of, class_of, words_of
from topicscope.probing.attention import sum_attention
from topicscope.probing.batches import make_batches
from topicscope.probing.model import view_model
from topicscope.topics.pairs import PairClass


@pytest.mark.parametrize(
    ("family", "side"), [("bert", "right"), ("bert", "left"), ("gpt2", "right"), ("bart", "right")]
)
def test_sums_without_sinks_equal_rows_made_again(family: str, side: str) -> None:
    view = view_model(*tiny.build(family))
    units, lookup = prepared(view)
    membership = lookup.membership(0)
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
