"""Words' vectors outside the model's matrices: mean states in context, and co-occurrence without any model."""

from collections import defaultdict
from math import isnan, log, nan

import numpy as np
import pandas as pd
import pytest
import torch

import tiny
from probing.topic_text import documents, words_of
from topicscope.errors import InputError
from topicscope.probing.attention import Configuration
from topicscope.probing.embeddings import embedding_rows
from topicscope.probing.embeddings.similarity import (
    BASELINE,
    HIGHER,
    LOWER,
    NONE,
    NOT_TESTED,
    embedding_verdict,
    with_controls,
)
from topicscope.probing.embeddings.vectors import (
    RANDOM_WORDS,
    WINDOW,
    ComparedWords,
    contextual_vectors,
    cooccurrence_vectors,
    cooccurrences,
    ppmi,
    static_vectors,
)
from topicscope.probing.hf import view_model
from topicscope.probing.tokens import LATER_PIECE, AlignedUnit, align_units
from topicscope.progress import SilentProgress
from topicscope.text import Unit
from topicscope.topics import WordList, from_word_list

TEXTS = (
    "the old king and the queen in the castle",
    "river river flows to the sea",
    "the army was in the castle with the king of the old city and the market",
    "music",
)


def units_for(tokenizer, texts=TEXTS):
    units = [Unit(f"d{i}", 0, text) for i, text in enumerate(texts)]
    return align_units(tokenizer, units, max_length=tokenizer.model_max_length)[0]


def word_list(groups):
    words = [word for group in groups for word in group]
    topics = [frozenset([t]) for t, group in enumerate(groups) for _ in group]
    labels = tuple(map(str, range(len(groups))))
    return Configuration(
        None, 0, from_word_list(WordList(tuple(words), tuple(topics), labels, {}), stop_words=frozenset())
    )


def unit_of(words):
    return AlignedUnit("d", 0, 0, tuple(range(len(words))), tuple(words))


# Contextual states


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_mean_states_equal_a_loop_over_occurrences(family):
    """The oracle reads each unit alone, without padding; the decoder of BART gets the text moved one to the right."""
    model, tokenizer = tiny.build(family)
    view = view_model(model, tokenizer)
    units = units_for(tokenizer)
    words = ["king", "the", "river", "castle", "violin"]
    found = contextual_vectors(view, units, words, task="t", progress=SilentProgress())
    expected = defaultdict(list)
    for unit in units:
        ids = torch.tensor([unit.input_ids])
        with torch.no_grad():
            if family == "bart":
                moved = torch.cat([torch.tensor([[2]]), ids], 1)  # one longer, so that the last token is read too
                output = model(input_ids=ids, decoder_input_ids=moved, output_hidden_states=True)
                stacks = {
                    "encoder ": (output.encoder_hidden_states, 0),
                    "decoder ": (output.decoder_hidden_states, 1),
                }
            else:
                stacks = {"": (model(ids, output_hidden_states=True).hidden_states, 0)}
        for name, (states, shift) in stacks.items():
            for number, state in enumerate(states):
                place = f"{name}before layer 0" if number == 0 else f"{name}after layer {number - 1}"
                for position, word in enumerate(unit.words):
                    # The decoder is never fed the last token of a window.
                    if word in words and position + shift < len(unit.words):
                        expected[place, word].append(state[0, position + shift].double().numpy())
    assert {place for place, _ in expected} == {v.place for v in found}
    for vectors in found:
        assert vectors.words == tuple(w for w in words if (vectors.place, w) in expected)
        for word, vector in zip(vectors.words, vectors.vectors, strict=True):
            np.testing.assert_allclose(vector, np.mean(expected[vectors.place, word], axis=0), atol=2e-6)


