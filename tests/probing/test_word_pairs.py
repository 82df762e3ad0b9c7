"""Sums for each pair of words and distance, against sums pair by pair, however they are added up."""

from collections import Counter

import numpy as np
import pytest

import tiny
from probing.test_attention import prepared, summed
from probing.twin import attention_of, words_of
from topicscope.probing.attention import WordPairs, distance_bin, sum_attention
from topicscope.probing.hf import view_model
from topicscope.probing.tokens import make_batches


def as_dict(pairs: WordPairs) -> dict[tuple[int, ...], tuple[float, float]]:
    """Entry -> (sum, count)."""
    entries, sums, counts = pairs.entries()
    return {tuple(e): (s, n) for e, s, n in zip(entries.tolist(), sums.tolist(), counts.tolist(), strict=True)}


@pytest.mark.parametrize("hooks_only", [False, True])
@pytest.mark.parametrize(("family", "overlap"), [("bert", "keep"), ("gpt2", "drop"), ("bart", "drop")])
def test_entries_equal_sums_pair_by_pair(family: str, overlap: str, hooks_only: bool) -> None:
    view = view_model(*tiny.build(family), hooks_only=hooks_only)
    units, lookup = prepared(view, overlap)
    has_topic = lookup.memberships[0].any(1) | lookup.memberships[1].any(1)
    index = {word: i for i, word in enumerate(lookup.words)}
    sums, counts = Counter(), Counter()
    for unit in units:
        attention = attention_of(view, unit)
        for part in view.parts:
            mean = sum(layer.double().mean(0) for layer in attention[part.name]) / len(attention[part.name])
            words = [(word, places[0]) for word, places in words_of(unit)]
            for i, (word_i, row) in enumerate(words):
                for j, (word_j, column) in enumerate(words):
                    m, n = row + part.query_shift, column + part.key_shift
                    if word_i == word_j or (part.causal and j > i) or max(m, n) >= len(unit.input_ids):
                        continue
                    query, key = index[word_i], index[word_j]
                    if has_topic[query] and has_topic[key]:
                        entry = part.name, query, key, int(distance_bin(np.array(abs(row - column))))
                        sums[entry] += float(mean[m, n]) * len(unit.input_ids) / 100
                        counts[entry] += 1
    document_of = np.zeros(len(units), dtype=np.int64)
    found = sum_attention(view, make_batches(units, batch_size=2), units, document_of, lookup, word_pairs=True)
    got = {(part.part.name, *e): value for part in found for e, value in as_dict(part.word_pairs).items()}
    assert got.keys() == counts.keys()
    for entry, (value, count) in got.items():
        assert count == counts[entry]
        assert value == pytest.approx(sums[entry], rel=1e-4)
    assert all(not as_dict(part.word_pairs) for part in summed(view, units, lookup)), "only where they are asked for"


def random_pieces(number: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs in pieces, in which the same entries come again."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(0, 60, number)
    return [(rng.integers(0, [9, 9, 3], (n, 3)), rng.random(n), rng.integers(0, 2, n)) for n in sizes]


def test_pieces_add_up_in_any_grouping_and_come_back_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicscope.probing.attention.pair_sums._WAITING", 40)
    pieces = random_pieces(12)
    once, first, second = WordPairs(), WordPairs(), WordPairs()
    for number, piece in enumerate(pieces):
        once.add(*piece)
        (first if number < 5 else second).add(*piece)
    first = WordPairs.from_arrays(first.arrays("x"), "x")
    first.merge(second)
    want = Counter(), Counter()
    for entries, sums, counts in pieces:
        for entry, value, count in zip(entries.tolist(), sums, counts, strict=True):
            want[0][tuple(entry)] += value
            want[1][tuple(entry)] += count
    for pairs in (once, first):
        got = as_dict(pairs)
        assert got.keys() == want[0].keys()
        assert all(v == pytest.approx(want[0][e]) and n == want[1][e] for e, (v, n) in got.items())
        assert pairs.left_out == 0


def test_pairs_that_find_no_place_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicscope.probing.attention.pair_sums._WAITING", 40)
    monkeypatch.setattr("topicscope.probing.attention.pair_sums.MOST_ENTRIES", 50)
    pieces = random_pieces(12)
    pairs = WordPairs()
    for piece in pieces:
        pairs.add(*piece)
    got = as_dict(pairs)
    assert len(got) == 50
    assert sum(n for _, n in got.values()) + pairs.left_out == sum(int(counts.sum()) for *_, counts in pieces)
    assert pairs.left_out > 0
