"""Partial effects against slow twins and planted truths; what is confirmed of co-occurrence, and no sabotaged run."""

import itertools

import numpy as np
import pytest
from scipy.stats import t as student

import tiny
from claims.sabotage import Untrained
from topicscope.claims import co_occurrence, pair_attention
from topicscope.claims.claim import Context
from topicscope.claims.co_occurrence import (
    CLAIM,
    PairRegression,
    expected_cooccurrence,
    mean_log_attention,
)
from topicscope.claims.pair_attention import Sample, cooccurrence, together
from topicscope.claims.partial_effect import Effect, Pairs, coverage_row, effect_row, shuffled_effects
from topicscope.experiments import finite_value_matrix, infinite_value_matrix
from topicscope.lab import law_of, load_recipe, masking_of, recipe_path, topic_model_of
from topicscope.probing.attention import PairTable
from topicscope.probing.hf import view_model
from topicscope.synthetic import count_tokens
from topicscope.topics import TopicModel, Topics, Vocabulary


def answers(rows):
    """Criterion -> whether all of its rows meet it."""
    met = {}
    for row in rows:
        for criterion in CLAIM.criteria:
            if row["criterion"] == criterion.id:
                met[criterion.id] = met.get(criterion.id, True) and criterion.met(row)
    return met


# --- the regression ---


