"""Knowl 5 made quantitative: gradients at initialisation, stage one in closed form, stage two's drift and growth rates.

Squared loss, no bias, N = ∞, gradient flow dW/dt = -∂L/∂W, scores M = W_KᵀW_Q/√d_a (key, query). The paper states the
two stages in words; every number here is ours.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory.attention import Numbers, Value
from topicscope.theory.value_matrix import ValueMatrixBlocks


@dataclass(frozen=True)
class GradientNorms:
    """Root mean squared Frobenius norms of the gradients at initialisation, entries iid N(0, σ²).

    | field | meaning |
    | --- | --- |
    | value | √E‖∂L/∂W_V‖² at uniform attention: (value_at_zero² + 4σ²(V+1)‖C‖²)^½ |
    | value_at_zero | ‖∂L/∂W_V‖ at W_V = 0, the limit σ → 0 |
    | key, query | √E‖∂L/∂W_K‖² = √E‖∂L/∂W_Q‖² = σ² G, to leading order in σ |
    | attention_scale | G, free of σ and of the attention dimension |
    | ratio | value_at_zero / key: how much faster the value matrix moves |
    """

    value: float
    value_at_zero: float
    key: float
    query: float
    attention_scale: float

    @property
    def ratio(self) -> float:
        """value_at_zero / key."""
        return self.value_at_zero / self.key if self.key > 0 else float("inf")


def initial_gradient_norms(setting: Setting, sigma: float) -> GradientNorms:
    """Expected gradient norms when W_V, W_K, W_Q start as iid N(0, σ²).

        ‖∂L/∂W_V‖ at 0 = 2 √(m²/V + (T-1)(aκ/v)² + ((1-m)/V)²)
        G² = 4 Σ_h Hyp(h) tr_h (h/(τ²v)) (p_c² + 2p_c p_r/V + p_r²/V + p_0²),  h = |S ∩ S'|
        tr_h = D - 2E3 + D²,  D = x̄_S·x̄_S',  E3 = Σ_i x̄_S,i x̄_S',i (x̄_S,i + x̄_S',i)/2

    The attention gradient keeps its part linear in W_V; the quadratic part is smaller by about σ(V+1)|x̄|, so sigma
    must be well below 1/(V |x̄|).

    Raises:
        InputError: a finite document length, or sigma < 0.
    """
    _require_infinite(setting)
    if not sigma >= 0:
        raise InputError("the initial scale cannot be negative", received=sigma, expected="sigma >= 0")
    T, v, V, tau = setting.num_topics, setting.words_per_topic, setting.vocabulary_size, setting.topics_per_document
    a, m, kappa = setting.a, setting.m, setting.kappa
    p_c, p_r, p_0 = setting.p_correct, setting.p_random, setting.p_mask_token
    at_zero = 2 * np.sqrt(m**2 / V + (T - 1) * (a * kappa / v) ** 2 + ((1 - m) / V) ** 2)
    input_squared = (m**2 + (1 - m) ** 2 / V) ** 2 + (T - 1) * (a**2 * kappa / v) ** 2  # ‖C‖²
    f1, f2 = a / (tau * v) + setting.r / V, setting.r / V
    shared = np.arange(max(0, 2 * tau - T), tau + 1)  # the overlaps h of two sets of τ topics
    one, none = tau - shared, T - 2 * tau + shared
    D = m**2 + v * (shared * f1**2 + 2 * one * f1 * f2 + none * f2**2)
    E3 = m**3 + v * (shared * f1**3 + one * (f1**2 * f2 + f1 * f2**2) + none * f2**3)
    trace = D - 2 * E3 + D**2
    queries = p_c**2 + 2 * p_c * p_r / V + p_r**2 / V + p_0**2
    scale = float(np.sqrt(4 * queries * np.sum(_overlap_law(T, tau, shared) * trace * shared / (tau**2 * v))))
    return GradientNorms(
        value=float(np.sqrt(at_zero**2 + 4 * sigma**2 * (V + 1) * input_squared)),
        value_at_zero=float(at_zero),
        key=sigma**2 * scale,
        query=sigma**2 * scale,
        attention_scale=scale,
    )


def _overlap_law(T: int, tau: int, shared: np.ndarray) -> np.ndarray:
    """Hypergeometric P(|S ∩ S'| = h) for two independent sets of τ of T topics, by ratios of neighbours."""
    h = shared[:-1].astype(float)
    ratios = (tau - h) ** 2 / ((h + 1) * (T - 2 * tau + h + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class StageOne:
    """The value matrix at each time of `t` under gradient flow from W_V = 0; arrays [time].

    mask_column, different, same: the entries (same-topic includes the diagonal; row 0 stays 0).
    loss: L(W(t)); norm: ‖W(t)‖_F. mask_rate, topic_rate: 2λ0 and 2λ1, the two exponential rates.
    """

    t: Float[np.ndarray, "time"]
    mask_column: Float[np.ndarray, "time"]
    different: Float[np.ndarray, "time"]
    same: Float[np.ndarray, "time"]
    loss: Float[np.ndarray, "time"]
    norm: Float[np.ndarray, "time"]
    mask_rate: float
    topic_rate: float

    def matrix(self, setting: Setting, index: int) -> Float[np.ndarray, "size size"]:
        """W(t[index]), (V+1) × (V+1)."""
        entries = [float(x[index]) for x in (self.mask_column, self.different, self.same, self.same)]
        return ValueMatrixBlocks(*entries).matrix(setting)


def stage_one(setting: Setting, t: Numbers) -> StageOne:
    """W(t) = (1-e^{-2λ0 t}) 1_w x̄0ᵀ/(V λ0) + (1-e^{-2λ1 t}) (c3/v)(BBᵀ - 11ᵀ/T), x̄0 = (m, (1-m)/V, …).

    λ0 = m² + (1-m)²/V, λ1 = a²κ/v; t in units of 1/(learning rate) for plain gradient descent on the squared loss.
    The flow ends exactly at Theorem 2's matrix without any regulariser, since it never leaves the row space of C.
    L(t) = L* + e^{-4λ0 t}/V + (T-1)(κ/v) e^{-4λ1 t}.

    Raises:
        InputError: a finite document length, or a negative time.
    """
    _require_infinite(setting)
    times = np.atleast_1d(np.asarray(t, dtype=np.float64))
    if not (times >= 0).all():
        raise InputError("time cannot be negative", expected="t >= 0")
    T, v, V, m = setting.num_topics, setting.words_per_topic, setting.vocabulary_size, setting.m
    lambda0, lambda1 = _rates(setting)
    grown0, grown1 = -np.expm1(-2 * lambda0 * times), -np.expm1(-2 * lambda1 * times)
    mask_column = grown0 * m / (V * lambda0)
    constant = grown0 * (1 - m) / (V**2 * lambda0)
    different = constant - grown1 / (setting.a * V)
    same = different + grown1 / (setting.a * v)
    explained = (1 - (1 - grown0) ** 2) / V + (T - 1) * setting.kappa / v * (1 - (1 - grown1) ** 2)
    squares = V * mask_column**2 + V * v * same**2 + V * (V - v) * different**2
    return StageOne(times, mask_column, different, same, 1 - explained, np.sqrt(squares), 2 * lambda0, 2 * lambda1)


@dataclass(frozen=True)
class StageTwoDrift:
    """-∂L/∂M at M = 0 with W_V at its optimum, by pair of (key, query) tokens; [MASK] row and column are exactly 0."""

    same_word: float
    same_topic: float
    different_topic: float


def stage_two_drift(setting: Setting, value: Value = "block") -> StageTwoDrift:
    """Where attention starts to move once the value matrix has converged.

        g0 = 2 p_c f1 c3/V, f1 = a/(τv) + r/V
        block:     same word and same topic g0 (1-1/τ)/v
        diagonal:  same word g0 (1 - 1/(τv)), same topic -g0/(τv)
        both:      different topic -g0 ((τ-1)/(T-1))/(τv)

    p_c = 0 gives no attention gradient at all. Needs τ < T for the block matrix (at τ = T it holds no topics).

    Raises:
        InputError: a finite document length, or another value matrix.
    """
    _require_infinite(setting)
    T, v, tau = setting.num_topics, setting.words_per_topic, setting.topics_per_document
    g0 = _drift_scale(setting)
    different = -g0 * (tau - 1) / ((T - 1) * tau * v) if T > 1 else 0.0
    if value == "block":
        if tau == T:
            return StageTwoDrift(0.0, 0.0, 0.0)
        return StageTwoDrift(g0 * (1 - 1 / tau) / v, g0 * (1 - 1 / tau) / v, different)
    if value != "diagonal":
        raise InputError("unknown value matrix", received=value, expected='"block" or "diagonal"')
    return StageTwoDrift(g0 * (1 - 1 / (tau * v)), -g0 / (tau * v), different)


@dataclass(frozen=True)
class GrowthRates:
    """Exponential rates of the two stages: attention (W_K, W_Q) against the value matrix.

    attention: ρ, with ‖W_K‖, ‖W_Q‖ ~ e^{ρt} from small values, block value matrix.
    attention_diagonal: the same with the diagonal value matrix. value_topic, value_mask: 2λ1 and 2λ0 of stage one.
    """

    attention: float
    attention_diagonal: float
    value_topic: float
    value_mask: float

    @property
    def separation(self) -> float:
        """value_topic / attention: how many times faster stage one is."""
        return self.value_topic / self.attention if self.attention > 0 else float("inf")


def growth_rates(setting: Setting, attention_dimension: int) -> GrowthRates:
    """ρ = (largest eigenvalue of the drift matrix)/√d_a.

        block:    ρ √d_a = 2 p_c f1 c3 (1-1/τ)/(v(T-1)), on contrasts between topics
        diagonal: ρ √d_a = g0 (v ≥ 2), on contrasts inside topics; at v = 1 the contrasts between topics remain

    Raises:
        InputError: attention_dimension < 1, or a finite document length.
    """
    _require_infinite(setting)
    if attention_dimension < 1:
        raise InputError(
            "attention needs a dimension", received=attention_dimension, expected="attention_dimension >= 1"
        )
    T, v = setting.num_topics, setting.words_per_topic
    root = np.sqrt(attention_dimension)
    block, diagonal = stage_two_drift(setting, "block"), stage_two_drift(setting, "diagonal")
    between = v * (block.same_topic - block.different_topic) if T > 1 else 0.0
    if v > 1:
        sharpest = diagonal.same_word - diagonal.same_topic
    else:
        sharpest = diagonal.same_word - diagonal.different_topic if T > 1 else 0.0
    lambda0, lambda1 = _rates(setting)
    return GrowthRates(float(between / root), float(sharpest / root), 2 * lambda1, 2 * lambda0)


def _rates(setting: Setting) -> tuple[float, float]:
    """(λ0, λ1), eigenvalues of C along x̄0 and on contrasts between topics."""
    m, V = setting.m, setting.vocabulary_size
    return m**2 + (1 - m) ** 2 / V, setting.a**2 * setting.kappa / setting.words_per_topic


def _drift_scale(setting: Setting) -> float:
    """g0 = 2 p_c f1 c3/V."""
    V = setting.vocabulary_size
    f1 = setting.a / (setting.topics_per_document * setting.words_per_topic) + setting.r / V
    return 2 * setting.p_correct * f1 / (setting.a * V)


def _require_infinite(setting: Setting) -> None:
    if setting.document_length is not None:
        raise InputError(
            "the dynamics are derived for infinite documents",
            received=f"document_length = {setting.document_length}",
            expected="document_length = None",
        )
