"""Counts against loops, and all three ways of drawing data against the closed forms of the theory.

The closed forms are written out here, apart from the library's own theory, so that this stays an independent check.
"""

from itertools import combinations
from math import comb, log

import numpy as np
import pytest
import torch

from topicscope.errors import InputError
from topicscope.lab import CountTensors, ModelConfig, ReducedTransformer, start
from topicscope.synthetic import DocumentLaw, Masking, Population, count_tokens, sampled_counts
from topicscope.topics import TopicModel, Vocabulary

P = (0.15, 0.1, 0.1)
C3 = 1 / 0.865


def loss_of(counts, arrays, loss="squared", attention="uniform", bias=None) -> float:
    D = counts.inputs.shape[1]
    config = ModelConfig(value="fixed", attention=attention, bias="zero" if bias is None else "fixed")
    arrays = arrays | ({} if bias is None else {"b_pred": bias})
    model = ReducedTransformer(config, [start(config, D, arrays=arrays, dtype=torch.float64)])
    return model.data_loss(CountTensors.of([counts], torch.float64), loss)[0].item()


def topic_attention(T: int, v: int, alpha: float, beta: float) -> dict[str, np.ndarray]:
    """W_K, W_Q with weights α (same topic), β (same word), 1 elsewhere; [MASK] attends and is attended evenly."""
    scores = np.zeros((T * v + 1, T * v + 1))
    scores[1:, 1:] = log(alpha) * np.kron(np.eye(T), np.ones((v, v))) + (log(beta) - log(alpha)) * np.eye(T * v)
    return {"W_K": scores * np.sqrt(T * v + 1), "W_Q": np.eye(T * v + 1)}


def value_matrix(T: int, v: int, wc: float, o: float, s: float, d: float) -> np.ndarray:
    """Row 0 zero; [MASK] column wc; words: o different topic, s same topic, d diagonal."""
    W = np.full((T * v + 1, T * v + 1), float(o))
    W[1:, 1:] += (s - o) * np.kron(np.eye(T), np.ones((v, v))) + (d - s) * np.eye(T * v)
    W[0], W[1:, 0] = 0, wc
    return W


BLOCK = value_matrix(10, 10, 0.054190751445087, -0.0075867052023121, 0.10802023121387, 0.10802023121387)
DIAGONAL = value_matrix(10, 10, -0.0014450867052023, 0, 0, C3)


@pytest.mark.parametrize("by_query", [False, True])
@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize("specials", [False, True])
def test_counting_a_batch_is_counting_by_hand(by_query, weighting, specials) -> None:
    rng = np.random.default_rng(0)
    law = DocumentLaw(TopicModel.disjoint(3, 4), 2, (2, 9))
    masking = Masking(0.3, 0.3, 0.3, weighting, specials, hide_selected=specials)
    batch = masking.apply(rng, law.draw(rng, 8))
    counts = count_tokens(batch, masking.num_tokens(12), weighting, by_query=by_query)
    groups = {(d, q): targets for d, q, targets in zip(counts.document, counts.query, counts.targets, strict=True)}
    weights = batch.position_weights(weighting)
    expected: dict = {}
    for d in range(8):
        shown = [i for i, a in zip(batch.input_ids[d], batch.attendable[d], strict=True) if a]
        if shown:
            share = [shown.count(token) / len(shown) for token in range(masking.num_tokens(12))]
            np.testing.assert_allclose(counts.inputs[d], share, atol=1e-15)
        for j in np.flatnonzero(batch.selected[d]):
            key = (d, batch.input_ids[d, j] if by_query else 0)
            expected.setdefault(key, np.zeros(masking.num_tokens(12)))[batch.labels[d, j]] += weights[d, j]
    for key, target in groups.items():
        np.testing.assert_allclose(target, expected.get(key, 0), atol=1e-15)
    assert set(expected) <= set(groups)
    assert counts.targets.sum() == pytest.approx(1)


def uniform_loss(W: np.ndarray, b: np.ndarray, T: int, v: int, tau: int, p=P) -> float:
    """theory 1a: the exact loss of uniform attention at N = ∞."""
    p_m, p_c, p_r = p
    V, a, r, m = T * v, 1 - (1 - p_c) * p_m, p_m * p_r, p_m * (1 - p_c - p_r)
    kappa = (T - tau) / (tau * T * (T - 1))
    B = np.kron(np.eye(T), np.ones((v, 1)))
    A = a / v * W[:, 1:] @ B
    A[1:] -= B / v
    c = m * W[:, 0] + r / V * W[:, 1:].sum(1) + b
    A1 = A.sum(1)
    return 1 - 1 / (tau * v) + kappa * ((A**2).sum() - (A1**2).sum() / T) + ((A1 / T + c) ** 2).sum()


