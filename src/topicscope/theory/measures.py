"""How far each statement is from true in a setting: the functions behind `theorems.THEOREMS`.

A claimed object is computed for infinite documents where the claim is about them, and measured against the setting as
it is, so that every measure also works, and grows, outside the statement's assumptions.
"""

from dataclasses import replace

import numpy as np

from topicscope.synthetic import Setting
from topicscope.theory.attention import Value, infinite, topicwise_attention_loss, topicwise_rational_loss
from topicscope.theory.attention_optimum import block_limit, diagonal_limit, topicwise_attention_optimum
from topicscope.theory.bayes import bayes_loss
from topicscope.theory.conditions import embedding_conditions
from topicscope.theory.cross_entropy import uniform_cross_entropy_optimum
from topicscope.theory.dynamics import stage_one, stage_two_drift
from topicscope.theory.embedding import embedding_gradient, embedding_loss, embedding_optimum
from topicscope.theory.moments import moments
from topicscope.theory.value_matrix import moment_eigenvalues, value_matrix_loss, value_matrix_optimum


def embedding_deviation(setting: Setting) -> float:
    """Gradient at the claimed optimum, its conditions, and whether another optimum has another gap."""
    claimed = embedding_optimum(infinite(setting), setting.num_topics).embedding
    E = claimed.T @ claimed
    worst = max(np.abs(embedding_gradient(setting, claimed)).max(), embedding_conditions(setting, E).residual)
    if setting.num_topics > 1:
        contrast = np.zeros((1, setting.vocabulary_size + 1))
        contrast[0, 1 : setting.words_per_topic + 1] = 1
        contrast[0, setting.words_per_topic + 1 : 2 * setting.words_per_topic + 1] = -1
        other = np.vstack([claimed, contrast])
        if embedding_loss(setting, other) - embedding_loss(setting, claimed) < 1e-12:
            gaps = [embedding_conditions(setting, W.T @ W).gap for W in (claimed, other)]
            worst = max(worst, abs(gaps[1] - gaps[0]))
    return float(worst)


def low_rank_embedding_deviation(setting: Setting) -> float:
    """Excess and gradient of the claimed optimum at every dimension up to T (at most 12 of them)."""
    worst = 0.0
    for dimension in range(1, min(setting.num_topics, 12) + 1):
        optimum = embedding_optimum(infinite(setting), dimension)
        best = 1 - 1 / (setting.topics_per_document * setting.words_per_topic)
        excess = embedding_loss(setting, optimum.embedding) - best
        slope = np.abs(embedding_gradient(setting, optimum.embedding)).max()
        worst = max(worst, abs(excess - optimum.excess), float(slope))
    return worst


def _paper_value_matrix(setting: Setting) -> np.ndarray:
    """Theorem 2 in the paper's own constants, so that the package's form is not compared with itself."""
    V, v, T = setting.vocabulary_size, setting.words_per_topic, setting.num_topics
    p_m, p_c, p_r = setting.p_mask, setting.p_correct, setting.p_random
    c1 = p_r / ((1 - p_c - p_r) * (1 - (1 - p_c) * p_m) * V)
    c2 = 1 / ((1 - p_c - p_r) * p_m) - 1
    c3 = 1 / (1 - (1 - p_c) * p_m)
    W = np.zeros((V + 1, V + 1))
    W[1:, 0] = (c2 * c3 - c1 * V) / (c2**2 + V)
    W[1:, 1:] = -(c1 * c2 + c3) / (c2**2 + V) + c3 / v * np.kron(np.eye(T), np.ones((v, v)))
    return W


def value_matrix_deviation(setting: Setting) -> float:
    """Gradient at the paper's matrix, and its part outside the row space of C, which a vanishing ridge removes."""
    W, exact = _paper_value_matrix(setting), moments(setting)
    row_space = exact.input_second @ np.linalg.pinv(exact.input_second, rcond=1e-10, hermitian=True)
    return float(max(np.abs(exact.gradient(W)).max(), np.abs(W - W @ row_space).max()))


def finite_value_matrix_deviation(setting: Setting) -> float:
    """Gradient and loss at the claimed optimum; infinite where C is singular, since the optimum is then not unique."""
    eigen = moment_eigenvalues(setting)
    needed = [eigen.mask_variance]
    needed += [eigen.contrast_input] if setting.num_topics > 1 else []
    needed += [eigen.within_input] if setting.words_per_topic > 1 else []
    if min(needed) <= 0:
        return float("inf")
    W, exact = value_matrix_optimum(setting), moments(setting)
    return float(max(np.abs(exact.gradient(W)).max(), abs(exact.loss(W) - value_matrix_loss(setting))))