def test_only_the_layers_that_are_wanted_and_only_words_of_one_token():
    view = view_model(*tiny.build("bert"))
    (unit,) = units_for(view.tokenizer, ("the king",))
    pieces = AlignedUnit("d", 0, 0, unit.input_ids, (None, "king", LATER_PIECE, None))
    run = {"task": "t", "progress": SilentProgress()}
    found = contextual_vectors(view, [unit], ["king"], layers=[1], **run)
    assert [v.place for v in found] == ["before layer 0", "after layer 1"]
    assert all(not v.words for v in contextual_vectors(view, [pieces], ["king"], **run))


def test_before_the_first_layer_a_word_that_stands_at_one_place_is_the_layer_output_of_that_place():
    view = view_model(*tiny.build("bert"))
    units = units_for(view.tokenizer, ("king queen", "castle queen"))
    (before, *_) = contextual_vectors(view, units, ["king", "castle", "queen"], task="t", progress=SilentProgress())
    chosen = ComparedWords.of(view, [word_list([["king", "castle"], ["queen"]])])
    layer = next(v for v in static_vectors(view, chosen) if v.place == "layer")
    np.testing.assert_allclose(before.vectors[:2], layer.vectors[:2], atol=1e-6)
    assert np.abs(before.vectors[2] - layer.vectors[2]).max() > 1e-3  # the queen stands at position 2


# The baseline of co-occurrence


def test_cooccurrences_and_ppmi_equal_their_definitions():
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(9)]
    units = [unit_of([None if x > 8 else words[x] for x in rng.integers(0, 11, size=n)]) for n in (1, 4, 30, 17)]
    expected = np.zeros((9, 9))
    for unit in units:
        text = [words.index(w) for w in unit.words if w is not None]
        for i in range(len(text)):
            for j in range(len(text)):
                if i != j and abs(i - j) <= WINDOW:
                    expected[text[i], text[j]] += 1
    found = cooccurrences(units, words)
    np.testing.assert_array_equal(found.toarray(), expected)
    n, rows = expected.sum(), expected.sum(1)
    information = [
        [max(0.0, log(expected[i, j] * n / (rows[i] * rows[j]))) if expected[i, j] else 0.0 for j in range(9)]
        for i in range(9)
    ]
    np.testing.assert_allclose(ppmi(found).toarray(), information, atol=1e-12)
    vectors = cooccurrence_vectors(units, dict.fromkeys(words, 1), dimensions=3)
    U, sigma, _ = np.linalg.svd(np.array(information))
    np.testing.assert_allclose(vectors.vectors @ vectors.vectors.T, (U[:, :3] * sigma[:3]) @ U[:, :3].T, atol=1e-8)
    again = cooccurrence_vectors(units, dict.fromkeys(words, 1), dimensions=3)
    np.testing.assert_array_equal(vectors.vectors, again.vectors)


def test_cooccurrence_finds_planted_topics_and_none_in_shuffled_text():
    topics = words_of(5, 12)
    texts = documents(120, 60, topics=topics, per_document=1, seed=1)
    everything = [word for text in texts for word in text]
    np.random.default_rng(2).shuffle(everything)
    shuffled = [everything[i : i + 60] for i in range(0, len(everything), 60)]
    view = view_model(*tiny.build("bert"))
    configuration = word_list(topics)
    counts = {word: everything.count(word) for words in topics for word in words}
    chosen = ComparedWords.of(view, [configuration], counts)
    z = []
    for text in (texts, shuffled):
        more = [cooccurrence_vectors([unit_of(words) for words in text], counts, dimensions=5)]
        (row,) = (
            embedding_rows(view, [configuration], chosen, more)
            .query("place=='cooccurrence' and kind=='cosine'")
            .to_dict("records")
        )
        z.append(row["z_banded"])
        assert row["words_without_token"] == 0
    assert z[0] > 15
    assert abs(z[1]) < 3.5


def test_text_without_two_words_near_each_other_has_no_baseline():
    assert cooccurrence_vectors([unit_of(["a"])], {"a": 1}) is None
    assert cooccurrence_vectors([unit_of(["a"]), unit_of(["b"])], {"a": 1, "b": 1}) is None


# The table


