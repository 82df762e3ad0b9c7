"""Every fast loss against the slow twin, and against Monte Carlo where enumeration is out of reach."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from theory.theory_settings import finite_settings, infinite_settings, sampled_document
from topicscope import theory
from topicscope.synthetic import Setting
from topicscope.theory import ValueMatrixBlocks, enumerated_loss, topicwise_kernel, value_blocks
from topicscope.theory.enumeration import enumerated_bayes_loss

SLOW = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
FINITE = settings(SLOW, max_examples=25)


def random_predictor(setting: Setting, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    size = setting.vocabulary_size + 1
    return rng.normal(size=(size, size)), rng.normal(size=size)


@SLOW
@given(infinite_settings(), st.integers(0, 2**31))
def test_uniform_loss_of_infinite_documents(setting: Setting, seed: int) -> None:
    W, b = random_predictor(setting, seed)
    exact = enumerated_loss(setting, W, b)
    assert theory.uniform_attention_loss(setting, W, b) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    assert theory.moments(setting).loss(W, b) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    assert theory.uniform_attention_loss(setting, W) == pytest.approx(enumerated_loss(setting, W), rel=1e-12)


@FINITE
@given(finite_settings(), st.integers(0, 2**31))
def test_uniform_loss_of_finite_documents(setting: Setting, seed: int) -> None:
    W, b = random_predictor(setting, seed)
    exact = enumerated_loss(setting, W, b)
    assert theory.uniform_attention_loss(setting, W, b) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize("length", [None, 2])
def test_uniform_loss_of_dense_overlapping_topics(weighting: str, length: int | None) -> None:
    setting = Setting(3, 1, 2, 0.3, 0.2, 0.25, length, weighting)
    rng = np.random.default_rng(5)
    phi = rng.dirichlet(np.ones(4), size=3)
    W, b = rng.normal(size=(5, 5)), rng.normal(size=5)
    exact = enumerated_loss(setting, W, b, phi=phi)
    assert theory.moments(setting, phi).loss(W, b) == pytest.approx(exact, rel=1e-12)


def test_the_two_weightings_differ() -> None:
    W, b = random_predictor(Setting(2, 2, 1, 0.3, 0.2, 0.25), 0)
    losses = [enumerated_loss(Setting(2, 2, 1, 0.3, 0.2, 0.25, 3, w), W, b) for w in ("document", "token")]
    assert abs(losses[0] - losses[1]) > 1e-3


@SLOW
@given(
    infinite_settings(),
    st.floats(0, 20),
    st.floats(0.01, 50),
    st.sampled_from(["block", "diagonal"]),
    st.sampled_from(["squared", "cross_entropy"]),
)
def test_topicwise_loss_of_infinite_documents(s: Setting, alpha: float, beta: float, value: str, loss: str) -> None:
    W = value_blocks(s, value).matrix(s)
    exact = enumerated_loss(s, W, kernel=topicwise_kernel(s, alpha, beta), loss=loss)
    fast = theory.topicwise_attention_loss(s, alpha, beta, value, loss)
    assert fast == pytest.approx(exact, rel=1e-12, abs=1e-12)


@FINITE
@given(finite_settings(), st.floats(0, 20), st.floats(0.01, 50), st.sampled_from(["block", "diagonal"]))
def test_topicwise_loss_of_finite_documents(s: Setting, alpha: float, beta: float, value: str) -> None:
    W = value_blocks(s, value).matrix(s)
    exact = enumerated_loss(s, W, kernel=topicwise_kernel(s, alpha, beta))
    assert theory.topicwise_attention_loss(s, alpha, beta, value) == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_topicwise_loss_of_any_symmetric_value_matrix(length: int | None, seed: int) -> None:
    """Neither blocks nor a diagonal: every term of the formula counts."""
    s = Setting(3, 2, 1 + seed % 3, 0.3, 0.2, 0.25, length)
    blocks = ValueMatrixBlocks(*np.random.default_rng(seed).normal(size=4).tolist())
    exact = enumerated_loss(s, blocks.matrix(s), kernel=topicwise_kernel(s, 0.7, 3.0))
    assert theory.topicwise_attention_loss(s, 0.7, 3.0, blocks) == pytest.approx(exact, rel=1e-13)
    if length is None:
        entropy = enumerated_loss(s, blocks.matrix(s), kernel=topicwise_kernel(s, 0.7, 3.0), loss="cross_entropy")
        assert theory.topicwise_attention_loss(s, 0.7, 3.0, blocks, "cross_entropy") == pytest.approx(
            entropy, rel=1e-13
        )


@SLOW
@given(infinite_settings(), st.sampled_from(["squared", "cross_entropy"]))
def test_bayes_loss(setting: Setting, loss: str) -> None:
    assert theory.bayes_loss(setting, loss) == pytest.approx(enumerated_bayes_loss(setting, loss), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("value", ["block", "diagonal"])
@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize("length", [1, 7, 100, 300])
def test_landscape_at_one_equals_uniform_attention(length: int, weighting: str, value: str) -> None:
    setting = Setting(6, 5, 2, 0.15, 0.1, 0.1, length, weighting)
    uniform = theory.uniform_attention_loss(setting, value_blocks(setting, value).matrix(setting))
    assert float(theory.topicwise_attention_loss(setting, 1, 1, value)) == pytest.approx(uniform, rel=1e-13)


@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize(("value", "alpha", "beta"), [("block", 5.0, 2.0), ("diagonal", 0.3, 20.0)])
def test_longer_documents_against_monte_carlo(weighting: str, value: str, alpha: float, beta: float) -> None:
    s = Setting(5, 4, 2, 0.3, 0.2, 0.2, 25, weighting)
    W = value_blocks(s, value).matrix(s)
    kernel = topicwise_kernel(s, alpha, beta)
    rng = np.random.default_rng(11)
    losses, weights = [], []
    for _ in range(4000):
        active = rng.choice(5, size=2, replace=False)
        p = np.zeros(21)
        p[1:] = np.isin(np.arange(20) // 4, active) / 8
        clean, shown, selected = sampled_document(s, p, rng)
        if not selected.any():
            continue
        attention = kernel[np.ix_(shown, shown[selected])]
        output = W[:, shown] @ (attention / attention.sum(axis=0))
        output[clean[selected], np.arange(selected.sum())] -= 1
        losses.append(float((output**2).sum()))
        weights.append(int(selected.sum()))
    totals, counts = np.array(losses), np.array(weights)
    if weighting == "document":
        values = totals / counts
        mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    else:  # ratio estimator, its error by linearisation
        mean = totals.sum() / counts.sum()
        error = np.std(totals - mean * counts, ddof=1) / counts.mean() / np.sqrt(len(counts))
    exact = float(theory.topicwise_attention_loss(s, alpha, beta, value))
    assert abs(mean - exact) < 4 * error
    other = float(theory.topicwise_attention_loss(replace(s, document_length=None), alpha, beta, value))
    assert abs(mean - other) > 4 * error  # the test can tell N = 25 from N = ∞


def test_dirichlet_proportions_against_monte_carlo() -> None:
    s = Setting(3, 2, 1, 0.3, 0.2, 0.2, 30)
    rng = np.random.default_rng(2)
    phi = rng.dirichlet(np.full(6, 0.5), size=3)
    alpha = np.array([0.3, 0.6, 1.1])
    W = 0.5 * rng.normal(size=(7, 7))
    values = []
    for _ in range(6000):
        p = np.concatenate([[0.0], rng.dirichlet(alpha) @ phi])
        clean, shown, selected = sampled_document(s, p / p.sum(), rng)
        if selected.any():
            output = np.repeat((W @ np.bincount(shown, minlength=7) / 30)[:, None], selected.sum(), axis=1)
            output[clean[selected], np.arange(selected.sum())] -= 1
            values.append((output**2).sum(axis=0).mean())
    exact = theory.moments(s, phi, theory.dirichlet_law(alpha)).loss(W)
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - exact) < 4 * error
    wrong = theory.moments(s, phi, theory.uniform_law(3, 1)).loss(W)
    assert abs(np.mean(values) - wrong) > 4 * error


def test_relabelling_topics_changes_nothing() -> None:
    s = Setting(4, 3, 2, 0.3, 0.2, 0.25, 5)
    W, b = random_predictor(s, 3)
    words = np.arange(12).reshape(4, 3)[[2, 0, 3, 1]][:, [1, 2, 0]].ravel() + 1
    order = np.concatenate([[0], words])
    permuted = theory.uniform_attention_loss(s, W[np.ix_(order, order)], b[order])
    assert permuted == pytest.approx(theory.uniform_attention_loss(s, W, b), rel=1e-13)
    mixed = np.concatenate([[0], np.roll(np.arange(1, 13), 1)])  # tears topics apart
    assert abs(theory.uniform_attention_loss(s, W[np.ix_(mixed, mixed)], b[mixed]) / permuted - 1) > 1e-6


def test_many_points_cost_bounded_memory_and_agree_with_single_ones() -> None:
    s = Setting(10, 10, 2, 0.15, 0.1, 0.1, 40)
    alphas, betas = np.linspace(0, 20, 7), np.linspace(0, 20, 9)
    grid = theory.attention_landscape(s, alphas, betas, "diagonal")
    assert grid.shape == (7, 9)
    single = theory.topicwise_attention_loss(s, alphas[3], betas[5], "diagonal")
    assert grid[3, 5] == pytest.approx(float(single), rel=1e-14)
