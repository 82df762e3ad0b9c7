"""Documents follow their law: topic proportions, words given topics, lengths."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, dirichlet_multinomial

from topicscope.errors import InputError
from topicscope.synthetic import DocumentLaw, Masking
from topicscope.synthetic import documents as module
from topicscope.synthetic.documents import bernoulli
from topicscope.topics import TopicModel, Vocabulary


def frequencies(words: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(words[words <= size] - 1, minlength=size)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda w: sum(w) > 1e-3))
def test_alias_tables_hold_exactly_the_given_probabilities(weights) -> None:
    """Exact, no sampling: a column is chosen with 1/n and then kept or redirected."""
    phi = np.array([weights]) / np.sum(weights)
    table = module._WordTable(phi)
    implied = np.zeros(len(weights))
    n = int(table.sizes[0])
    for column in range(n):
        implied[table.words[0, column] - 1] += table.keep[0, column] / n
        implied[table.alias[0, column] - 1] += (1 - table.keep[0, column]) / n
    np.testing.assert_allclose(implied, phi[0], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_word_frequencies_of_an_uneven_topic_model(seed) -> None:
    weights = np.array([[5.0, 1, 0, 0, 2], [0, 0, 3, 1, 1]])
    model = TopicModel.normalised(weights, Vocabulary.numbered(5))
    law = DocumentLaw(model, topics_per_document=1, length=40)
    words = law.draw(np.random.default_rng(seed), 4000).words.reshape(4000, 40)
    firsts = np.isin(words, (1, 2)).any(axis=1)
    for topic, documents in ((0, words[firsts]), (1, words[~firsts])):
        counts = frequencies(documents, 5)
        support = model.phi[topic] > 0
        assert not counts[~support].any()
        assert chisquare(counts[support], counts.sum() * model.phi[topic, support]).pvalue > 1e-4
        assert chisquare(counts[support], np.full(3, counts.sum() / 3)).pvalue < 1e-6


def test_words_are_exchangeable_inside_a_document() -> None:
    law = DocumentLaw(TopicModel.disjoint(4, 3), topics_per_document=2, length=10)
    rng = np.random.default_rng(0)
    words = Masking(0.15, 0.1, 0.1).apply(rng, law.draw(rng, 20_000)).labels
    for position in (0, 9):
        assert chisquare(frequencies(words[:, position], 12)).pvalue > 1e-4
    same = ((words[:, 0] - 1) // 3 == (words[:, 1] - 1) // 3).mean()
    far = ((words[:, 0] - 1) // 3 == (words[:, 9] - 1) // 3).mean()
    assert abs(same - 0.5) < 4 * 0.5 / np.sqrt(20_000)
    assert abs(far - 0.5) < 4 * 0.5 / np.sqrt(20_000)


@pytest.mark.parametrize(("T", "tau"), [(5, 2), (5, 5), (10, 1), (40, 3)])
def test_tau_uniform_proportions_have_the_second_moment_kappa(T, tau) -> None:
    law = DocumentLaw(TopicModel.disjoint(T, 2), tau, 50)
    theta = law.proportions(np.random.default_rng(1), 60_000)
    assert set(np.unique(theta)) <= {0.0, 1 / tau}
    np.testing.assert_allclose(theta.sum(axis=1), 1)
    kappa = (T - tau) / (tau * T * (T - 1))
    expected = kappa * np.eye(T) + (1 / T - kappa) / T
    np.testing.assert_allclose(theta.T @ theta / len(theta), expected, atol=5 / tau / np.sqrt(60_000 * T))


def test_dirichlet_proportions_have_their_moments() -> None:
    model = TopicModel.disjoint(4, 2, alpha=0.1)
    theta = DocumentLaw(model).proportions(np.random.default_rng(2), 60_000)
    np.testing.assert_allclose(theta.mean(axis=0), 0.25, atol=0.01)
    # var θ_k = (1/T)(1-1/T)/(1 + Σ alpha)
    np.testing.assert_allclose(theta.var(axis=0), 0.25 * 0.75 / 1.4, rtol=0.02)


def compositions(total: int, parts: int):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        yield from ((first, *rest) for rest in compositions(total - first, parts - 1))


@pytest.mark.parametrize("alpha", [[0.1, 0.1, 0.1], [0.3, 1.5, 0.6], [4.0, 4.0, 4.0]])
@pytest.mark.parametrize("length", [4, (2, 6)])
def test_dirichlet_documents_have_the_dirichlet_multinomial_law(alpha, length) -> None:
    """One word a topic, so that words show topics: all counts against N!/Πn! Γ(c)/Γ(c+N) Π Γ(α+n)/Γ(α)."""
    law = DocumentLaw(TopicModel(np.eye(3), np.array(alpha), Vocabulary.numbered(3)), None, length)
    drawn = law.draw(np.random.default_rng(5), 60_000)
    counts = np.bincount(3 * drawn.owner() + drawn.words - 1, minlength=180_000).reshape(-1, 3)
    for N in set(drawn.lengths.tolist()):
        mine = counts[drawn.lengths == N]
        kinds = list(compositions(N, 3))
        chance = [dirichlet_multinomial.pmf(kind, alpha, N) for kind in kinds]
        seen = Counter(map(tuple, mine.tolist()))
        observed = np.array([seen[kind] for kind in kinds])
        assert chisquare(observed, len(mine) * np.array(chance)).pvalue > 1e-4
        other = np.array([dirichlet_multinomial.pmf(kind, np.array(alpha) / 4, N) for kind in kinds])
        assert chisquare(observed, len(mine) * other).pvalue < 1e-6


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 1 - 1e-9, 1.0, 1 / 65536, 0.15])
def test_yes_or_no_draws_have_their_probability(p) -> None:
    drawn = bernoulli(np.random.default_rng(0), 700_000, np.array([p, 0.3]))
    for column, chance in ((0, p), (1, 0.3)):
        mean = drawn[:, column].mean()
        assert abs(mean - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / 700_000) + 1e-8
    assert abs(np.corrcoef(drawn[:-1, 1], drawn[1:, 1])[0, 1]) < 5 / np.sqrt(700_000)


def test_the_bits_after_the_sixteenth_count() -> None:
    """Given that sixteen bits are p's own, here 1000 of 65536, what is left of p decides: a quarter."""

    class Undecided(np.random.Generator):
        def integers(self, low, high, size, dtype):
            return np.full(4 * size, 1000, dtype=np.uint16).view(np.uint64)

    drawn = bernoulli(Undecided(np.random.PCG64(1)), 100_000, np.array([1000.25 / 65536]))
    assert abs(drawn.mean() - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / 100_000)