@pytest.mark.parametrize(("T", "v", "tau"), [(5, 4, 2), (4, 3, 1), (6, 2, 5), (3, 2, 3)])
def test_population_loss_of_any_matrix_is_the_closed_form(T, v, tau) -> None:
    rng = np.random.default_rng(T)
    W, b = rng.normal(size=(T * v + 1,) * 2), rng.normal(size=T * v + 1)
    topics = TopicModel.disjoint(T, v)
    counts = Population(topics, tau, Masking(*P)).next_counts(by_query=False)
    assert loss_of(counts, {"W_V": W}, bias=b) == pytest.approx(uniform_loss(W, b, T, v, tau), rel=1e-12)
    # Zero scores: the counts by query say the same.
    by_query = Population(topics, tau, Masking(*P)).next_counts(by_query=True)
    zero = {"W_V": W, "W_K": np.zeros_like(W), "W_Q": np.zeros_like(W)}
    assert loss_of(by_query, zero, attention="trained", bias=b) == pytest.approx(
        uniform_loss(W, b, T, v, tau), rel=1e-12
    )
    assert abs(uniform_loss(W, b, T, v, tau) - uniform_loss(W, b, T, v, tau, (0.2, 0.1, 0.1))) > 1e-3


@pytest.mark.parametrize(
    ("W", "alpha", "beta", "expected"),
    [
        (BLOCK, 1, 1, 0.95),
        (BLOCK, 5, 5, 0.94611613235512),
        (DIAGONAL, 1e-300, 20, 0.87417662338949),
        (DIAGONAL, 0.87387875221594, 57.094386554011, 0.8709157170779998),
    ],
)
def test_population_loss_of_topic_wise_attention_is_the_reference_value(W, alpha, beta, expected) -> None:
    counts = Population(TopicModel.disjoint(10, 10), 2, Masking(*P)).next_counts(by_query=True)
    arrays = {"W_V": W, **topic_attention(10, 10, alpha, beta)}
    assert loss_of(counts, arrays, attention="trained") == pytest.approx(expected, abs=2e-13)


def test_the_ridge_is_flat_and_its_optimum_a_minimum() -> None:
    counts = Population(TopicModel.disjoint(10, 10), 2, Masking(*P)).next_counts(by_query=True)

    def block(alpha, beta):
        return loss_of(counts, {"W_V": BLOCK, **topic_attention(10, 10, alpha, beta)}, attention="trained")

    best = 5.7629127958366
    assert block(best, best) == pytest.approx(0.9461027399915445, abs=1e-13)
    assert block((10 * best - 2) / 9, 2.0) == pytest.approx(0.9461027399915445, abs=1e-13)
    assert min(block(best * 1.02, best), block(best * 0.98, best)) > 0.9461027399915445 + 1e-9


def test_population_of_overlapping_topics_by_hand() -> None:
    topics = TopicModel.normalised(np.array([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 2]]), Vocabulary.numbered(4))
    p_m, p_c, p_r = 0.3, 0.2, 0.4
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(5, 5)), rng.normal(size=5)
    K, Q = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))
    for loss in ("squared", "cross-entropy"):
        total = 0.0
        for S in combinations(range(3), 2):
            p = np.concatenate([[0], topics.phi[list(S)].mean(axis=0)])
            u = np.array([0, 0.25, 0.25, 0.25, 0.25])
            e0 = np.eye(5)[0]
            x = (1 - p_m) * p + p_m * (p_c * p + p_r * u + (1 - p_c - p_r) * e0)
            for label in range(1, 5):
                shown = p_c * np.eye(5)[label] + p_r * u + (1 - p_c - p_r) * e0
                for query in range(5):
                    A = x * np.exp((K.T @ Q)[:, query] / np.sqrt(5))
                    z = W @ (A / A.sum()) + b
                    each = (
                        ((z - np.eye(5)[label]) ** 2).sum() if loss == "squared" else np.log(np.exp(z).sum()) - z[label]
                    )
                    total += p[label] * shown[query] * each / 3
        counts = Population(topics, 2, Masking(p_m, p_c, p_r)).next_counts(by_query=True)
        found = loss_of(counts, {"W_V": W, "W_K": K, "W_Q": Q}, loss, "trained", b)
        assert found == pytest.approx(total, rel=1e-12)


