"""Knowl 5's numbers against direct enumeration, finite differences and integration."""

from itertools import combinations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from topicscope import theory
from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory import enumerated_loss, value_blocks
from topicscope.theory.enumeration import corruption, document_types

S = Setting(3, 2, 2, 0.3, 0.2, 0.25)


def test_gradient_scale_of_the_scores_by_enumeration() -> None:
    """E over W_V of ‖∂L/∂M‖², its part linear in W_V: 4σ² Σ_w Σ_q P(q|w)² ‖Σ_S P(S) p_S(w) (diag x̄ - x̄x̄ᵀ)‖²."""
    for s in (S, Setting(4, 2, 1, 0.15, 0.1, 0.1), Setting(4, 1, 3, 0.15, 0.1, 0.0), Setting(3, 2, 3, 0.5, 0.2, 0.2)):
        size = s.vocabulary_size + 1
        channel = corruption(s, s.vocabulary_size)
        total = 0.0
        for word in range(1, size):
            jacobian = np.zeros((size, size))
            for probability, p in document_types(s):
                x = (1 - s.p_mask) * p + s.p_mask * channel @ p
                jacobian += probability * p[word] * (np.diag(x) - np.outer(x, x))
            total += 4 * (channel[:, word] ** 2).sum() * (jacobian**2).sum()
        assert theory.initial_gradient_norms(s, 0.1).attention_scale == pytest.approx(np.sqrt(total), rel=1e-12)


def test_initial_gradient_norms_against_sampled_networks() -> None:
    """Draw networks, differentiate the exact loss through the softmax, average the squared norms."""
    rng = np.random.default_rng(0)
    sigma, d_a, size = 1e-3, 5, S.vocabulary_size + 1
    channel = corruption(S, S.vocabulary_size)
    exact = theory.moments(S)
    squares = np.zeros(3)
    for _ in range(400):
        W_V, W_K, W_Q = (sigma * rng.normal(size=shape) for shape in ((size, size), (d_a, size), (d_a, size)))
        drift = np.zeros((size, size))
        for probability, p in document_types(S):
            x = (1 - S.p_mask) * p + S.p_mask * channel @ p
            jacobian = np.diag(x) - np.outer(x, x)
            joint = channel * p  # [query, clean word]
            errors = 2 * (joint.sum(axis=1)[:, None] * (W_V @ x) - joint)  # [query, output], scores near 0
            drift += probability * jacobian @ W_V.T @ errors.T
        parts = exact.gradient(W_V), W_Q @ drift.T / np.sqrt(d_a), W_K @ drift / np.sqrt(d_a)
        squares += [float((g**2).sum()) for g in parts]
    measured = np.sqrt(squares / 400)
    expected = theory.initial_gradient_norms(S, sigma)
    assert measured == pytest.approx([expected.value, expected.key, expected.query], rel=0.06)
    assert expected.ratio == pytest.approx(expected.value_at_zero / (sigma**2 * expected.attention_scale))
    assert expected.ratio > 1e5


@pytest.mark.parametrize("setting", [S, Setting(3, 2, 3, 0.3, 0.2, 0.25), Setting(1, 3, 1, 0.3, 0.2, 0.2)])
def test_stage_one_is_the_gradient_flow_of_the_enumerated_loss(setting: Setting) -> None:
    exact = theory.moments(setting)
    size = setting.vocabulary_size + 1
    times = np.array([0.0, 0.5, 5.0, 60.0])
    flow = solve_ivp(
        lambda _, w: -exact.gradient(w.reshape(size, size)).ravel(),
        (0, 60),
        np.zeros(size * size),
        t_eval=times,
        rtol=1e-10,
        atol=1e-12,
    )
    path = theory.stage_one(setting, times)
    for i in range(len(times)):
        W = flow.y[:, i].reshape(size, size)
        assert path.matrix(setting, i) == pytest.approx(W, abs=1e-8)
        assert path.loss[i] == pytest.approx(enumerated_loss(setting, W), abs=1e-8)
        assert path.norm[i] == pytest.approx(np.linalg.norm(W), abs=1e-8)


def test_stage_one_ends_at_theorem_2_without_a_ridge() -> None:
    assert theory.stage_one(S, 1e6).matrix(S, 0) == pytest.approx(theory.value_matrix_optimum(S), abs=1e-13)
    assert theory.stage_one(S, 0.0).loss[0] == 1.0


