"""Words of several topics: what is confirmed, that no sabotaged run is, and the measures against slow twins."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import tiny
import topicscope
from claims.sabotage import Untrained
from topicscope.claims import ambiguous_words, pair_attention
from topicscope.claims.ambiguous_words import CLAIM, Classes, cosine_gap, mean_attention, ratio, sum_rule
from topicscope.claims.claim import Context
from topicscope.claims.pair_attention import Sample, cooccurrence, read_pairs
from topicscope.experiments import infinite_value_matrix
from topicscope.lab import load_recipe, recipe_path
from topicscope.probing.attention import PairTable
from topicscope.probing.embeddings import embedding_similarity
from topicscope.probing.hf import view_model
from topicscope.progress import SilentProgress
from topicscope.text import corpus_from
from topicscope.topics import TopicModel, Topics, Vocabulary


def answers(rows):
    """Criterion -> whether all of its rows meet it."""
    met = {}
    for row in rows:
        for criterion in CLAIM.criteria:
            if row["criterion"] == criterion.id:
                met[criterion.id] = met.get(criterion.id, True) and criterion.met(row)
    return met


def test_classes_of_words_on_a_ring() -> None:
    member = TopicModel.overlapping(4, 5, 2).phi.T > 0
    classes = Classes.of(member)
    sets = [set(np.flatnonzero(row)) for row in member]
    kinds = {"own": classes.own, "other": classes.other, "same": classes.same, "different": classes.different}
    for a, b in itertools.product(range(len(sets)), repeat=2):
        several = (len(sets[a]) > 1) + (len(sets[b]) > 1)
        share = bool(sets[a] & sets[b])
        expected = {"own": (1, True), "other": (1, False), "same": (0, True), "different": (0, False)}
        for name, matrix in kinds.items():
            assert matrix[a, b] == (a != b and (several, share) == expected[name])


def test_an_ambiguous_words_row_is_the_sum_of_its_topics_rows() -> None:
    """Exact at N = ∞ for equally likely words; it fails where a word prefers one of its topics, and at finite N."""
    recipe = load_recipe(recipe_path("ambiguous-values"))
    member = TopicModel.overlapping(10, 10, 3).phi.T > 0
    exact = infinite_value_matrix(recipe)[1:, 1:]
    assert sum_rule(exact, member) < 1e-12
    assert sum_rule(exact + 0.1 * np.eye(70), member) > 0.05


class Quicker(Context):
    """Fewer measurements on the way."""

    def train(self, name, *overrides, seeds=None):
        return super().train(name, *overrides, "history.every=1000", "history.documents=40", seeds=seeds)


class ShuffledWords(Quicker):
    """Words change places between training and measuring."""

    def train(self, name, *overrides, seeds=None):
        record = super().train(name, *overrides, seeds=seeds)
        order = np.append(0, 1 + np.random.default_rng(0).permutation(70))
        weights = dict(record.weights)
        for key, axes in {"W_E": (2,), "W_K": (2,), "W_Q": (2,), "W_V": (1, 2)}.items():
            if key in weights and not (key == "W_E" and "W_V" in weights and weights["W_E"].shape[1] == 71):
                for axis in axes:
                    if weights[key].shape[axis] == 71:
                        weights[key] = weights[key].take(order, axis=axis)
        return replace(record, weights=weights)


def rows_of(context):
    return [
        *ambiguous_words.value_rows(context),
        *ambiguous_words.embedding_rows(context),
        *ambiguous_words.attention_rows(context),
    ]


def test_trained_models_connect_ambiguous_words_with_both_topics() -> None:
    met = answers(rows_of(Quicker(seeds=2, quick=True)))
    assert met == dict.fromkeys(("values", "sum", "embedding", "attention", "order"), True)


@pytest.mark.parametrize("context", [ShuffledWords, Untrained])
def test_sabotaged_models_are_not_confirmed(context) -> None:
    met = answers(rows_of(context(seeds=2, quick=True)))
    assert met["sum"] is (context is Untrained)  # weights of nothing keep any sum rule
    assert not any(met[name] for name in ("values", "embedding", "attention", "order"))


def test_mean_attention_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores, counts = rng.normal(size=(3, 3)), rng.integers(0, 4, (5, 3)).astype(float)
    chosen = np.array([[False, True, False], [True, False, True], [False, False, False]])
    total = number = 0.0
    for row in counts:
        positions = [w for w in range(3) for _ in range(int(row[w]))]
        for a, b in itertools.product(range(len(positions)), repeat=2):
            if a != b and chosen[positions[a], positions[b]]:
                total += np.exp(scores[positions[a], positions[b]]) / np.exp(scores[positions[a], positions]).sum()
                number += 1
    assert mean_attention(scores, counts, chosen) == pytest.approx(total / number)


WORDS = tiny.WORDS[:40]


def make_sample(strength, seed=0):
    """40 words of 4 topics, 8 of them in two; attention and vectors in which a shared topic counts `strength`."""
    rng = np.random.default_rng(seed)
    member = np.eye(4, dtype=bool)[np.arange(40) % 4]
    for word in range(8):
        member[word, (word + 1) % 4] = True
    phi = np.where(member.T, rng.uniform(1, 2, (4, 40)), 1e-6)
    topics = Topics(TopicModel.normalised(phi, Vocabulary(tuple(WORDS))), {})
    query, key = rng.integers(0, 40, (2, 30_000))
    share = (member[query] & member[key]).any(axis=1)
    attention = np.exp(strength * share + 0.5 * rng.normal(size=30_000))
    document = rng.integers(0, 30, 30_000)
    ones = np.ones(30_000, dtype=np.int64)
    pairs = PairTable(document, np.arange(30_000), query, key, ones, ones, ones, ones, attention[:, None])
    gram = strength * (member.astype(float) @ member.T > 0) + 0.3 * _symmetric(rng, 40)
    values, vectors = np.linalg.eigh(gram + 8 * np.eye(40))
    vectors = vectors * np.sqrt(np.maximum(values, 0))
    meetings = cooccurrence(["a"], WORDS)
    return Sample(view_model(*tiny.build("bert")), (topics, topics), WORDS, pairs, meetings, meetings, vectors)


def texts(rng, count=60):
    """Passages of 15 of the words in random order."""
    return corpus_from([" ".join(rng.choice(WORDS, 15)) for _ in range(count)])


def _symmetric(rng, n):
    noise = rng.normal(size=(n, n))
    return noise + noise.T


@pytest.fixture
def _all_words(monkeypatch) -> None:
    monkeypatch.setattr(ambiguous_words, "THRESHOLDS", (0.25, 0.3))
    monkeypatch.setattr(pair_attention, "load_stop_words", lambda _: frozenset())


@pytest.mark.usefixtures("_all_words")
@pytest.mark.parametrize("strength", [0.0, 0.4])
def test_planted_text(strength, monkeypatch) -> None:
    """A planted effect is confirmed at its size; without one only the control by random weights is met."""
    monkeypatch.setattr(ambiguous_words, "wikipedia_sample", lambda: texts(np.random.default_rng(0)))
    context = Context(seeds=2, memory={"wikipedia": make_sample(strength)})
    rows = ambiguous_words.text_rows(context)
    met = answers(rows)
    assert met.pop("random")
    assert met == dict.fromkeys(("keep", "ambiguous", "cosine", "shuffled"), strength > 0)
    kept = next(row for row in rows if row["criterion"] == "keep")
    assert kept["measured"] == pytest.approx(np.exp(strength), rel=0.03)


@pytest.mark.usefixtures("_all_words")
@pytest.mark.parametrize("overlap", ["keep", "drop"])
def test_the_ratio_is_the_probes_own(overlap) -> None:
    """Pairs read one by one against `topicscope.probe` on the same text, its error by documents included."""
    corpus, (model, tokenizer) = texts(np.random.default_rng(1), 25), tiny.build("bert")
    with torch.no_grad():
        for parameter in model.parameters():  # far from the even attention of a fresh model
            parameter.mul_(4)
    sample = make_sample(0.0)
    topics = sample.topics[0]
    options = {"threshold": (0.25,), "unit": "passage", "controls": 0, "language": "la", "overlap": overlap}
    row = topicscope.probe(model, tokenizer, corpus, topics=topics, **options).table().iloc[0]
    pairs = read_pairs(view_model(model, tokenizer), corpus, WORDS, 25, SilentProgress())
    member = sample.membership(topics, 0.25, overlap)
    found = ratio(pairs, member)
    assert abs(found.value - 1) > 1e-3
    assert (found.value, found.se) == (
        pytest.approx(row["attention_ratio"], rel=1e-5),
        pytest.approx(row["attention_ratio_se"], rel=1e-4),
    )
    assert ratio(pairs, member, distinct=True).value == pytest.approx(row["attention_ratio_distinct"], rel=1e-5)


def test_a_random_model_with_structure_is_noticed() -> None:
    criterion = next(c for c in CLAIM.criteria if c.id == "random")
    assert criterion.met({"measured": 1.001, "error": 0.01})
    for bad in ({"measured": 1.03, "error": 0.0}, {"measured": 1.0, "error": 0.03}, {"measured": 0.97, "error": 0.0}):
        assert not criterion.met(bad)


def test_cosine_gap_is_the_probes_own() -> None:
    """All pairs: `embedding_similarity`; pairs with an ambiguous word: a loop."""
    rng = np.random.default_rng(0)
    vectors, member = rng.normal(size=(12, 5)), rng.random((12, 3)) < 0.4
    vectors[11] = np.nan  # not one token of the model
    found = cosine_gap(vectors, member)
    twin = embedding_similarity(vectors[:11], member[:11], kind="cosine")
    assert (found.value, found.se) == (pytest.approx(twin.difference), pytest.approx(twin.difference_se))
    assert (found.pairs, found.clusters) == (twin.pairs_same + twin.pairs_different, twin.num_words)
    groups = {True: [], False: []}
    for a, b in itertools.combinations(range(11), 2):
        if member[a].any() and member[b].any() and max(member[a].sum(), member[b].sum()) > 1:
            cosine = vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])
            groups[bool((member[a] & member[b]).any())].append(cosine)
    gap = np.mean(groups[True]) - np.mean(groups[False])
    assert cosine_gap(vectors, member, ambiguous=True).value == pytest.approx(gap)
