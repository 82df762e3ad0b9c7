"""The multi-topic extension: words that belong to several topics keep all of them instead of being dropped.

Two words share a topic when their sets of topics intersect. Of the paper's Table 5 (the same measurements with words in
several topics) no number was at hand, so no row has a printed value; its statement, as the paper's overview has it, is
that the ratios stay above 1.

For trained models there is more: at N = ∞ and uniform attention the optimal W_V is W* = [0; Φ] K with some K of T rows
(`topicscope.theory.minimum_norm_value_matrix`), so that the row of a word of topics t and u, equally likely in both, is
exactly the sum of the rows of a word of t alone and a word of u alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topicscope.claims.attention_order import LARGER
from topicscope.claims.claim import (
    Claim,
    Context,
    Criterion,
    Row,
    above,
    below,
    exact_row,
    measured_row,
    near,
    not_run_row,
)
from topicscope.claims.pair_attention import (
    NOT_HERE,
    Sample,
    demo_inputs,
    read_pairs,
    unit_vectors,
    wikipedia,
    word_scores,
)
from topicscope.claims.partial_effect import Effect, effect_row
from topicscope.experiments import infinite_value_matrix
from topicscope.lab import make_recipe, topic_model_of
from topicscope.probing.attention import PairTable
from topicscope.probing.statistics import Moments, jackknife, ratio_of_means
from topicscope.records import RunRecord
from topicscope.text import wikipedia_sample
from topicscope.topics import Overlap

THRESHOLDS = (0.0005, 0.001, 0.002)  # Knowl 7's
OVERLAPS: tuple[Overlap, ...] = ("keep", "drop")
_SHUFFLES = 20
_CONTROL_PASSAGES = 60


def measure(context: Context) -> list[Row]:
    """Trained models on overlapping topics, then MiniLM on Wikipedia."""
    return [*value_rows(context), *embedding_rows(context), *attention_rows(context), *text_rows(context)]


@dataclass(frozen=True, eq=False)
class Classes:
    """Which pairs of distinct words are which; bool [word word] each.

    own: one word of two topics, the other of one of these alone. other: the same, but of another topic alone. same:
    both of one topic and no other. different: of two topics and no other.
    """

    own: np.ndarray
    other: np.ndarray
    same: np.ndarray
    different: np.ndarray

    @classmethod
    def of(cls, membership: np.ndarray) -> "Classes":
        """From bool [word topic]."""
        share = membership.astype(np.int64) @ membership.T > 0
        several = membership.sum(axis=1) > 1
        distinct = ~np.eye(len(membership), dtype=bool)
        mixed, single = several[:, None] ^ several, ~several[:, None] & ~several & distinct
        return cls(mixed & share, mixed & ~share, single & share, single & ~share)

    def gaps(self, matrix: np.ndarray) -> tuple[float, float]:
        """(own - other, same - own) of the class means of a matrix [word word]."""
        own, other, same = (float(matrix[chosen].mean()) for chosen in (self.own, self.other, self.same))
        return own - other, same - own


def _membership(record: RunRecord) -> np.ndarray:
    return np.asarray(topic_model_of(make_recipe(record.config)).phi.T > 0)


def value_rows(context: Context) -> list[Row]:
    """W_V at N = ∞ under uniform attention against its closed form, and the sum rule for ambiguous words."""
    record = context.train("ambiguous-values")
    member = _membership(record)
    classes, words = Classes.of(member), len(member)
    exact = infinite_value_matrix(make_recipe(record.config))[1:, 1:]
    rows = []
    trained = [W[1 : words + 1, 1 : words + 1].astype(np.float64) for W in record.weights["W_V"]]
    for name in ("same", "own", "other", "different"):
        chosen = getattr(classes, name)
        values = [float(W[chosen].mean()) for W in trained]
        rows.append(measured_row("values", f"mean W_V: {_TEXT[name]}", values, theory=float(exact[chosen].mean())))
    quantity = "largest |row of an ambiguous word - sum of its topics' rows|, in units of W_same"
    furthest = max(sum_rule(W, member) for W in trained) / float(exact[classes.same].mean())
    return [*rows, exact_row("sum", quantity, furthest)]


_TEXT = {
    "same": "two words of one topic",
    "own": "ambiguous word, word of either of its topics",
    "other": "ambiguous word, word of another topic",
    "different": "two words of different topics",
}


def sum_rule(W: np.ndarray, membership: np.ndarray) -> float:
    """Largest |W_s - Σ_t W_t| over entries, ambiguous words s and words of the single topics t of s; rows [out]."""
    several = membership.sum(axis=1) > 1
    rows = np.stack([W[~several & membership[:, topic]].mean(axis=0) for topic in range(membership.shape[1])])
    return float(np.abs(W[several] - membership[several] @ rows).max())


def embedding_rows(context: Context) -> list[Row]:
    """Cosine of embeddings trained at N = ∞ under uniform attention."""
    record = context.train("ambiguous-embeddings")
    member = _membership(record)
    classes, gaps = Classes.of(member), []
    for W_E in record.weights["W_E"]:
        words = W_E[:, 1 : len(member) + 1]
        unit = words / np.linalg.norm(words, axis=0)
        gaps.append(classes.gaps(unit.T @ unit))
    return _gap_rows("cosine, overlapping topics", gaps, "embedding")


def attention_rows(context: Context) -> list[Row]:
    """Log attention in documents that hold both words, after the two stages."""
    record = context.train("ambiguous-attention", f"training.steps={600 if context.quick else 1000}")
    scores_by_seed, counts = word_scores(record)
    classes = Classes.of(_membership(record))
    found = []
    for scores in scores_by_seed:
        own, other, same = (mean_attention(scores, counts, c) for c in (classes.own, classes.other, classes.same))
        found.append((float(np.log(own / other)), float(np.log(same / own))))
    return _gap_rows("log ratio of attention, overlapping topics", found, "attention")


def mean_attention(scores: np.ndarray, counts: np.ndarray, chosen: np.ndarray) -> float:
    """Mean of A over pairs of positions whose words are `chosen` [query key].

    scores: [query key]. counts: words of plain documents, [document word].
    """
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    given = counts / (counts @ weight.T)  # [document query]: Σ over the query's positions of 1/Z
    total = float((given * (counts @ (weight * chosen).T)).sum())
    return total / float((counts * (counts @ chosen.T.astype(np.float64))).sum())


def _gap_rows(how: str, gaps: Sequence[tuple[float, float]], criterion: str) -> list[Row]:
    own, order = (list(values) for values in zip(*gaps, strict=True))
    return [
        measured_row(criterion, f"{how}: ambiguous word with its topics' words against other words", own),
        measured_row("order", f"{how}: words of one topic against ambiguous word with its topics' words", order),
    ]


def text_rows(context: Context) -> list[Row]:
    """MiniLM on Wikipedia with ambiguous words kept and, beside it, dropped; measured for each fit of the topics.

    Quick leaves out the smallest threshold: lists of 3 words a topic need more text than is read then.
    """
    sample = wikipedia(context)
    if sample is None:
        return [not_run_row("MiniLM on Wikipedia", NOT_HERE)]
    rows = []
    for threshold in THRESHOLDS[1:] if context.quick else THRESHOLDS:
        kept, dropped = (
            [sample.membership(topics, threshold, overlap) for topics in sample.topics] for overlap in OVERLAPS
        )
        at = f"MiniLM, θ = {threshold:g}"
        rows += [
            effect_row("keep", f"attention same / different, {at}, kept", [ratio(sample.pairs, m) for m in kept]),
            effect_row(None, f"attention same / different, {at}, dropped", [ratio(sample.pairs, m) for m in dropped]),
            effect_row(
                "ambiguous",
                f"attention same / different of distinct words, one of them ambiguous, {at}",
                [ratio(sample.pairs, m, distinct=True, ambiguous=True) for m in kept],
            ),
            effect_row("cosine", f"cosine same - different, {at}, kept", [cosine_gap(sample.vectors, m) for m in kept]),
            effect_row(
                "cosine",
                f"cosine same - different, one of the words ambiguous, {at}",
                [cosine_gap(sample.vectors, m, ambiguous=True) for m in kept],
            ),
        ]
    return [*rows, *control_rows(context, sample)]


def control_rows(context: Context, sample: Sample) -> list[Row]:
    """The same at the largest threshold with random weights, and with topics dealt out anew among the words."""
    member = sample.membership(sample.topics[0], THRESHOLDS[-1], "keep")
    random_pairs = read_pairs(
        sample.view.randomised(0), wikipedia_sample(), sample.words, _CONTROL_PASSAGES, context.progress
    )
    real = ratio(sample.pairs, member, distinct=True).value
    rng, topical = np.random.default_rng(0), np.flatnonzero(member.any(axis=1))
    shuffled = []
    for _ in range(_SHUFFLES):
        dealt = member.copy()
        dealt[topical] = member[rng.permutation(topical)]
        shuffled.append(ratio(sample.pairs, dealt, distinct=True).value)
    return [
        effect_row("random", "attention same / different, random weights", [ratio(random_pairs, member)]),
        exact_row(
            "shuffled",
            f"ratio of distinct words less the largest of {_SHUFFLES} with shuffled topics",
            real - max(shuffled),
            shuffled_mean=float(np.mean(shuffled)),
        ),
    ]


def ratio(pairs: PairTable, membership: np.ndarray, *, distinct: bool = False, ambiguous: bool = False) -> Effect:
    """Mean attention of pairs that share a topic over that of pairs that do not; the error by articles.

    Pairs of one word at two places share its topics (the paper's ratio) and are left out with `distinct`; with
    `ambiguous` only pairs with at least one word of several topics count.
    """
    topical = np.flatnonzero(membership.any(axis=1))
    place = np.full(len(membership), -1)
    place[topical] = np.arange(len(topical))
    member = membership[topical]
    share, several = member.astype(np.float32) @ member.T > 0, member.sum(axis=1) > 1
    used = np.flatnonzero((place[pairs.query] >= 0) & (place[pairs.key] >= 0))
    query, key = place[pairs.query[used]], place[pairs.key[used]]
    chosen = ((query != key) | (not distinct)) & (several[query] | several[key] | (not ambiguous))
    used, query, key = used[chosen], query[chosen], key[chosen]
    same, attention = share[query, key], pairs.attention[used, 0]
    articles = int(pairs.document.max()) + 1
    columns = (same * attention, same, ~same * attention, ~same)
    sums = [np.bincount(pairs.document[used], column, articles) for column in columns]
    found = ratio_of_means(Moments.of(np.stack(sums, axis=1)), [0], [1], [2], [3])
    return Effect(found.value, found.se, len(query), articles)


def cosine_gap(vectors: np.ndarray, membership: np.ndarray, *, ambiguous: bool = False) -> Effect:
    """Mean cosine of pairs of words that share a topic less that of pairs that do not; jackknife error over words."""
    words, unit = unit_vectors(vectors, membership)
    member = membership[words]
    cosine, share = unit @ unit.T, member.astype(np.float32) @ member.T > 0
    several = member.sum(axis=1) > 1
    pairs = ~np.eye(len(words), dtype=bool)
    if ambiguous:
        pairs &= several[:, None] | several
    means, without = [], []
    for chosen in (pairs & share, pairs & ~share):
        of_word, number = (cosine * chosen).sum(axis=1), chosen.sum(axis=1)
        means.append(of_word.sum() / number.sum())
        # Every pair stands in two rows, so a word takes twice its own row away.
        without.append((of_word.sum() - 2 * of_word) / (number.sum() - 2 * number))
    gap = float(means[0] - means[1])
    return Effect(gap, jackknife(without[0] - without[1]), int(pairs.sum()) // 2, len(words))


CLAIM = Claim(
    id="ambiguous-words",
    title="Topic structure stays where words belong to several topics",
    where="Table 5 (the multi-topic extension)",
    assertion="With words kept in all of their topics, attention and embeddings still connect words that share a topic "
    "more than words that do not.",
    recipes=("ambiguous-values", "ambiguous-embeddings", "ambiguous-attention"),
    theory=("minimum_norm_value_matrix",),
    criteria=(
        above("keep", "MiniLM, ambiguous words kept: attention ratio same / different topic", 1.0),
        above("ambiguous", "MiniLM: the ratio of distinct words of which one is ambiguous", 1.0),
        above("cosine", "MiniLM, ambiguous words kept: cosine same - different topic", 0.0),
        above(
            "attention", "overlapping topics: attention of ambiguous words to their topics' words, log ratio", LARGER
        ),
        above("embedding", "overlapping topics: cosine of ambiguous words with their topics' words, gap", 0.0),
        Criterion(
            "random",
            "random weights: the whole interval within 2 % of 1",
            lambda row: abs(row["measured"] - 1) + row["error"] <= 0.02,
        ),
        above("shuffled", "the ratio is larger than with shuffled topics", 0.0),
        near("values", "overlapping topics at N = ∞: class means of W_V", 0.02, decisive=False),
        below("sum", "the row of an ambiguous word is the sum of its topics' rows", 0.05, decisive=False),
        above("order", "words of one single topic are closer still than ambiguous words", 0.0, decisive=False),
    ),
    measure=measure,
    inputs=demo_inputs,
)