def test_too_many_subsets_are_refused_with_their_number() -> None:
    with pytest.raises(InputError, match=f"{comb(40, 10):,}"):
        Population(TopicModel.disjoint(40, 2), 10, Masking(*P)).next_counts(by_query=False)


def finite_matrix() -> tuple[np.ndarray, float]:
    """theory 4.1 at (10, 10, 2), N = 100, per-document weighting."""
    h, g = 1.138989245896, 0.113636364992
    off = 1 / 100 - h / 100
    return value_matrix(10, 10, 1 / 100, off, off + (h - g) / 10, off + (h - g) / 10 + g), 0.950431750439


SETS = [
    (finite_matrix()[0], "uniform", {}, finite_matrix()[1]),
    (BLOCK, "trained", topic_attention(10, 10, 1, 1), 0.950809191791),
    (BLOCK, "trained", topic_attention(10, 10, 5, 2), 0.947005022249),
    (DIAGONAL, "trained", topic_attention(10, 10, 1e-300, 20), 0.888017936987),
]


@pytest.mark.parametrize("how", ["tokens", "counts"])
@pytest.mark.parametrize(("W", "attention", "arrays", "expected"), SETS, ids=["optimum", "even", "block", "diagonal"])
def test_finite_documents_have_the_exact_expected_loss(how, W, attention, arrays, expected) -> None:
    """N = 100, per document: the mean loss over fresh documents within 4 standard errors of the exact values."""
    law, masking = DocumentLaw(TopicModel.disjoint(10, 10), 2, 100), Masking(*P)
    rng = np.random.default_rng(5)
    by_query = attention == "trained"
    losses = []
    for _ in range(24):
        if how == "tokens":
            batch = masking.apply(rng, law.draw(rng, 250))
            counts = count_tokens(batch, 101, "document", by_query=by_query)
        else:
            counts = sampled_counts(rng, law, masking, 250, by_query=by_query)
        losses.append(loss_of(counts, {"W_V": W, **arrays}, attention=attention))
    error = np.std(losses, ddof=1) / np.sqrt(24)
    assert abs(np.mean(losses) - expected) < 4 * error
    assert error < 0.0015


@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize(("specials", "hidden"), [(False, False), (True, False), (True, True)])
def test_counts_drawn_at_once_have_the_law_of_counted_tokens(weighting, specials, hidden) -> None:
    """Short documents, where everything varies: means of inputs and of targets by (query, label) agree."""
    law = DocumentLaw(TopicModel.disjoint(2, 2), 1, (1, 5))
    masking = Masking(0.4, 0.3, 0.3, weighting, specials, hidden)
    rng = np.random.default_rng(6)
    D, n = masking.num_tokens(4), 40_000
    tokens = count_tokens(masking.apply(rng, law.draw(rng, n)), D, weighting, by_query=True)
    drawn = sampled_counts(rng, law, masking, n, by_query=True)
    tables = []
    for counts in (tokens, drawn):
        table = np.zeros((D, D))
        np.add.at(table, counts.query, counts.targets)
        tables.append(np.concatenate([table.ravel(), counts.inputs.mean(axis=0), (counts.inputs**2).mean(axis=0)]))
        assert counts.targets.sum() == pytest.approx(1)
    np.testing.assert_allclose(*tables, atol=4.5 * np.sqrt(0.3 / n))
    assert (tables[0] > 0.01).sum() >= 2 * D


def test_long_documents_drawn_as_counts_approach_the_population() -> None:
    topics, masking = TopicModel.disjoint(4, 3), Masking(*P)
    exact = Population(topics, 2, masking).next_counts(by_query=True)
    drawn = sampled_counts(np.random.default_rng(7), DocumentLaw(topics, 2, 10_000_000), masking, 60, by_query=True)
    whole = {(frozenset(np.flatnonzero(x[1:] > 0.02)), q): (x, t / t.sum())
             for x, q, t in zip(exact.inputs[exact.document], exact.query, exact.targets, strict=True)}  # fmt: skip
    for d, q, t in zip(drawn.document, drawn.query, drawn.targets, strict=True):
        x, target = whole[frozenset(np.flatnonzero(drawn.inputs[d][1:] > 0.02)), q]
        np.testing.assert_allclose(drawn.inputs[d], x, atol=1e-3)
        np.testing.assert_allclose(t / t.sum(), target, atol=0.02)


def test_hidden_positions_at_infinity_are_gone_from_the_inputs() -> None:
    counts = Population(TopicModel.disjoint(3, 2), 2, Masking(*P, hide_selected=True)).next_counts(by_query=False)
    np.testing.assert_allclose(counts.inputs, counts.targets * 3, atol=1e-15)