def twin(query, key, response, variable, controls):
    """β and its error from all dummies at once and a double loop over dyads that share a word."""
    words = sorted({*query.tolist(), *key.tolist()})
    levels = [[(q == w) for w in words] for q in query.tolist()], [[(k == w) for w in words[1:]] for k in key.tolist()]
    nuisance = np.column_stack([*map(np.array, levels), *controls]).astype(float)
    x = variable - nuisance @ np.linalg.lstsq(nuisance, variable, rcond=None)[0]
    full = np.column_stack([variable, nuisance])
    solution = np.linalg.lstsq(full, response, rcond=None)[0]
    residual = response - full @ solution
    scores = {}
    for q, k, score in zip(query.tolist(), key.tolist(), x * residual, strict=True):
        dyad = frozenset((q, k))
        scores[dyad] = scores.get(dyad, 0.0) + score
    meat = sum(a * b for (d, a), (e, b) in itertools.product(scores.items(), repeat=2) if d & e)
    meat = max(meat, sum(a * a for a in scores.values()))
    n, W = len(query), len(words)
    rank = np.linalg.matrix_rank(full)
    return solution[0], np.sqrt(meat / (x @ x) ** 2 * n / (n - rank) * W / (W - 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_the_effect_is_that_of_all_dummies_at_once(seed, share) -> None:
    rng = np.random.default_rng(seed)
    query, key = np.nonzero(~np.eye(11, dtype=bool) & (rng.random((11, 11)) < share))
    response, variable, *controls = rng.normal(size=(4, len(query)))
    level = rng.normal(size=11)
    response += 3 * level[query] * level[key] + variable
    value, error = twin(query, key, response, variable, controls)
    names = rng.permutation(500)[:11]  # words may have any numbers
    found = Pairs(names[query], names[key]).effect(response, variable, controls)
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.se == pytest.approx(error, rel=1e-5)
    assert found.error == pytest.approx(student.ppf(0.975, 10) * error, rel=1e-5)
    assert (found.pairs, found.clusters) == (len(query), 11)


def test_what_cannot_be_told_apart_is_unknown() -> None:
    """Disjoint topics of one size: co-occurrence takes two values, so nothing is left of same-topic beside it."""
    query, key = np.nonzero(~np.eye(12, dtype=bool))
    pairs = Pairs(query, key)
    same = (query // 4 == key // 4).astype(float)
    response = np.random.default_rng(0).normal(size=len(query))
    assert np.isnan(pairs.effect(response, same, [3 * same - 1]).value)
    assert np.isnan(pairs.effect(response, np.ones(len(query))).value)
    assert np.isnan(pairs.effect(response, np.sqrt(2.0 * query)).value), "a property of single words"
    known = pairs.effect(response, same)
    assert np.isfinite(known.value)
    row = effect_row("attention", "x", [known, pairs.effect(response, same, [same])])
    assert not any(criterion.met(row) for criterion in CLAIM.criteria if criterion.id == "attention")


def planted(rng, *, topic=0.0, co_occurrence=1.0, words=60, topics=12):
    """A regression on random topics: PMI that topics raise only in part, noise shared by the pairs of a word."""
    member = np.eye(topics, dtype=bool)[rng.integers(0, topics, words)]
    query, key = np.nonzero(~np.eye(words, dtype=bool))
    same = (member @ member.T)[query, key].astype(float)
    noise = rng.normal(size=(2, words, words))
    noise += noise.transpose(0, 2, 1)
    place = rng.normal(size=(words, 3))
    pmi = same + noise[0][query, key]
    response = co_occurrence * pmi + topic * same + noise[1][query, key] + 0.3 * (place @ place.T)[query, key]
    return PairRegression(Pairs(query, key), response, (pmi,), member)


def test_a_planted_effect_is_found_and_one_of_co_occurrence_alone_is_not() -> None:
    """60 planted data sets each: intervals hold the truth about 95 times in 100, whatever co-occurrence does."""
    rng = np.random.default_rng(1)
    for topic in (0.0, 0.5):
        effects = [planted(rng, topic=topic).same_topic() for _ in range(60)]
        values = np.array([effect.value for effect in effects])
        assert values.mean() == pytest.approx(topic, abs=4 * values.std() / np.sqrt(60))
        held = np.mean([abs(effect.value - topic) <= effect.error for effect in effects])
        assert 0.88 <= held <= 1.0
        # Without the control the very same data show an effect, though co-occurrence alone made it.
    regression = planted(rng)
    plain = regression.pairs.effect(regression.response, regression._same)
    assert plain.value - plain.error > 0
    assert not regression.same_topic().excludes_zero


def test_pairs_taken_as_independent_would_be_too_sure() -> None:
    """Clusters matter: the error without them holds the truth far too seldom where responses share their words."""
    rng = np.random.default_rng(2)
    held = {"clustered": [], "independent": []}
    for _ in range(60):
        words, topics = 40, 4
        topic = rng.integers(0, topics, words)
        member = np.eye(topics, dtype=bool)[topic]
        query, key = np.nonzero(~np.eye(words, dtype=bool))
        taste = rng.normal(size=(words, topics))  # every word likes some topics, not more often its own
        response = taste[query, topic[key]] + taste[key, topic[query]]
        found = PairRegression(Pairs(query, key), response, (), member)
        effect = found.same_topic()
        x = found.pairs.without_levels(found._same)
        residual = found.pairs.without_levels(response) - effect.value * x
        independent = 1.96 * np.sqrt((x * residual) @ (x * residual)) / (x @ x)
        held["clustered"].append(abs(effect.value) <= effect.error)
        held["independent"].append(abs(effect.value) <= independent)
    assert np.mean(held["independent"]) < 0.8
    assert np.mean(held["clustered"]) > 0.87


def test_shuffled_topics_give_nothing() -> None:
    regression = planted(np.random.default_rng(3), topic=1.0)
    assert regression.same_topic().excludes_zero
    shuffled = regression.shuffled(100, 0)
    assert abs(np.mean([effect.value for effect in shuffled])) < 0.1
    row = coverage_row("shuffled", "x", shuffled)
    assert answers([row]) == {"shuffled": True}
    assert answers([coverage_row("shuffled", "x", [Effect(1.0, 0.1, 9, 9)] * 4)]) == {"shuffled": False}
    assert answers([coverage_row("shuffled", "x", [Effect(np.nan, np.nan, 9, 9)] * 4)]) == {"shuffled": False}
    dealt = shuffled_effects(regression.pairs.partial(regression.response), regression.membership, 2, 0)
    assert dealt[0].value != dealt[1].value


def test_runs_are_put_together_by_rubins_rules() -> None:
    """Against the textbook's numbers: W̄ = 4, B = 4, m = 2: T = 10, ν_m = (10/6)²."""
    row = effect_row("attention", "x", [Effect(1.0, 2.0, 9, 10**9), Effect(1.0 + np.sqrt(8.0), 2.0, 9, 10**9)])
    assert row["measured"] == pytest.approx(1 + np.sqrt(2))
    assert row["error"] == pytest.approx(student.ppf(0.975, (10 / 6) ** 2) * np.sqrt(10), rel=1e-6)
    single = effect_row("attention", "x", [Effect(1.0, 2.0, 9, 20)])
    assert single["error"] == pytest.approx(2 * student.ppf(0.975, 19))


# --- trained models ---


def test_expected_co_occurrence_is_that_of_drawn_documents() -> None:
    recipe = load_recipe(recipe_path("linked-embeddings"))
    topic_model = topic_model_of(recipe)
    documents = law_of(recipe, topic_model).draw(np.random.default_rng(0), 30_000)
    first = np.cumsum(documents.lengths) - documents.lengths
    rng = np.random.default_rng(1)
    found = np.zeros((90, 90))
    for _ in range(40):  # two positions of each document
        a, b = (first + rng.integers(0, documents.lengths) for _ in range(2))
        np.add.at(found, (documents.words[a] - 1, documents.words[b] - 1), 1 * (a != b))
    expected = expected_cooccurrence(recipe)
    assert expected.sum() == pytest.approx(1)
    topic = topic_model.phi.argmax(axis=0)
    blocks = np.eye(10)[topic]
    assert blocks.T @ found @ blocks / found.sum() == pytest.approx(blocks.T @ expected @ blocks, rel=0.2, abs=0)
    # What the recipe is for: a pair of partner topics that meets more often, for its frequency, than one of a topic.
    share = topic_model.phi.T @ (np.array(recipe.data.alpha) / sum(recipe.data.alpha))
    pmi = np.log(expected / np.outer(share, share))
    same = topic[:, None] == topic
    assert pmi[~same].max() > pmi[same].min() + 1


def test_mean_log_attention_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores, counts = 2 * rng.normal(size=(4, 4)), rng.integers(0, 3, (3, 4)).astype(float)
    counts[:, 3] = [0, 2, 0]
    counts[1, 0] = 0  # words 1 and 4 never meet
    found = mean_log_attention(scores, counts)
    for u, k in itertools.product(range(4), repeat=2):
        logs = []
        for row in counts:
            positions = [w for w in range(4) for _ in range(int(row[w]))]
            normaliser = np.log(sum(np.exp(scores[u, w]) for w in positions))
            logs += [scores[u, k] - normaliser] * int(row[u] * row[k])
        assert np.isnan(found[u, k]) if not logs else found[u, k] == pytest.approx(np.mean(logs))
    assert np.isnan(found[0, 3])


class Quicker(Context):
    """Fewer measurements on the way."""

    def train(self, name, *overrides, seeds=None):
        return super().train(name, *overrides, "history.every=1000", "history.documents=40", seeds=seeds)


class FollowsCoOccurrence(Quicker):
    """Weights that know co-occurrence only: cosines, scores and W_V are mutual information with noise."""

    def train(self, name, *overrides, seeds=None):
        record = super().train(name, *overrides, "training.steps=1", "training.stages=[]", seeds=seeds)
        expected = expected_cooccurrence(load_recipe(recipe_path(name)))
        logs = np.pad(np.log(expected / np.outer(expected.sum(axis=0), expected.sum(axis=1))), ((1, 0), (1, 0)))
        rng = np.random.default_rng(0)
        matrices = []
        for _ in range(record.summary["seeds"]):
            noise = rng.normal(size=logs.shape)
            matrices.append(logs + 0.3 * (noise + noise.T))
        weights = dict(record.weights)
        if name == "linked-attention":
            width = weights["W_K"].shape[1]
            weights["W_K"] = np.stack([np.eye(width)] * len(matrices))
            weights["W_Q"] = np.stack([np.sqrt(width) * matrix.T for matrix in matrices])
            weights["W_V"] = np.stack(matrices)
        else:
            factors = []
            for matrix in matrices:
                np.fill_diagonal(matrix, 0.0)
                values, vectors = np.linalg.eigh(matrix)
                factors.append((vectors * np.sqrt(values - 1.1 * values[0])).T)  # unequal diagonals would bend cosines
            weights["W_E"] = np.stack(factors)
        return type(record)(record.config, record.manifest, record.history, weights, record.summary)


@pytest.fixture(autouse=True)
def _few(monkeypatch) -> None:
    monkeypatch.setattr(pair_attention, "PLAIN_DOCUMENTS", 300)
    monkeypatch.setattr(co_occurrence, "SHUFFLES", (20, 20))


def test_trained_models_follow_topics() -> None:
    context = Quicker(seeds=2, quick=True)
    assert answers(co_occurrence.embedding_rows(context)) == {"embedding": True, "curved": True, "shuffled": True}
    rows = co_occurrence.attention_rows(context)
    met = answers(rows)
    assert met.pop("joint") is False, "all at once attention has no such structure: see the claim joint-training"
    assert met == {"attention": True, "curved": True, "shuffled": True}
    # Theorem 2's W_V for these topics does not know how often they come together.
    values = {row["quantity"]: row for row in rows if row["quantity"].startswith("W_V, correlated topics, squared")}
    topic, meeting = values.values()
    assert topic["measured"] == pytest.approx(topic["theory"], rel=0.1)
    assert abs(meeting["measured"]) < 0.1 * topic["measured"]
    assert abs(meeting["theory"]) < 0.05 * topic["theory"]


def test_the_optimal_value_matrix_of_correlated_topics() -> None:
    """Its gradient vanishes in drawn documents; without links it is another matrix; its limit at N = ∞ is the same."""
    overrides = ([f"data.linked={share}", "training.loss=squared"] for share in (0.7, 0))
    recipes = [load_recipe(recipe_path("linked-attention"), changes) for changes in overrides]
    linked, plain = (finite_value_matrix(recipe) for recipe in recipes)
    assert np.abs(linked - plain).max() > 0.02 * np.abs(linked).max()
    assert np.array_equal(*(infinite_value_matrix(recipe) for recipe in recipes))
    recipe, rng = recipes[0], np.random.default_rng(0)
    batch = masking_of(recipe).apply(rng, law_of(recipe, topic_model_of(recipe)).draw(rng, 20_000))
    seen = count_tokens(batch, 91, "document", by_query=False)
    shares, targets = seen.inputs[seen.document], seen.targets
    second, cross = (shares.T * targets.sum(axis=1)) @ shares, shares.T @ targets

    def loss(W):  # Σ_g Σ_i targets ‖W x̄ - e_i‖², up to a constant
        return np.sum((W @ second) * W) - 2 * np.sum(W * cross.T)

    sampled = cross.T @ np.linalg.pinv(second)
    gain = loss(0 * linked) - loss(sampled)
    assert loss(linked) - loss(sampled) < 0.01 * gain
    for other in (plain, 0.95 * linked, 1.05 * linked):
        assert loss(linked) < loss(other)


@pytest.mark.parametrize("context", [FollowsCoOccurrence, Untrained])
def test_models_without_topics_are_not_confirmed(context) -> None:
    met = answers(co_occurrence.embedding_rows(context(seeds=2, quick=True)))
    met |= answers(co_occurrence.attention_rows(context(seeds=2, quick=True)))
    assert met["shuffled"]
    assert not met["embedding"]
    assert not met["attention"]


# --- text ---


def make_sample(topic, co_occurrence=0.3, seed=0):
    """Planted text: 80 words of 10 topics, passages, and attention and vectors of which the truth is known."""
    rng = np.random.default_rng(seed)
    words, topics, passages = 80, 10, 400
    owner = np.repeat(np.arange(topics), words // topics)
    phi = np.where(owner == np.arange(topics)[:, None], rng.uniform(1, 2, words), 1e-6)
    names = tuple(f"w{a}{b}" for a in "abcdefgh" for b in "abcdefghij")
    model = TopicModel.normalised(phi, Vocabulary(tuple(names)))
    kinship = rng.normal(size=(words, words))
    kinship += kinship.T
    taste = owner[:, None] == owner
    texts, query, key, document, attention, distance = [], [], [], [], [], []
    drawn = []
    for _ in range(passages):
        start = rng.integers(words)
        weight = np.exp(0.8 * kinship[start] + 1.0 * taste[start])
        drawn.append(rng.choice(words, 12, replace=False, p=weight / weight.sum()))
        texts.append(" ".join(names[i] for i in drawn[-1]))
    meetings = cooccurrence(texts, names)
    for number, text in enumerate(drawn):
        for a, b in itertools.permutations(range(len(text)), 2):
            query.append(text[a])
            key.append(text[b])
            document.append(number)
            distance.append(abs(a - b))
    query, key = np.array(query), np.array(key)
    logs = np.log(together(meetings, query, key))
    attention = np.exp(co_occurrence * logs + topic * taste[query, key] + 0.3 * rng.normal(size=len(query)))
    ones = np.ones_like(query)
    table = (np.array(document), np.arange(len(query)), query, key, ones, np.array(distance), ones, ones)
    pairs = PairTable(*table, attention[:, None])
    gram = topic * taste + 0.05 * np.log(meetings.toarray() + 0.5)
    values, vectors = np.linalg.eigh(gram + 3 * np.eye(words))
    topics_of = Topics(model, {})
    view = view_model(*tiny.build("bert"))
    return Sample(
        view, (topics_of, topics_of), names, pairs, meetings, meetings, vectors * np.sqrt(np.maximum(values, 0))
    )


@pytest.fixture
def _all_words(monkeypatch) -> None:
    monkeypatch.setattr(co_occurrence, "THRESHOLD", 0.1)
    monkeypatch.setattr(pair_attention, "load_stop_words", lambda _: frozenset())


@pytest.mark.usefixtures("_all_words")
@pytest.mark.parametrize("topic", [0.0, 0.4])
def test_planted_text(topic) -> None:
    """A planted effect of topics is found at its size; attention that follows co-occurrence alone is not confirmed."""
    context = Context(seeds=2, quick=True, memory={"wikipedia": make_sample(topic)})
    rows = co_occurrence.text_rows(context)
    met = answers(rows)
    assert met.pop("shuffled")
    assert set(met.values()) == {topic > 0}
    assert set(met) == {"text-attention", "text-embedding", "curved", "distance"}
    attention = next(row for row in rows if row["criterion"] == "text-attention")
    assert attention["measured"] == pytest.approx(topic, abs=1.5 * attention["error"])
    control = next(row for row in rows if "log co-occurrence, given same-topic" in row["quantity"])
    assert control["measured"] == pytest.approx(0.3, abs=2 * control["error"])


def test_meetings_against_a_loop() -> None:
    texts = ["A b, c. a", "B c?", "c", "d e a"]
    found = cooccurrence(texts, ["a", "b", "c"])
    query, key = map(np.ravel, np.indices((3, 3)))
    sets = [set("abc"), set("bc"), set("c"), set("a")]
    expected = [sum({"abc"[q], "abc"[k]} <= s for s in sets) for q, k in zip(query, key, strict=True)]
    assert together(found, query, key).tolist() == expected


def test_without_the_model_text_is_not_run() -> None:
    context = Context(seeds=2, quick=True, memory={"wikipedia": None})
    rows = co_occurrence.text_rows(context)
    assert [row["criterion"] for row in rows] == [None]
    assert CLAIM.judge(rows)[0] == "not_run"
