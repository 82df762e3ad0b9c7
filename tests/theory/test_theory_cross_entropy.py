"""Cross-entropy under uniform attention: the three-parameter optimum against the full convex problem."""

import numpy as np
import pytest
from scipy.optimize import minimize

from topicscope import theory
from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory import enumerated_loss
from topicscope.theory.enumeration import document_types


@pytest.mark.parametrize("setting", [Setting(4, 3, 2, 0.15, 0.1, 0.1), Setting(3, 2, 3, 0.3, 0.2, 0.2)])
@pytest.mark.parametrize("ridge", [0.01, 0.3])
def test_objective_by_enumeration(setting: Setting, ridge: float) -> None:
    best = theory.uniform_cross_entropy_optimum(setting, ridge)
    W = best.matrix(setting)
    cross_entropy = enumerated_loss(setting, W, loss="cross_entropy")
    assert cross_entropy == pytest.approx(best.cross_entropy, rel=1e-12)
    assert cross_entropy + ridge * np.sum(W**2) == pytest.approx(best.objective, rel=1e-12)


def test_no_matrix_does_better() -> None:
    """Minimise over all (V+1)² entries from a random start."""
    s, ridge = Setting(3, 2, 2, 0.15, 0.1, 0.1), 0.01
    types = document_types(s)
    inputs = []
    for _, p in types:
        x = s.a * p + s.r / 6
        x[0] = s.m
        inputs.append(x)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(7, 7)
        value, gradient = ridge * np.sum(W**2), 2 * ridge * W
        for (probability, p), x in zip(types, inputs, strict=True):
            logits = W @ x
            log_sum = np.logaddexp.reduce(logits)
            value += probability * (log_sum - p @ logits)
            gradient = gradient + probability * np.outer(np.exp(logits - log_sum) - p, x)
        return float(value), gradient.ravel()

    start = np.random.default_rng(0).normal(size=49)
    result = minimize(objective, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    best = theory.uniform_cross_entropy_optimum(s, ridge)
    assert result.fun == pytest.approx(best.objective, rel=1e-9)
    assert result.x.reshape(7, 7) == pytest.approx(best.matrix(s), abs=1e-3)
    assert np.abs(objective(best.matrix(s).ravel())[1]).max() < 1e-9


def test_the_infimum_is_approached_and_the_topic_direction_diverges() -> None:
    s = Setting(4, 3, 2, 0.15, 0.1, 0.1)
    optima = [theory.uniform_cross_entropy_optimum(s, ridge) for ridge in (1e-2, 1e-6, 1e-10)]
    above = [best.cross_entropy - np.log(6) for best in optima]
    assert above[0] > above[1] > above[2] > 0
    assert above[2] < 1e-5
    assert optima[0].eta < optima[1].eta < optima[2].eta


def test_a_single_topic() -> None:
    best = theory.uniform_cross_entropy_optimum(Setting(1, 3, 1, 0.15, 0.1, 0.1), 0.01)
    assert best.eta == 0
    assert best.cross_entropy > np.log(3)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="ridge"):
        theory.uniform_cross_entropy_optimum(Setting(4, 3, 2, 0.15, 0.1, 0.1), 0.0)
    with pytest.raises(InputError, match="infinite documents"):
        theory.uniform_cross_entropy_optimum(Setting(4, 3, 2, 0.15, 0.1, 0.1, 10), 0.1)
    with pytest.raises(InputError, match="unknown loss"):
        # Unwrapped, since `make test-types` would refuse the name before it is looked at.
        getattr(theory.bayes_loss, "__wrapped__", theory.bayes_loss)(Setting(4, 3, 2, 0.15, 0.1, 0.1), "hinge")
