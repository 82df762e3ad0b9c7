"""Knowl 5 by training, against theory.md 3 written again here."""

from math import comb

import numpy as np
import pytest

from lab.laboratory import Rates, run
from topicscope.lab import make_recipe, train

G = Rates(5, 4, 2)
F1, F2 = G.a / (G.tau * G.v) + G.r / G.V, G.r / G.V
SMALL_DATA = {"num_topics": 5, "words_per_topic": 4, "topics_per_document": 2, "source": "population"}


def value_gradient() -> float:
    """‖∂L/∂W_V‖ at zero."""
    g = G
    return float(2 * np.sqrt(g.m**2 / g.V + (g.T - 1) * (g.a * g.kappa / g.v) ** 2 + ((1 - g.m) / g.V) ** 2))


def key_gradient(sigma) -> float:
    """Root mean square of ‖∂L/∂W_K‖ over starts of every matrix from N(0, σ²)."""
    g, total = G, 0.0
    for h in range(g.tau + 1):
        rest = g.T - 2 * g.tau + h
        if rest < 0:
            continue
        weight = comb(g.tau, h) * comb(g.T - g.tau, g.tau - h) / comb(g.T, g.tau)
        D = g.m**2 + h * g.v * F1**2 + 2 * (g.tau - h) * g.v * F1 * F2 + rest * g.v * F2**2
        E3 = g.m**3 + h * g.v * F1**3 + (g.tau - h) * g.v * (F1**2 * F2 + F1 * F2**2) + rest * g.v * F2**3
        shown = g.p_c**2 + 2 * g.p_c * g.p_r / g.V + g.p_r**2 / g.V + g.p_0**2
        total += 4 * weight * (D - 2 * E3 + D * D) * h / (g.tau**2 * g.v) * shown
    return float(sigma**2 * np.sqrt(total))


def stage_one(k, rate):
    """W_V after k steps of gradient descent of rate η from 0: theory.md 3 with (1-2λη)^k for e^(-2λt)."""
    g = G
    lambda0, lambda1 = g.m**2 + (1 - g.m) ** 2 / g.V, g.a**2 * g.kappa / g.v
    mean = np.append(g.m, np.full(g.V, (1 - g.m) / g.V))
    words = np.append(0.0, np.ones(g.V))
    B = np.vstack([np.zeros(g.T), np.kron(np.eye(g.T), np.ones((g.v, 1)))])
    grown = [1 - (1 - 2 * value * rate) ** k for value in (lambda0, lambda1)]
    contrast = B @ B.T - np.outer(words, words) / g.T
    return grown[0] * np.outer(words, mean) / (g.V * lambda0) + grown[1] / (g.a * g.v) * contrast


def test_the_ratio_of_the_first_gradients() -> None:
    record = run("two-stages-population", "training.steps=1", seeds=40)
    first = record.history[record.history.step == 0]
    measured = first["W_V_grad"].mean() / np.sqrt((first["W_K_grad"] ** 2).mean())
    assert measured == pytest.approx(value_gradient() / key_gradient(0.001), rel=0.1)
    # The prediction is about the start: another σ gives another ratio.
    assert measured != pytest.approx(value_gradient() / key_gradient(0.002), rel=0.5)


def test_stage_one_from_zero_is_exact_at_every_step() -> None:
    for rate, steps in ((1.0, 7), (1.0, 300), (10.0, 50)):
        recipe = make_recipe(
            {
                "data": SMALL_DATA,
                "model": {"attention": "uniform", "sigma": 0.0},
                "training": {"loss": "squared", "optimizer": "sgd", "learning_rate": rate, "steps": steps}
                | {"dtype": "float64"},
            }
        )
        W_V = train(recipe).weights["W_V"][0]
        np.testing.assert_allclose(W_V, stage_one(steps, rate), atol=1e-10)
        assert np.abs(W_V - stage_one(steps + 1, rate)).max() > 1e-10  # one step more is another matrix


@pytest.mark.parametrize("steps", [20, 60, 100])
def test_stage_one_from_a_small_random_start(steps) -> None:
    record = run("two-stages-population", "training.learning_rate=1.0", f"training.steps={steps}")
    expected = stage_one(steps, 1.0)
    for W_V in record.weights["W_V"]:
        assert np.linalg.norm(W_V - expected) <= 0.03 * np.linalg.norm(expected)
        assert np.linalg.norm(W_V - stage_one(2 * steps, 1.0)) > 0.03 * np.linalg.norm(expected)


def test_attention_grows_at_the_predicted_rate_after_the_values_have_settled() -> None:
    record = run("two-stages-population", "training.steps=1500", "history.documents=10")
    rho = 2 * G.p_c * F1 / G.a * (1 - 1 / G.tau) / (G.v * (G.T - 1) * np.sqrt(8))
    for _, rows in record.history.groupby("seed"):
        grown = rows["W_K_norm"] / rows["W_K_norm"].iloc[0]
        chosen = rows[(grown >= 3) & (grown <= 10)]
        assert len(chosen) > 10
        rate = np.polyfit(10.0 * chosen["step"], np.log(chosen["W_K_norm"]), 1)[0]
        assert rate == pytest.approx(rho, rel=0.1)
    assert all(stages["separated"] and stages["stage_two_reached"] for stages in record.summary["stages"])


def test_sampled_documents_show_stage_one_while_attention_rests() -> None:
    record = run("two-stages", "training.steps=400", "history.documents=20")
    rows = record.history[record.history.step == 400]
    assert (rows["W_V_change"] > 3).all()
    assert (rows["W_K_change"] < 0.05 * rows["W_K_norm"]).all()
    assert all(stages["separated"] and not stages["stage_two_reached"] for stages in record.summary["stages"])


@pytest.mark.long
def test_sampled_documents_show_both_stages() -> None:
    record = run("two-stages")
    for stages in record.summary["stages"]:
        assert stages["separated"]
        assert stages["stage_two_reached"]
        assert stages["ratio"] >= 4.7
        assert 1000 < stages["k2"] < 6000


@pytest.mark.parametrize("steps", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_adam_with_cross_entropy_shows_no_separation(steps) -> None:
    record = run("one-stage-adam", f"training.steps={steps}", "history.documents=20")
    assert not any(stages["separated"] for stages in record.summary["stages"])
    assert [stages["ratio"] for stages in record.summary["stages"]] == [1.0] * 3


@pytest.mark.long
def test_gradient_descent_with_cross_entropy_shows_no_separation() -> None:
    how = ("training.optimizer=sgd", "training.learning_rate=1.0", "training.steps=2000", "history.every=50")
    for stages in run("one-stage-adam", *how).summary["stages"]:
        assert not stages["separated"]
        assert stages["stage_two_reached"]
        assert 1.0 <= stages["ratio"] < 1.5
