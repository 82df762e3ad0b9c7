"""Theorem 1 by training: its conditions hold for what gradient descent finds, and fail before."""

import numpy as np
import pytest

from lab.laboratory import Rates, run

G = Rates(10, 10, 2)
PLAIN = "data.source=population"


def deviations(W_E, g=G):
    """Largest violation times a of each of Theorem 1's conditions, and the gap (self-pairs included); from E alone."""
    E = W_E.T @ W_E
    sums = E[:, 1:].reshape(g.V + 1, g.T, g.v).sum(2)
    own = np.repeat(np.eye(g.T, dtype=bool), g.v, axis=0)
    u = np.where(own, 0, sums[1:]).sum(1) / (g.T - 1) / g.v
    u0 = sums[0].mean() / g.v
    c2 = 1 / g.m - 1
    worst = [
        abs(E[0, 0] + c2 * u0),
        np.abs(sums[0] - u0 * g.v).max(),
        np.abs(E[1:, 0] + c2 * u).max(),
        np.abs(sums[1:] - u[:, None] * g.v - own / g.a).max(),
    ]
    gap = sums[1:][own].mean() / g.v - sums[1:][~own].mean() / g.v
    return max(worst) * g.a, gap


def satisfies_theorem_1(W_E) -> bool:
    worst, gap = deviations(W_E)
    return bool(worst <= 0.02 and abs(gap * G.a * G.v - 1) <= 0.02)


@pytest.mark.parametrize(
    "how",
    [
        ("training.optimizer=adam", "training.learning_rate=0.01", "training.steps=250"),
        ("training.optimizer=sgd", "training.learning_rate=1.0", "training.schedule=constant", "training.steps=600"),
    ],
)
def test_theorem_1_in_the_population(how) -> None:
    record = run("embeddings", *how)
    assert all(satisfies_theorem_1(W_E) for W_E in record.weights["W_E"])
    np.testing.assert_allclose(record.final["loss"], 1 - 1 / (G.tau * G.v), atol=1e-5)
    assert (record.final["loss"] >= 1 - 1 / (G.tau * G.v) - 1e-12).all()  # the bound that nothing can beat


def test_plain_gradient_descent_needs_more_than_250_steps() -> None:
    record = run("embeddings", "training.optimizer=sgd", "training.learning_rate=1.0", "training.steps=250")
    assert not any(satisfies_theorem_1(W_E) for W_E in record.weights["W_E"])


def test_an_untrained_net_fails_the_same_check() -> None:
    for sigma in (0.05, 0.2):
        untrained = run("embeddings", "training.steps=1", "training.learning_rate=1e-12", f"model.sigma={sigma}")
        assert not any(satisfies_theorem_1(W_E) for W_E in untrained.weights["W_E"])


def test_theorem_1_from_sampled_documents_needs_a_decayed_rate() -> None:
    sampled = ("data.source=counts", "data.length=20000", "training.dtype=float32", "training.steps=250")
    decayed = run("embeddings", *sampled)
    assert all(satisfies_theorem_1(W_E) for W_E in decayed.weights["W_E"])
    constant = run("embeddings", *sampled, "training.schedule=constant")
    assert not any(satisfies_theorem_1(W_E) for W_E in constant.weights["W_E"])


def test_below_full_rank() -> None:
    record = run("embeddings-low-rank", "training.steps=600")
    excess = record.final["loss"] - (1 - 1 / (G.tau * G.v))
    np.testing.assert_allclose(excess, (G.T - 5) * G.kappa / G.v, rtol=0.05)
    gaps = [deviations(W_E)[1] for W_E in record.weights["W_E"]]
    np.testing.assert_allclose(gaps, (5 - 1) / ((G.T - 1) * G.a * G.v), rtol=0.02)


def test_the_order_of_distinct_words_is_the_starts_doing_not_the_theorems() -> None:
    """distinct same - different = (1/a - (diagonal - different))/(v-1) at every optimum; the start decides its sign."""
    wide = ("model.width=60", "training.optimizer=sgd", "training.learning_rate=1.0", "training.schedule=constant")
    near_zero, large = (run("embeddings", *wide, "training.steps=1200", f"model.sigma={s}").final for s in (0.05, 0.2))
    for final in (near_zero, large):
        np.testing.assert_allclose(final["loss"], 0.95, atol=1e-7)
        predicted = (1 / G.a - (final["E_diagonal"] - final["E_different"])) / (G.v - 1)
        np.testing.assert_allclose(final["E_same"] - final["E_different"], predicted, atol=1e-4)
    assert (near_zero["E_same"] > near_zero["E_different"] + 0.05).all()
    assert (large["E_same"] < large["E_different"] - 0.05).all()


@pytest.mark.parametrize(
    "how",
    [
        ("training.optimizer=adam", "training.learning_rate=0.01", "training.steps=200"),
        ("training.optimizer=sgd", "training.learning_rate=1.0", "training.steps=400"),
    ],
)
def test_cross_entropy_brings_distinct_words_of_a_topic_together(how) -> None:
    record = run("embeddings-cross-entropy", "data.length=100", "model.sigma=0.1", *how)
    final, first = record.final, record.history[record.history.step == 0]
    spread = final["E_diagonal"]
    assert (final["E_same"] - final["E_different"] > 0.3 * spread).all()
    assert (np.abs(first["E_same"] - first["E_different"]) < 0.05 * first["E_diagonal"]).all()