def test_random_words_are_of_the_text_seeded_and_give_the_anisotropy():
    model, tokenizer = tiny.build("bert")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.add_(0.02)  # one direction for all: every pair alike
    view = view_model(model, tokenizer)
    configuration = word_list([["king", "queen"], ["river", "sea"]])
    counts = {"king": 3, "queen": 2, "river": 1, "sea": 1, "music": 4, "song": 1, "piano": 0}
    chosen = ComparedWords.of(view, [configuration], counts)
    assert chosen.random == {"king", "queen", "river", "sea", "music", "song"}
    table = embedding_rows(view, [configuration], chosen)
    assert set(table["place"]) == {"raw", "layer", "layer_first"}
    words = sorted(chosen.random)
    e = view.embedding_matrix()[torch.tensor(tokenizer.convert_tokens_to_ids(words))].double().numpy()
    e /= np.linalg.norm(e, axis=1, keepdims=True)
    pairs = (e @ e.T)[np.triu_indices(len(e), 1)]
    row = table[(table["place"] == "raw") & (table["kind"] == "cosine")].iloc[0]
    assert row["anisotropy"] == pytest.approx(pairs.mean(), rel=1e-6)
    assert embedding_rows(view, [configuration])["anisotropy"].isna().all()
    many = {f"w{i}": 1 for i in range(RANDOM_WORDS + 500)}
    first, again, other = (ComparedWords.of(view, [configuration], many, seed=s).random for s in (0, 0, 1))
    assert first == again != other
    assert len(first) == RANDOM_WORDS


@pytest.mark.parametrize(
    ("difference", "p", "low", "high", "expected"),
    [
        (0.3, 0.01, -0.1, 0.1, HIGHER),
        (0.3, 0.06, -0.1, 0.1, NONE),
        (0.1, 0.01, -0.1, 0.2, NONE),  # random weights do as well
        (-0.3, 0.01, -0.1, 0.1, LOWER),
        (-0.3, 0.01, -0.4, 0.1, NONE),
        (-0.3, 0.01, -0.1, -0.5, LOWER),
        (0.3, nan, -0.1, 0.1, NOT_TESTED),
        (0.3, 0.01, nan, nan, NOT_TESTED),
    ],
)
def test_the_verdict_asks_both_the_permutations_and_the_controls(difference, p, low, high, expected):
    assert embedding_verdict(difference, p, low, high) == expected


def test_controls_are_matched_by_place_kind_threshold_and_seed():
    key = {"topic_seed": 0, "threshold": nan, "place": "raw", "kind": "cosine"}
    rows = [key | {"difference": 0.5, "p_value_banded": 0.001}]
    rows += [key | {"place": "layer", "difference": 0.5, "p_value_banded": 0.001}]
    rows += [key | {"place": "cooccurrence", "difference": 0.5, "p_value_banded": 0.001}]
    controls = [
        pd.DataFrame([key | {"difference": d}, key | {"place": "layer", "difference": 10 * d}]) for d in (0.1, 0.2)
    ]
    found = with_controls(pd.DataFrame(rows), controls)
    assert found["verdict"].tolist() == [HIGHER, NONE, BASELINE]
    assert found["control_difference"].tolist()[:2] == pytest.approx([0.15, 1.5])
    assert found["control_difference_high"].tolist()[:2] == [0.2, 2.0]
    assert isnan(found["control_difference"].iloc[2])
    assert with_controls(pd.DataFrame(rows), [])["verdict"].tolist() == [NOT_TESTED, NOT_TESTED, BASELINE]


def test_a_model_of_which_only_attention_is_known_is_refused():
    from topicscope.probing.hf import live_view

    model, tokenizer = tiny.build("bert")
    view = live_view(
        model, tokenizer, lambda *_: [], num_layers=2, num_heads=4, causal=False, max_length=64,
        W_E=model.get_input_embeddings().weight,
    )  # fmt: skip
    with pytest.raises(InputError, match="attention only"):
        contextual_vectors(view, units_for(tokenizer), ["king"], task="t", progress=SilentProgress())
