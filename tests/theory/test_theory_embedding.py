"""Theorem 1: the optimum, its low-rank form, and what its same-topic average does not imply."""

import numpy as np
import pytest
from scipy.optimize import minimize

from topicscope import theory
from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory import enumerated_loss
from topicscope.theory.embedding import embedding_gradient

S = Setting(4, 2, 2, 0.3, 0.2, 0.25)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 6])
def test_excess_and_gap_at_every_dimension(dimension: int) -> None:
    best = theory.embedding_optimum(S, dimension)
    E = best.embedding.T @ best.embedding
    assert best.embedding.shape == (dimension, 9)
    exact = enumerated_loss(S, E, theory.embedding_bias(S))
    assert best.loss == pytest.approx(exact, rel=1e-12)
    assert exact - (1 - 1 / 4) == pytest.approx(best.excess, abs=1e-13)
    conditions = theory.embedding_conditions(S, E)
    assert conditions.gap == pytest.approx(best.gap, abs=1e-13)
    assert (conditions.residual < 1e-12) == (dimension >= 4)


@pytest.mark.parametrize(("dimension", "free_bias"), [(1, False), (2, False), (2, True), (3, True), (5, False)])
def test_no_search_finds_less(dimension: int, free_bias: bool) -> None:
    """Quasi-Newton descent from random starts reaches the claimed loss and never less."""
    claimed = theory.embedding_optimum(S, dimension)
    excess = claimed.excess_free_bias if free_bias else claimed.excess
    shape = (dimension, 9)
    exact = theory.moments(S)

    def unpack(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        W_E = x[: dimension * 9].reshape(shape)
        return W_E, x[dimension * 9 :] if free_bias else theory.embedding_bias(S)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        W_E, b = unpack(x)
        G = exact.gradient(W_E.T @ W_E, b)
        slope = [(W_E @ (G + G.T)).ravel()]
        if free_bias:
            slope.append(2 * (W_E.T @ W_E @ exact.input_mean - exact.target_mean + b))
        return exact.loss(W_E.T @ W_E, b), np.concatenate(slope)

    rng = np.random.default_rng(dimension)
    found = []
    for _ in range(6):
        start = 0.5 * rng.normal(size=dimension * 9 + (9 if free_bias else 0))
        result = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-15})
        found.append(result.fun - 3 / 4)
    assert min(found) > excess - 1e-9
    assert min(found) == pytest.approx(excess, abs=1e-6)


def test_gradient_against_differences() -> None:
    rng = np.random.default_rng(0)
    W_E = rng.normal(size=(3, 9))
    direction = rng.normal(size=(3, 9))
    losses = [theory.embedding_loss(S, W_E + h * direction) for h in (-1e-4, 1e-4)]
    slope = float((embedding_gradient(S, W_E) * direction).sum())
    assert (losses[1] - losses[0]) / 2e-4 == pytest.approx(slope, rel=1e-6)


def test_symmetry_ties_the_constants_of_theorem_1_together() -> None:
    """E_00 = e ≥ 0 forces u_0 = -e/c2 and a mean u of e/c2² in every topic."""
    c2 = 1 / S.m - 1
    e = 0.7
    basis = theory.embedding_optimum(S, 4).embedding
    row = np.zeros((1, 9))
    row[0, 0], row[0, 1:] = np.sqrt(e), -np.sqrt(e) / c2
    W_E = np.vstack([basis, row])
    conditions = theory.embedding_conditions(S, W_E.T @ W_E)
    assert conditions.residual < 1e-12
    assert conditions.u[0] == pytest.approx(-e / c2)
    assert conditions.u[1:].reshape(4, 2).mean(axis=1) == pytest.approx(np.full(4, e / c2**2))
    assert theory.embedding_loss(S, W_E) == pytest.approx(3 / 4, abs=1e-13)


def test_an_optimum_in_which_distinct_same_topic_words_are_the_less_similar() -> None:
    s = Setting(4, 3, 2, 0.15, 0.1, 0.1)
    block = np.full((3, 3), (1 / s.a - 2 / s.a) / 2)
    np.fill_diagonal(block, 2 / s.a)
    E = np.zeros((13, 13))
    E[1:, 1:] = np.kron(np.eye(4), block)
    assert np.linalg.eigvalsh(E).min() > -1e-14
    assert theory.uniform_attention_loss(s, E, theory.embedding_bias(s)) == pytest.approx(5 / 6, abs=1e-14)
    conditions = theory.embedding_conditions(s, E)
    assert conditions.residual < 1e-14
    assert conditions.gap == pytest.approx(1 / (s.a * 3))
    assert conditions.distinct_gap == pytest.approx(-1 / (s.a * 2))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="dimension"):
        theory.embedding_optimum(S, 0)
    with pytest.raises(InputError, match="infinite documents"):
        theory.embedding_optimum(Setting(4, 2, 2, 0.3, 0.2, 0.25, 10), 4)
    with pytest.raises(InputError, match="shape"):
        theory.embedding_loss(S, np.ones((2, 5)))