@pytest.mark.parametrize("value", ["block", "diagonal"])
@pytest.mark.parametrize("setting", [S, Setting(3, 2, 1, 0.15, 0.1, 0.1), Setting(3, 1, 2, 0.3, 0.2, 0.2)])
def test_stage_two_drift_and_growth_by_differences_of_the_enumerated_loss(setting: Setting, value: str) -> None:
    """-∂L/∂M entry by entry, with kernel = exp(M), and the growth rate as the largest eigenvalue."""
    W = value_blocks(setting, value).matrix(setting)
    size = setting.vocabulary_size + 1
    drift = np.zeros((size, size))
    for index in np.ndindex(size, size):
        losses = []
        for h in (-2e-3, -1e-3, 1e-3, 2e-3):
            M = np.zeros((size, size))
            M[index] = h
            losses.append(enumerated_loss(setting, W, kernel=np.exp(M)))
        drift[index] = -(losses[0] - 8 * losses[1] + 8 * losses[2] - losses[3]) / 12e-3
    claimed = theory.stage_two_drift(setting, value)
    v = setting.words_per_topic
    expected = np.zeros((size, size))
    expected[1:, 1:] = claimed.different_topic
    for t in range(setting.num_topics):
        block = slice(1 + t * v, 1 + (t + 1) * v)
        expected[block, block] = claimed.same_topic
    expected[np.arange(1, size), np.arange(1, size)] = claimed.same_word
    assert drift == pytest.approx(expected, abs=2e-12)
    rates = theory.growth_rates(setting, 16)
    rate = rates.attention if value == "block" else rates.attention_diagonal
    assert rate == pytest.approx(np.linalg.eigvalsh((drift + drift.T) / 2).max() / 4, abs=1e-11)


def test_keys_and_queries_grow_at_the_predicted_rate() -> None:
    """Linearised gradient flow of W_K and W_Q from random small values, integrated in full."""
    d_a, size = 4, S.vocabulary_size + 1
    claimed = theory.stage_two_drift(S)
    D = np.zeros((size, size))
    D[1:, 1:] = claimed.different_topic + (claimed.same_topic - claimed.different_topic) * np.kron(
        np.eye(3), np.ones((2, 2))
    )
    rate = theory.growth_rates(S, d_a).attention
    rng = np.random.default_rng(0)
    start = 1e-4 * rng.normal(size=2 * d_a * size)

    def velocity(_: float, w: np.ndarray) -> np.ndarray:
        W_K, W_Q = w.reshape(2, d_a, size)
        return np.stack([W_Q @ D.T, W_K @ D]).ravel() / np.sqrt(d_a)

    late = np.array([20.0, 24.0]) / rate
    flow = solve_ivp(velocity, (0, late[-1]), start, t_eval=late, rtol=1e-9, atol=1e-14)
    norms = np.linalg.norm(flow.y[: d_a * size], axis=0)
    assert np.log(norms[1] / norms[0]) / (late[1] - late[0]) == pytest.approx(rate, rel=1e-3)


def test_the_mask_column_and_correct_tokens_decide() -> None:
    none = theory.stage_two_drift(Setting(3, 2, 2, 0.3, 0.0, 0.25))
    assert (none.same_word, none.same_topic, none.different_topic) == (0.0, 0.0, 0.0)
    drift = theory.stage_two_drift(S)
    assert drift.same_topic > 0 > drift.different_topic
    diagonal = theory.stage_two_drift(S, "diagonal")
    assert diagonal.same_word > 0 > diagonal.same_topic


def test_what_cannot_be_is_refused() -> None:
    finite = Setting(3, 2, 2, 0.3, 0.2, 0.25, 50)
    for call in (
        lambda: theory.initial_gradient_norms(finite, 0.1),
        lambda: theory.initial_gradient_norms(S, -0.1),
        lambda: theory.stage_one(finite, 1.0),
        lambda: theory.stage_one(S, -1.0),
        lambda: theory.stage_two_drift(finite),
        lambda: theory.growth_rates(S, 0),
    ):
        with pytest.raises(InputError):
            call()


def test_overlap_law() -> None:
    from topicscope.theory.dynamics import _overlap_law

    sets = list(combinations(range(6), 4))
    shared = np.arange(2, 5)
    counted = np.array([sum(len({*sets[0]} & {*s}) == h for s in sets) for h in shared]) / len(sets)
    assert _overlap_law(6, 4, shared) == pytest.approx(counted)
    many = _overlap_law(10**5, 10**4, np.arange(10**4 + 1))
    assert many @ np.arange(10**4 + 1) == pytest.approx(10**3, rel=1e-9)  # τ²/T
