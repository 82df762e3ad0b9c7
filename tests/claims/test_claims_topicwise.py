"""The topic-wise assumption: the share it explains is right, and no sabotaged attention is taken for topic-wise."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch

import tiny
from claims.sabotage import Shuffled, Untrained
from topicscope.claims import pair_attention
from topicscope.claims import topicwise_assumption as claim
from topicscope.claims.claim import Context, exact_row
from topicscope.claims.pair_attention import attention_of, pair_tables, pretrained_pairs
from topicscope.claims.topicwise_assumption import by_topic, by_word, explained_share, shuffled
from topicscope.errors import InputError
from topicscope.probing.attention import PairTable
from topicscope.probing.hf import view_model
from topicscope.progress import SilentProgress
from topicscope.text import corpus_from
from topicscope.topics import PairClass, TopicModel, Vocabulary

CLASSES = np.array([int(PairClass.same_word), int(PairClass.same_topic), int(PairClass.different_topic)])
WEIGHTS = {0: 3.0, 2: 2.0, 3: 1.0}


def planted(noise, rows=240, width=24, words=30, maps=1, seed=0):
    """Pairs with attention c_row · b_class · e^{noise z}, normalised to 1 in every row; 5 words a topic."""
    rng = np.random.default_rng(seed)
    query, key = rng.integers(0, words, rows), rng.integers(0, words, (rows, width))
    own = query[:, None]
    classes = np.where(key == own, 0, np.where(key // 5 == own // 5, 2, 3))
    attention = np.vectorize(WEIGHTS.get)(classes)[..., None] * np.exp(noise * rng.normal(size=(*key.shape, maps)))
    attention /= attention.sum(axis=1, keepdims=True)
    row = np.repeat(np.arange(rows), width)
    return PairTable(
        query=np.repeat(query, width),
        key=key.ravel(),
        row=row,
        pair_class=classes.ravel(),
        distance=np.tile(1 + np.arange(width), rows),
        document=row // 10,
        length=np.full(rows * width, width),
        rank=np.ones(rows * width, dtype=int),
        attention=attention.reshape(-1, maps),
    )


def classes_share(pairs):
    return explained_share(pairs.attention, pairs.row, pairs.pair_class)


def answers(rows):
    """Criterion -> whether all of its rows meet it."""
    met = {}
    for row in rows:
        for criterion in claim.CLAIM.criteria:
            if row["criterion"] == criterion.id:
                met[criterion.id] = met.get(criterion.id, True) and criterion.met(row)
    return met


def test_topicwise_attention_is_explained_wholly_and_its_shuffle_not_at_all() -> None:
    pairs = planted(0.0)
    assert classes_share(pairs) == pytest.approx([1.0], abs=1e-5)
    dealt = shuffled(pairs.pair_class, pairs.row)
    assert explained_share(pairs.attention, pairs.row, dealt)[0] < 0.02
    for row in range(5):  # dealt out within the row, and really dealt out
        before, after = pairs.pair_class[pairs.row == row], dealt[pairs.row == row]
        assert sorted(before) == sorted(after)
    assert (dealt != pairs.pair_class).any()


def test_the_share_is_that_of_a_search() -> None:
    pairs = planted(0.6, rows=60)
    attention, row = pairs.attention[:, 0], pairs.row

    def error(weights):
        b = np.array([weights[0], 0, weights[1], 1.0])[pairs.pair_class]
        c = np.bincount(row, attention * b) / np.bincount(row, b**2)
        return ((attention - c[row] * b) ** 2).sum()

    found = scipy.optimize.minimize(error, [1.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-16})
    mean = np.bincount(row, attention) / np.bincount(row)
    expected = 1 - found.fun / ((attention - mean[row]) ** 2).sum()
    assert 0.1 < expected < 0.9
    assert classes_share(pairs) == pytest.approx([expected], abs=1e-5)


def test_maps_are_independent_and_numbers_of_rows_and_classes_are_only_names() -> None:
    pairs = planted(0.6, maps=3)
    alone = [classes_share(replace(pairs, attention=pairs.attention[:, [m]]))[0] for m in range(3)]
    assert classes_share(pairs) == pytest.approx(alone, abs=1e-6)
    renamed = explained_share(pairs.attention, 7 * (500 - pairs.row), 9 - 2 * pairs.pair_class)
    assert renamed == pytest.approx(alone, abs=1e-6)
    assert np.isnan(explained_share(np.ones((len(pairs.row), 1)), pairs.row, pairs.pair_class)).all()


def test_means_by_word_and_by_topic_are_those_of_a_loop() -> None:
    pairs = planted(0.5, rows=20)
    table, topics = by_word(pairs), by_topic(pairs, np.arange(30) // 5)
    assert (table.row == table.query).all()
    assert len(table.row) == len({*zip(pairs.query, pairs.key, strict=True)})
    for i in range(len(table.row)):
        chosen = (pairs.query == table.query[i]) & (pairs.key == table.key[i])
        assert table.attention[i] == pytest.approx(pairs.attention[chosen].mean(axis=0))
        assert set(pairs.pair_class[chosen]) == {table.pair_class[i]}
    for i in range(len(topics.row)):
        chosen = (pairs.row == topics.row[i]) & (pairs.key // 5 == topics.key[i])
        assert topics.attention[i] == pytest.approx(pairs.attention[chosen].mean(axis=0))
        assert topics.pair_class[i] == (2 if topics.query[i] // 5 == topics.key[i] else 3)


def test_the_pairs_of_a_run_are_those_of_its_attention() -> None:
    record = Context(seeds=2).train("joint-training", "training.steps=1", "data.length=[4, 9]")
    for pairs, (documents, attention) in zip(pair_tables(record), attention_of(record), strict=True):
        assert len(pairs.row) == sum(n * (n - 1) for n in documents.length)
        d, i = np.divmod(pairs.row, documents.words.shape[1])
        assert (documents.words[d, i] == pairs.query).all()
        expected = [
            attention[0, d, 0, i, j]
            for d, n in enumerate(documents.length)
            for i in range(n)
            for j in range(n)
            if i != j
        ]
        np.testing.assert_array_equal(pairs.attention[:, 0], expected)
        own = np.where(pairs.query == pairs.key, 0, np.where(pairs.query // 10 == pairs.key // 10, 2, 3))
        assert (own == pairs.pair_class).all()


class Quicker(Context):
    """Enough steps for the form to show, measured at the end only."""

    def train(self, name, *overrides, seeds=None):
        steps = 400 if name == "attention-squared-block" else 250
        fast = (f"training.steps={steps}", "history.every=1000", "history.documents=5")
        return super().train(name, *overrides, *fast, seeds=seeds)


class QuickerShuffled(Quicker, Shuffled):
    """The same, measured with words that have changed their topics."""


@pytest.mark.parametrize("recipe", ["attention-squared-block", "joint-training"])
def test_trained_attention_is_topicwise_unless_topics_are_shuffled(recipe) -> None:
    for context, holds in ((Quicker, True), (QuickerShuffled, False), (Untrained, False)):
        rows = claim.share_rows("frozen", recipe, context(seeds=2).train(recipe))
        assert (rows[1]["measured"] > 0.8) == holds
        assert answers(rows)["shuffled"]
        if not holds:
            assert not answers(rows)["frozen"]
            assert rows[0]["measured"] < 0.2  # classes that no longer fit, but for words met again


@pytest.mark.parametrize(("noise", "holds"), [(0.0, True), (3.0, False)])
def test_the_rule_can_say_yes_and_no(noise, holds, monkeypatch) -> None:
    monkeypatch.setattr(claim, "pair_tables", lambda record: [planted(noise, seed=seed) for seed in range(3)])
    context = Untrained(seeds=2, quick=True)
    rows = [*claim.frozen_rows(context), *claim.joint_rows(context), *claim.column_sum_rows(context)]
    assert answers(rows) == {"frozen": holds, "shuffled": True, "joint": holds, "column-sums": True}
    rows += claim.pair_rows("planted", planted(noise, rows=800, maps=2))
    assert answers(rows)["pretrained"] == holds
    assert claim.CLAIM.judge(rows)[0] == ("confirmed" if holds else "not_confirmed")


def test_a_control_that_does_not_shuffle_is_found_out(monkeypatch) -> None:
    monkeypatch.setattr(claim, "shuffled", lambda category, row: category)
    rows = claim.pair_rows("planted", planted(0.0, maps=2))
    assert answers(rows) == {"pretrained": True, "shuffled": False}


def test_without_training_nothing_is_confirmed(monkeypatch) -> None:
    monkeypatch.setattr(claim, "pretrained_rows", lambda context: claim.pair_rows("planted", planted(3.0, maps=2)))
    result = claim.CLAIM.run(Untrained(seeds=2, quick=True))
    assert result.verdict == "not_confirmed"
    assert answers(result.rows) == {
        "frozen": False,
        "shuffled": True,
        "joint": False,
        "pretrained": False,
        "column-sums": True,  # a premise about the start
    }


def test_a_model_that_is_not_installed_is_not_run_and_not_guessed(monkeypatch) -> None:
    def missing():
        raise InputError("the demo's model is not installed")

    monkeypatch.setattr(claim, "minilm_folder", missing)
    (row,) = claim.pretrained_rows(Context(seeds=2))
    assert row["measured"] is None
    assert row["error"] is None
    assert "pip install" in row["reason"]
    rows = [exact_row(name, name, value, theory=1.0) for name, value in VALUES.items()]
    verdict, statistic = claim.CLAIM.judge([*rows, row])
    assert verdict == "partly"  # what could be measured is judged
    assert "not measured: the same share in a pretrained model" in statistic
    rows[0]["measured"] = 0.4
    assert claim.CLAIM.judge([*rows, row])[0] == "not_confirmed"


VALUES = {"frozen": 0.9, "shuffled": 0.01, "joint": 0.9, "column-sums": 1.0}


def test_columns_that_do_sum_to_something_are_noticed() -> None:
    class Tilted(Untrained):
        def train(self, name, *overrides, seeds=None):
            record = super().train(name, *overrides, seeds=seeds)
            weights = record.weights | {"W_Q": record.weights["W_Q"] + 0.5 * record.config["model"]["sigma"]}
            return replace(record, weights=weights)

    assert answers(claim.column_sum_rows(Tilted(seeds=2))) == {"column-sums": False}


def test_the_jackknife_knows_the_error_of_a_mean() -> None:
    pairs = planted(0.5, rows=400)
    values = [v["mean"] for v in claim.jackknife(pairs, lambda p: {"mean": float(p.row.mean())})]
    groups = [pairs.row[pairs.document % 8 == g].mean() for g in range(8)]
    assert values == pytest.approx(groups)  # groups of equal size: the pseudo-values of a mean are their means


WORDS = {"water": ("river", "sea", "ship", "bridge", "sails"), "war": ("king", "sword", "castle", "army", "queen")}


def test_distance_and_classes_are_told_apart() -> None:
    """Attention that falls with distance alone leaves nothing to the classes, and the other way round."""
    pairs = planted(0.0, rows=400, maps=1)
    near = (1.0 / pairs.distance)[:, None]
    for attention, which in ((near, "distance"), (pairs.attention, "positions")):
        both = replace(pairs, attention=np.repeat(attention, 2, axis=1))
        shares = claim._shares(both, 0)
        assert shares[which] > 0.9
        assert shares["positions" if which == "distance" else "distance"] < 0.1
        if which == "distance":
            assert shares["beside"] < 0.05


def test_pairs_of_a_pretrained_model_are_those_of_a_loop(monkeypatch) -> None:
    """A tiny BERT on text of two topics, read word by word."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[name], rng.integers(6, 20))) for name in ("water", "war") for _ in range(30)]
    texts += [" ".join([*rng.choice(WORDS["water"], 5), *rng.choice(WORDS["war"], 5)]) for _ in range(20)]
    model, tokenizer = tiny.build("bert")
    names = [word for topic in WORDS.values() for word in topic]
    planted_topics = TopicModel.normalised(np.kron(np.eye(2), np.ones((1, 5))), Vocabulary(tuple(names)))
    monkeypatch.setattr(pair_attention, "fit", lambda texts, topics, **options: planted_topics)
    corpus = corpus_from([(f"d{i // 2}", text) for i, text in enumerate(texts)])
    pairs = pretrained_pairs(view_model(model, tokenizer), corpus, SilentProgress(), read=80, fitted=80, threshold=0.5)
    model.eval().set_attn_implementation("eager")
    found = {}
    for text in texts:
        words = text.split()
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
        read = torch.cat([layer[0] for layer in output.attentions]).double().numpy()  # [head position position]
        for i, query in enumerate(words):
            for j, key in enumerate(words):
                if i != j:
                    same = any({query, key} <= set(topic) for topic in WORDS.values())
                    code = 0 if query == key else 2 if same else 3
                    found.setdefault(code, []).append([*read[:, 1 + i, 1 + j], abs(i - j)])
    assert len(np.unique(pairs.document)) == len(texts) // 2
    for code in CLASSES:
        expected = np.array(found[int(code)])
        chosen = pairs.pair_class == code
        assert chosen.sum() == len(expected)
        np.testing.assert_allclose(pairs.attention[chosen, :-1].mean(axis=0), expected[:, :-1].mean(axis=0), rtol=1e-4)
        assert pairs.distance[chosen].sum() == expected[:, -1].sum()
    np.testing.assert_allclose(pairs.attention[:, -1], pairs.attention[:, :-1].mean(axis=1))