def test_lengths_fill_the_range() -> None:
    law = DocumentLaw(TopicModel.disjoint(3, 4), 2, (3, 7))
    documents = law.draw(np.random.default_rng(4), 2000)
    assert chisquare(np.bincount(documents.lengths)[3:]).pvalue > 1e-4
    assert len(documents.words) == documents.lengths.sum()
    np.testing.assert_array_equal(np.bincount(documents.owner()), documents.lengths)
    assert documents.words.min() == 1
    assert documents.words.max() == 12
    assert len(law.draw(np.random.default_rng(4), 0)) == 0


def test_the_same_seed_gives_the_same_documents_and_another_seed_others() -> None:
    law = DocumentLaw(TopicModel.disjoint(3, 4))
    one, two, other = (law.draw(np.random.default_rng(s), 5).words for s in (7, 7, 8))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "change", [{"topics_per_document": 0}, {"topics_per_document": 4}, {"length": 0}, {"length": (5, 4)}]
)
def test_impossible_laws_are_refused(change) -> None:
    with pytest.raises(InputError):
        DocumentLaw(TopicModel.disjoint(3, 4), **change)


def test_unequal_and_overlapping_topics() -> None:
    unequal = TopicModel.unequal([1, 3])
    np.testing.assert_allclose(unequal.phi, [[1, 0, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3]])
    ring = TopicModel.overlapping(3, 3, 1)
    assert len(ring.vocabulary) == 6
    np.testing.assert_array_equal((ring.phi > 0).sum(axis=0), [2, 1, 2, 1, 2, 1])
    np.testing.assert_allclose(TopicModel.overlapping(3, 4, 0).phi, TopicModel.disjoint(3, 4).phi)
    for bad in (
        lambda: TopicModel.unequal([2, 0]),
        lambda: TopicModel.unequal([]),
        lambda: TopicModel.overlapping(3, 3, 2),
    ):
        with pytest.raises(InputError):
            bad()


def test_linked_topics_come_together_and_one_at_a_time() -> None:
    """E θθᵀ of the linked law against a sample, and against a slow twin that averages a topic with its partner."""
    alpha = (0.1, 0.4, 0.2, 0.3, 0.5)  # an odd number: the last topic has no partner
    model = TopicModel.unequal((3, 2, 4, 3, 2), alpha)
    law = DocumentLaw(model, linked=0.7)
    theta = law.proportions(np.random.default_rng(0), 200_000)
    assert np.abs(theta.sum(axis=1) - 1).max() < 1e-12
    together = np.abs(theta[:, 0] - theta[:, 1]) < 1e-12
    assert (together == (np.abs(theta[:, 2] - theta[:, 3]) < 1e-12)).mean() > 0.99  # the same documents
    assert together.mean() == pytest.approx(0.7, abs=0.01)
    assert theta.mean(axis=0)[4] == pytest.approx(0.5 / 1.5, abs=0.005)
    plain = DocumentLaw(model).proportions(np.random.default_rng(1), 200_000)
    second = plain.T @ plain / len(plain)
    twin = 0.3 * second
    for row in range(5):
        for column in range(5):
            rows = [row] if row == 4 else [row, row ^ 1]
            columns = [column] if column == 4 else [column, column ^ 1]
            twin[row, column] += 0.7 * np.mean([[second[i, j] for j in columns] for i in rows])
    assert law.second_moment(second) == pytest.approx(twin, abs=1e-12)
    assert theta.T @ theta / len(theta) == pytest.approx(twin, abs=0.004)
    assert DocumentLaw(model).second_moment(second) == pytest.approx(second, abs=0)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_an_impossible_link_is_refused(share) -> None:
    with pytest.raises(InputError, match="linked"):
        DocumentLaw(TopicModel.disjoint(4, 3), linked=share)


def test_one_alpha_a_topic() -> None:
    model = TopicModel.disjoint(3, 2, (0.1, 0.2, 0.3))
    assert model.alpha.tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(InputError, match="one a topic"):
        TopicModel.disjoint(3, 2, (0.1, 0.2))
