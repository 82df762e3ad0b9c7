"""Does topic structure merely follow co-occurrence counts? What same-topic adds once co-occurrence is in the model.

Of the paper's Appendix A.2 only the title was at hand ("Do topic-wise behaviors perfectly correlate with co-occurrence
counts?"); the assertion below is our reading of it.

In disjoint topics of one size and frequency the question has no answer: two words of a topic always meet equally often,
so topic and co-occurrence are one and the same. Here topics are correlated and unequally frequent (the recipes
linked-*), with the exact expected co-occurrence of every pair; and there is real text. Method: `partial_effect`.

In real text the counts of a hundred articles measure co-occurrence with error, and the topics were fitted to the same
articles: part of what same-topic adds may be co-occurrence that the counts miss. Counts of every second passage alone
stand beside, which shows how much of the effect such noise can make.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from topicscope.claims.claim import Claim, Context, Criterion, Row, above, exact_row, not_run_row
from topicscope.claims.pair_attention import (
    NOT_HERE,
    Sample,
    demo_inputs,
    together,
    unit_vectors,
    wikipedia,
    word_scores,
)
from topicscope.claims.partial_effect import Effect, Pairs, coverage_row, effect_row, shares_any, shuffled_effects
from topicscope.experiments import finite_value_matrix, infinite_value_matrix
from topicscope.lab import Recipe, law_of, make_recipe, topic_model_of
from topicscope.records import RunRecord
from topicscope.theory import dirichlet_law
from topicscope.topics import Topics

SHUFFLES = (100, 40)  # of the topics, full and quick
THRESHOLD = 0.002  # the largest of Knowl 7's ambiguity thresholds


def measure(context: Context) -> list[Row]:
    """Trained models on correlated topics, then MiniLM on Wikipedia."""
    return [*embedding_rows(context), *attention_rows(context), *text_rows(context)]


@dataclass(frozen=True, eq=False)
class PairRegression:
    """One response to pairs of words, their co-occurrence, and the topics.

    controls: columns [pair] that hold the co-occurrence; the first is its logarithm. membership: bool [word, topic], a
    row for each of `pairs.names`.
    """

    pairs: Pairs
    response: np.ndarray
    controls: tuple[np.ndarray, ...]
    membership: np.ndarray

    def same_topic(self, *more: np.ndarray) -> Effect:
        """The partial effect of same-topic, with `more` columns beside the co-occurrence."""
        return self.pairs.effect(self.response, self._same, (*self.controls, *more))

    def curved(self) -> Effect:
        """The same where log co-occurrence may act by a polynomial of degree 3."""
        first = self.controls[0]
        scaled = (first - first.mean()) / max(float(first.std()), 1e-12)
        return self.same_topic(scaled**2, scaled**3)

    def co_occurrence(self) -> Effect:
        """The partial effect of log co-occurrence with same-topic in the model."""
        return self.pairs.effect(self.response, self.controls[0], (self._same, *self.controls[1:]))

    def shuffled(self, times: int, seed: int) -> list[Effect]:
        """The partial effects of topics dealt out anew among the words."""
        partial = self.pairs.partial(self.response, self.controls)
        return shuffled_effects(partial, self.membership, times, seed)

    @property
    def _same(self) -> np.ndarray:
        return shares_any(self.membership, self.pairs)


def regression_rows(context: Context, criterion: str, how: str, regressions: Sequence[PairRegression]) -> list[Row]:
    """Judged: same-topic, given co-occurrence. Beside it: a curved control, the co-occurrence, shuffled topics."""
    each = -(-SHUFFLES[context.quick] // len(regressions))
    shuffled = [effect for seed, regression in enumerate(regressions) for effect in regression.shuffled(each, seed)]
    return [
        effect_row(criterion, f"{how}: same-topic, given log co-occurrence", [q.same_topic() for q in regressions]),
        effect_row("curved", f"{how}: same-topic, given a cubic of it", [q.curved() for q in regressions]),
        effect_row(None, f"{how}: log co-occurrence, given same-topic", [q.co_occurrence() for q in regressions]),
        coverage_row("shuffled", f"{how}: share of shuffled topics whose interval holds 0", shuffled),
    ]


def expected_cooccurrence(recipe: Recipe) -> np.ndarray:
    """P(w_a = i, w_b = j) of two positions of a document, Φᵀ E[θθᵀ] Φ, exact; float64 [word word]."""
    topic_model = topic_model_of(recipe)
    second = law_of(recipe, topic_model).second_moment(dirichlet_law(topic_model.alpha).second)
    return np.asarray(topic_model.phi.T @ second @ topic_model.phi)


def synthetic_regression(recipe: Recipe, response: np.ndarray) -> PairRegression:
    """A matrix [query key] over all words (NaN: not measured) against the exact co-occurrence of the recipe."""
    query, key = np.nonzero(np.isfinite(response) & ~np.eye(len(response), dtype=bool))
    pairs = Pairs(query, key)
    member = topic_model_of(recipe).phi.T[pairs.names] > 0
    return PairRegression(pairs, response[query, key], (np.log(expected_cooccurrence(recipe)[query, key]),), member)


def embedding_rows(context: Context) -> list[Row]:
    """Cosine of trained embeddings."""
    record = context.train("linked-embeddings", f"training.steps={400 if context.quick else 1000}")
    recipe = make_recipe(record.config)
    words = len(topic_model_of(recipe).vocabulary)
    regressions = []
    for W_E in record.weights["W_E"]:
        unit = W_E[:, 1 : words + 1].astype(np.float64)
        unit /= np.linalg.norm(unit, axis=0)
        regressions.append(synthetic_regression(recipe, unit.T @ unit))
    return regression_rows(context, "embedding", "cosine, correlated topics", regressions)


def attention_rows(context: Context) -> list[Row]:
    """Log attention after the two stages, under both losses; W_V beside it; then all matrices at once."""
    rows = []
    for loss in ("cross-entropy", "squared"):
        steps = 600 if context.quick else 1000
        record = context.train("linked-attention", f"training.loss={loss}", f"training.steps={steps}")
        how = f"correlated topics, {loss}"
        rows += regression_rows(context, "attention", f"log attention, {how}", _attention_regressions(record))
        rows += _value_rows(record, how)
    joint = context.train("linked-attention", "training.stages=[]", f"training.steps={300 if context.quick else 1000}")
    effects = [regression.same_topic() for regression in _attention_regressions(joint)]
    quantity = "log attention, all matrices at once, cross-entropy: same-topic, given log co-occurrence"
    return [*rows, effect_row("joint", quantity, effects)]


def _attention_regressions(record: RunRecord) -> list[PairRegression]:
    recipe = make_recipe(record.config)
    scores, counts = word_scores(record)
    return [synthetic_regression(recipe, mean_log_attention(score, counts)) for score in scores]


def mean_log_attention(scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean of log A over all pairs of positions of words u and k: S_uk - mean of log Z_du; NaN where they never meet.

    scores: [query key]; counts: words of plain documents, [document word]; Z_du = Σ_k c_dk e^{S_uk}. Logarithms are
    averaged, not averages taken to logarithms: these are biased by the more, the fewer times two words meet.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(counts)
    normaliser = np.stack([logsumexp(scores + row, axis=1) for row in logs])
    meetings = counts.T @ counts
    mean = (counts * normaliser).T @ counts
    return np.where(meetings > 0, scores - mean / np.maximum(meetings, 1), np.nan)


def _value_rows(record: RunRecord, how: str) -> list[Row]:
    """W_V after stage one; under the squared loss beside its exact optimum, and beside that of N = ∞.

    That of N = ∞ is the same whatever the law of θ, so it cannot follow co-occurrence; at finite N it can, a little.
    """
    recipe = make_recipe(record.config)
    words = len(topic_model_of(recipe).vocabulary)
    regressions = [synthetic_regression(recipe, W[1 : words + 1, 1 : words + 1]) for W in record.weights["W_V"]]
    theory: tuple[float, float] | tuple[None, None] = (None, None)
    names = "same-topic, given log co-occurrence", "log co-occurrence, given same-topic"
    rows = []
    if recipe.training.loss == "squared":
        exact = synthetic_regression(recipe, finite_value_matrix(recipe)[1:, 1:])
        theory = exact.same_topic().value, exact.co_occurrence().value
        limit = synthetic_regression(recipe, infinite_value_matrix(recipe)[1:, 1:])
        effects = limit.same_topic().value, limit.co_occurrence().value
        rows = [exact_row(None, f"W_V, optimum at N = ∞: {n}", e) for n, e in zip(names, effects, strict=True)]
    return [
        effect_row(None, f"W_V, {how}: {names[0]}", [q.same_topic() for q in regressions], theory=theory[0]),
        effect_row(None, f"W_V, {how}: {names[1]}", [q.co_occurrence() for q in regressions], theory=theory[1]),
        *rows,
    ]


def text_rows(context: Context) -> list[Row]:
    """MiniLM on Wikipedia, one regression for each fit of the topics."""
    sample = wikipedia(context)
    if sample is None:
        return [not_run_row("MiniLM on Wikipedia", NOT_HERE)]
    attention = [attention_regression(sample, topics) for topics in sample.topics]
    plain = [regression for regression, _ in attention]
    distant = [regression.same_topic(distance) for regression, distance in attention]
    embeddings = [embedding_regression(sample, sample.cooccurrence, topics) for topics in sample.topics]
    halved = [embedding_regression(sample, sample.half, topics).same_topic() for topics in sample.topics]
    given = "same-topic, given log co-occurrence"
    return [
        *regression_rows(context, "text-attention", "log attention, MiniLM on Wikipedia", plain),
        effect_row("distance", f"log attention, MiniLM on Wikipedia: {given} and log distance", distant),
        *regression_rows(context, "text-embedding", "cosine, MiniLM", embeddings),
        effect_row(None, f"cosine, MiniLM: {given} of every second passage only", halved),
    ]


def attention_regression(sample: Sample, topics: Topics) -> tuple[PairRegression, np.ndarray]:
    """Mean log attention of each ordered pair of words with a topic that meet in a passage; and mean log distance."""
    read, member, size = sample.pairs, sample.membership(topics, THRESHOLD), len(sample.words)
    topical = np.flatnonzero(member.any(axis=1))
    used = np.flatnonzero(np.isin(read.query, topical) & np.isin(read.key, topical) & (read.query != read.key))
    code, place = np.unique(read.query[used] * size + read.key[used], return_inverse=True)
    times = np.bincount(place)
    response = np.bincount(place, np.log(read.attention[used, 0])) / times
    distance = np.bincount(place, np.log(read.distance[used])) / times
    pairs = Pairs(code // size, code % size)
    names = pairs.names
    # What was read is part of what was counted, so that no logarithm of 0 is taken.
    log_counts = np.log(together(sample.cooccurrence, names[pairs.query], names[pairs.key]))
    return PairRegression(pairs, response, (log_counts,), member[names]), distance


def embedding_regression(sample: Sample, cooccurrence: sparse.csr_matrix, topics: Topics) -> PairRegression:
    """Cosine of every pair of words with a topic; passages of both, plus one half, and whether there is none at all."""
    member = sample.membership(topics, THRESHOLD)
    words, unit = unit_vectors(sample.vectors, member)
    query, key = np.nonzero(~np.eye(len(words), dtype=bool))
    counts = together(cooccurrence, words[query], words[key])
    controls = np.log(counts + 0.5), (counts == 0).astype(np.float64)
    return PairRegression(Pairs(query, key), (unit @ unit.T)[query, key], controls, member[words])


CLAIM = Claim(
    id="co-occurrence",
    title="Topic structure does not merely follow co-occurrence counts",
    where="Appendix A.2 (our reading of its title)",
    assertion="Among pairs of words that meet equally often, those of one topic still have the larger attention and "
    "the closer embeddings.",
    recipes=("linked-embeddings", "linked-attention"),
    theory=("dirichlet_law", "moments", "minimum_norm_value_matrix"),
    criteria=(
        above("text-attention", "MiniLM on Wikipedia: partial effect of same-topic on log attention", 0.0),
        above("text-embedding", "MiniLM: partial effect of same-topic on the cosine of embeddings", 0.0),
        above("attention", "correlated topics, W_V first, then attention: partial effect on log attention", 0.0),
        above("embedding", "correlated topics: partial effect on the cosine of trained embeddings", 0.0),
        Criterion(
            "shuffled",
            "shuffled topics: at least .85 of the intervals hold 0, so that an interval means what it says",
            lambda row: 0.85 <= row["measured"] <= 1,
        ),
        above("curved", "the effect stays where co-occurrence may act by a cubic", 0.0, decisive=False),
        above("distance", "the effect stays with the distance of the words in the model", 0.0, decisive=False),
        above("joint", "the effect also where all matrices are trained at once", 0.0, decisive=False),
    ),
    measure=measure,
    inputs=demo_inputs,
)
