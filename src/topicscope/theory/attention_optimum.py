"""The best attention weights, Theorem 3's and Theorem 4's bounds on them, and sharper limits."""

from dataclasses import asdict, dataclass

import numpy as np

from topicscope.synthetic import Setting
from topicscope.theory.attention import Value, topicwise_rational_loss
from topicscope.theory.rational import RationalLoss
from topicscope.theory.theorem import THEOREM_3, THEOREM_4, violated


@dataclass(frozen=True)
class AttentionOptimum:
    """The minimiser of the topic-wise squared loss, beside the theorem's bounds.

    | field | meaning |
    | --- | --- |
    | alpha, beta | weights on the same topic and on the same word, relative to a different-topic key |
    | gamma | ((v-1)α + β)/v, the average weight inside a topic |
    | loss | the least squared loss |
    | lower_bound, upper_bound | block: λ1(τ-1), λ2 T around γ; diagonal: λ3 τ, λ4 T around β |
    | alpha_bound | diagonal: λ5 β, above α; None for block |
    | violated_assumptions | the theorem's assumptions that the setting does not meet |
    | bound_holds | whether the optimum lies strictly inside every bound |

    A bound is None where its formula has no value (p_r = 0, v = 1): such a bound counts as not holding.
    """

    alpha: float
    beta: float
    gamma: float
    loss: float
    lower_bound: float | None
    upper_bound: float | None
    alpha_bound: float | None
    violated_assumptions: tuple[str, ...]
    bound_holds: bool

    def as_dict(self) -> dict[str, object]:
        """The fields by name, for records."""
        return asdict(self)


def topicwise_attention_optimum(setting: Setting, value: Value = "block") -> AttentionOptimum:
    """argmin over α, β ≥ 0 of `topicwise_attention_loss`, exact at the setting's document length.

    Block matrix at N = ∞: the loss depends on γ only, so the optimum is a ridge; it is represented by α = β = γ. At
    finite N the ridge breaks towards β < α. At v = 1 no two words share a topic and α is set to β. A weight without
    effect is 1: both at p_c = p_r = 0 or N = 1, α at N = 2 with the block matrix. In very short documents the loss may
    fall for ever as a weight grows; that weight is then infinite and the loss its limit. Bounds: Knowl 3 (γ) and
    Knowl 4 (β and α), with τ = o(T) tested as 2 ≤ τ ≤ T/2 for γ and 2 ≤ τ ≤ 3T/(4√v) for β; they speak of N = ∞ only.
    """
    loss = topicwise_rational_loss(setting, value)
    on_ridge = (value == "block" and setting.document_length is None) or setting.words_per_topic == 1
    directions = np.array([[1.0], [1.0]]) if on_ridge else np.eye(2)
    scale = setting.num_topics if setting.document_length is None else setting.document_length
    # β* is of the order τv/(1-a): far above every optimum, whatever the setting.
    largest = 1e6 * max(scale, 100) * max(1.0, setting.words_per_topic * 1e-4 / (1 - setting.a))
    point = np.ones(2)
    if setting.p_correct + setting.p_random > 0:
        point = _without_effect_one(loss, loss.minimise(directions, largest), directions, largest)
    least = float(loss(point[:1], point[1:])[0])
    alpha, beta = np.where(point < largest, point, np.inf).tolist()
    v = setting.words_per_topic
    gamma = alpha if on_ridge else ((v - 1) * alpha + beta) / v
    if value == "block":
        lower, upper = block_bounds(setting)
        alpha_bound = None
        inside = upper is not None and lower < gamma < upper
        assumptions = THEOREM_3
    else:
        lower, upper, factor = diagonal_bounds(setting)
        alpha_bound = None if factor is None else factor * beta
        inside = upper is not None and alpha_bound is not None and lower < beta < upper and alpha < alpha_bound
        assumptions = THEOREM_4
    return AttentionOptimum(
        alpha=alpha,
        beta=beta,
        gamma=gamma,
        loss=least,
        lower_bound=lower,
        upper_bound=upper,
        alpha_bound=alpha_bound,
        violated_assumptions=violated(assumptions, setting),
        bound_holds=bool(inside),
    )


def _without_effect_one(loss: RationalLoss, point: np.ndarray, directions: np.ndarray, largest: float) -> np.ndarray:
    """The point with every weight set to 1 that changes nothing over its whole range, where rounding chose it."""
    for direction in directions.T > 0:
        weights = np.where(direction[:, None], np.array([0.0, 1.0, 30.0, largest]), point[:, None])
        if np.ptp(loss(weights[0], weights[1])) < 1e-14 * max(1.0, float(loss(point[:1], point[1:])[0])):
            point = np.where(direction, 1.0, point)
    return point


def block_bounds(setting: Setting) -> tuple[float, float | None]:
    """Knowl 3: (λ1 (τ-1), λ2 T) around γ, λ1 = (a + r)(2 - a)/(2a), λ2 = 100 (a/r + 1); 1 + (1-p_c)p_m = 2 - a."""
    a, r = setting.a, setting.r
    lower = (a + r) * (2 - a) / (2 * a) * (setting.topics_per_document - 1)
    return lower, None if r == 0 else 100 * (a / r + 1) * setting.num_topics


def diagonal_bounds(setting: Setting) -> tuple[float, float | None, float | None]:
    """Knowl 4: (λ3 τ, λ4 T, λ5) with λ3 τ < β < λ4 T and α < λ5 β.

    λ3 = (a + r) v/100, λ4 = a/(√(v-1) - 1 - a) · (1-m)/r · v, λ5 = 1/((v-1) a). λ4 is negative where v < (1+a)² + 1.
    """
    a, r, v = setting.a, setting.r, setting.words_per_topic
    width = np.sqrt(v - 1) - 1 - a
    lower = (a + r) * v / 100 * setting.topics_per_document
    upper = None if r == 0 or width == 0 else float(a / width * (1 - setting.m) / r * v * setting.num_topics)
    return lower, upper, None if v == 1 else 1 / ((v - 1) * a)


def block_limit(setting: Setting) -> float:
    """lim γ* as T → ∞ at fixed τ and N = ∞: 1 + τ(τ-1)/((1-a)(τ-a)); γ*/τ → 1/((1-p_c)p_m) as τ grows. Ours."""
    a, tau = setting.a, setting.topics_per_document
    return 1 + tau * (tau - 1) / ((1 - a) * (tau - a))


def diagonal_limit(setting: Setting) -> tuple[float, float]:
    """lim (α*, β*) as T → ∞ at fixed τ and N = ∞, for the diagonal value matrix. Ours.

    α* → a(τ-1)/(τ-a) < 1;  β* → α* + v/(1-a) · [(τ-a) + a²(τ-1)/(τ-a)].
    """
    a, tau, v = setting.a, setting.topics_per_document, setting.words_per_topic
    alpha = a * (tau - 1) / (tau - a)
    return alpha, alpha + v / (1 - a) * ((tau - a) + a**2 * (tau - 1) / (tau - a))