def _outside(value: float, lower: float | None, upper: float | None) -> float:
    """Relative overshoot of value outside (lower, upper); infinite where a bound has no value."""
    if lower is None or upper is None:
        return float("inf")
    return max(0.0, (lower - value) / abs(lower) if lower else -value, (value - upper) / abs(upper))


def block_attention_deviation(setting: Setting) -> float:
    """Overshoot of γ* outside Theorem 3's range."""
    best = topicwise_attention_optimum(setting, "block")
    return _outside(best.gamma, best.lower_bound, best.upper_bound)


def diagonal_attention_deviation(setting: Setting) -> float:
    """Overshoot of β* and α* outside Theorem 4's ranges."""
    best = topicwise_attention_optimum(setting, "diagonal")
    over = _outside(best.beta, best.lower_bound, best.upper_bound)
    return max(over, _outside(best.alpha, float("-inf"), best.alpha_bound) if best.alpha_bound else float("inf"))


_MANY_TOPICS = 10**9
_VALUES: tuple[Value, ...] = ("block", "diagonal")


def block_limit_deviation(setting: Setting) -> float:
    """Relative distance of γ* at a thousand million topics from its limit."""
    best = topicwise_attention_optimum(replace(setting, num_topics=_MANY_TOPICS), "block")
    return abs(best.gamma / block_limit(setting) - 1)


def diagonal_limit_deviation(setting: Setting) -> float:
    """Distance of α*, and relative distance of β*, at a thousand million topics from their limits."""
    best = topicwise_attention_optimum(replace(setting, num_topics=_MANY_TOPICS), "diagonal")
    alpha, beta = diagonal_limit(setting)
    return max(abs(best.alpha - alpha), abs(best.beta / beta - 1))


def stage_one_deviation(setting: Setting) -> float:
    """|dW/dt + ∂L/∂W| along the trajectory, relative to its size at the start, by central differences in t."""
    limit = infinite(setting)
    exact = moments(setting)
    rates = stage_one(limit, 0.0)
    slowest = min(rate for rate in (rates.mask_rate, rates.topic_rate) if rate > 0)
    step = 1e-4 / max(rates.mask_rate, rates.topic_rate)
    start = np.abs(exact.cross).max() * 2
    worst = 0.0
    for t in np.array([0.1, 1.0, 5.0]) / slowest:
        path = stage_one(limit, np.array([t - step, t, t + step]))
        before, here, after = (path.matrix(limit, i) for i in range(3))
        worst = max(worst, float(np.abs((after - before) / (2 * step) + exact.gradient(here)).max()))
    return worst / float(start)


def stage_two_deviation(setting: Setting) -> float:
    """Drift against the gradient of the topic-wise loss at α = β = 1, relative, and the columns' zero sum."""
    v, V = setting.words_per_topic, setting.vocabulary_size
    worst = 0.0
    for value in _VALUES:
        drift = stage_two_drift(infinite(setting), value)
        gradient, _ = topicwise_rational_loss(setting, value).derivatives(1.0, 1.0)
        claimed = -V * np.array([(v - 1) * drift.same_topic, drift.same_word])
        total = drift.same_word + (v - 1) * drift.same_topic + (V - v) * drift.different_topic
        # Where there is no drift (τ = 1 or p_c = 0) the gradient is rounding of terms near 1.
        scale = max(np.abs(claimed).max(), np.abs(gradient).max(), 1e-5)
        worst = max(worst, float(np.abs(gradient - claimed).max() / scale), abs(total) * V / scale)
    return worst


def bayes_deviation(setting: Setting) -> float:
    """How far any of the package's models comes below the Bayes loss."""
    least = min(value_matrix_loss(setting), *(topicwise_attention_optimum(setting, v).loss for v in _VALUES))
    below = bayes_loss(setting) - least
    if setting.document_length is None:
        best = topicwise_attention_optimum(setting, "diagonal")
        weights = (best.alpha, best.beta) if np.isfinite(best.alpha + best.beta) else (1.0, 1.0)
        entropy = min(float(topicwise_attention_loss(setting, *weights, v, "cross_entropy")) for v in _VALUES)
        below = max(below, bayes_loss(setting, "cross_entropy") - entropy)
    return max(0.0, below)


def cross_entropy_deviation(setting: Setting) -> float:
    """Cross-entropy at a tiny ridge above log(τv); infinite if it came below."""
    best = uniform_cross_entropy_optimum(infinite(setting), 1e-13).cross_entropy
    above = best - float(np.log(setting.topics_per_document * setting.words_per_topic))
    return above if above > -1e-13 else float("inf")
