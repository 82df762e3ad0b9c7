"""Theorems 3 and 4: optima, bounds on a thousand random settings each, counter-examples, limits."""

from dataclasses import replace

import numpy as np
import pytest

from topicscope import theory
from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory import enumerated_loss, topicwise_kernel

P = (0.15, 0.1, 0.1)


def random_settings(count: int, seed: int, share: tuple[float, float], by_root_v: bool = False) -> list[Setting]:
    """Settings with p_m < 1/2, p_c = p_r and many words, τ/T (or τ√v/T) up to `share`."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        p_m, p_c = rng.uniform(0.01, 0.499), rng.uniform(0.001, 0.499)
        T = int(np.exp(rng.uniform(np.log(4), np.log(1e5))))
        a = 1 - (1 - p_c) * p_m
        v = int((1 / a + 1) ** 2) + 2 + int(np.exp(rng.uniform(0, 8)))
        most = share[1] / (np.sqrt(v) if by_root_v else 1)
        low = min(max(share[0], 1 / T), most)
        tau = max(2, int(T * np.exp(rng.uniform(np.log(low), np.log(most)))))
        if tau <= most * T:
            found.append(Setting(T, v, tau, float(p_m), float(p_c), float(p_c)))
    return found


@pytest.mark.parametrize("value", ["block", "diagonal"])
def test_bounds_hold_wherever_their_assumptions_do(value: str) -> None:
    failures = []
    share = (0.0, 0.5) if value == "block" else (0.0, 0.75)
    for setting in random_settings(1000, 7, share, by_root_v=value == "diagonal"):
        best = theory.topicwise_attention_optimum(setting, value)
        assert best.violated_assumptions == ()
        if not best.bound_holds:
            failures.append((setting, best))
        if value == "block":
            assert best.gamma > 1
    assert failures == []


def test_no_model_comes_below_the_bayes_loss() -> None:
    rng = np.random.default_rng(4)
    bayes = next(theorem for theorem in theory.THEOREMS if theorem.id == "bayes")
    for i in range(200):
        T, v = int(rng.integers(1, 60)), int(rng.integers(1, 40))
        p_c = float(rng.uniform(0, 0.6))
        p = float(rng.uniform(0.02, 0.9)), p_c, float(rng.uniform(0, 0.99 - p_c))
        assert bayes.check(Setting(T, v, int(rng.integers(1, T + 1)), *p, 12 if i % 20 == 0 else None)).holds


def test_theorem_3_fails_when_most_topics_are_active() -> None:
    settings = random_settings(300, 3, (0.7, 0.99))
    optima = [theory.topicwise_attention_optimum(s, "block") for s in settings]
    broken = [(s, best) for s, best in zip(settings, optima, strict=True) if not best.bound_holds]
    assert broken
    assert all(best.violated_assumptions == ("2 ≤ τ ≤ T/2",) for _, best in broken)
    known = theory.topicwise_attention_optimum(Setting(44396, 23, 30557, 0.498, 0.434, 0.434))
    assert known.gamma < known.lower_bound  # 25,240 < 25,479
    assert known.gamma == pytest.approx(25244, rel=1e-3)


def test_theorem_4_fails_where_only_the_root_of_v_is_missing_from_tau_over_T() -> None:
    """τ = o(T) at fixed v hides a factor √v: τ ≤ T/2 is not enough, 1.3 T/√v is too much, 3T/(4√v) is safe."""
    settings = random_settings(300, 5, (0.2, 0.5))
    broken = [s for s in settings if not theory.topicwise_attention_optimum(s, "diagonal").bound_holds]
    assert len(broken) > 30
    assert all(s.topics_per_document * np.sqrt(s.words_per_topic) > 0.75 * s.num_topics for s in broken)
    v, T = 10**6, 10**8
    for share, holds in ((0.74, True), (0.80, False)):
        s = Setting(T, v, int(share * T / 1000), 0.4999, 0.4999, 0.4999)
        best = theory.topicwise_attention_optimum(s, "diagonal")
        a, r = s.a, s.r
        predicted = share * s.p_random / ((1 - s.p_correct) * a * (a + r))
        assert best.beta / best.upper_bound == pytest.approx(predicted, rel=0.01)
        assert best.bound_holds == holds


def test_theorem_4_fails_with_few_words_a_topic() -> None:
    best = theory.topicwise_attention_optimum(Setting(10, 4, 2, *P), "diagonal")
    assert best.upper_bound < 0
    assert not best.bound_holds
    assert "v > (1 + a)² + 1" in best.violated_assumptions


@pytest.mark.parametrize("value", ["block", "diagonal"])
@pytest.mark.parametrize("length", [None, 20, 100])
@pytest.mark.parametrize("tau", [1, 2, 5, 10])
def test_optimum_has_no_slope_and_no_better_neighbour(value: str, length: int | None, tau: int) -> None:
    setting = Setting(10, 10, tau, *P, length)
    loss = theory.topicwise_rational_loss(setting, value)
    best = theory.topicwise_attention_optimum(setting, value)
    gradient, hessian = loss.derivatives(best.alpha, best.beta)
    inner = np.array([best.alpha, best.beta]) > 0
    assert np.abs(gradient[inner]).max() < 1e-13
    assert (gradient[~inner] > 0).all()
    assert np.linalg.eigvalsh(hessian[np.ix_(inner, inner)]).min() > -1e-13
    rng = np.random.default_rng(tau)
    points = np.abs(
        np.array([best.alpha, best.beta])[:, None] + rng.normal(size=(2, 400)) * np.geomspace(1e-3, 1e2, 400)
    )
    assert (loss(points[0], points[1]) >= best.loss - 1e-14).all()


def test_derivatives_against_differences() -> None:
    loss = theory.topicwise_rational_loss(Setting(5, 4, 2, *P, 12), "diagonal")
    x, h = np.array([0.7, 9.0]), 1e-5
    gradient, hessian = loss.derivatives(*x.tolist())
    for i, step in enumerate(np.eye(2) * h):
        up, down = x + step, x - step
        slope = (loss(up[:1], up[1:]) - loss(down[:1], down[1:]))[0] / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=1e-6)
        curvature = (loss.derivatives(*up.tolist())[0] - loss.derivatives(*down.tolist())[0]) / (2 * h)
        assert hessian[i] == pytest.approx(curvature, rel=1e-5)


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_the_ridge_is_exact_for_the_block_matrix_at_infinite_length_only(tau: int) -> None:
    v, gamma = 10, 4.0
    beta = np.linspace(0.5, 30, 20)
    alpha = (v * gamma - beta) / (v - 1)
    setting = Setting(10, v, tau, *P)
    on_ridge = theory.topicwise_attention_loss(setting, alpha, beta)
    assert np.ptp(on_ridge) < 1e-14
    assert np.ptp(theory.topicwise_attention_loss(setting, alpha, beta, "diagonal")) > 1e-3
    assert np.ptp(theory.topicwise_attention_loss(replace(setting, document_length=100), alpha, beta)) > 1e-4


@pytest.mark.parametrize("tau", [2, 3, 5])
def test_block_loss_along_the_ridge_in_closed_form(tau: int) -> None:
    """The closed form in γ, written from scratch: y-interpolation between uniform attention and the topic's column."""
    T, v = 10, 10
    s = Setting(T, v, tau, *P)
    V, a, r, p_c, p_r = 100, s.a, s.r, 0.1, 0.1
    blocks = theory.value_matrix_blocks(s)
    o, c3 = blocks.different, 1 / a
    gamma = np.array([0.3, 1.0, 2.5, 6.0, 40.0])
    y1, y2 = ((gamma - 1) * k / (1 + (gamma - 1) * k) for k in (a / tau + r / T, r / T))
    eps, base = 1 - 1 / tau, 1 - 1 / (tau * v)
    h2 = V * o**2 + 2 * o * c3 + c3**2 / v
    P11, P12 = eps / v, -(c3 - 1) * eps / v
    P22 = V * o**2 + 2 * o * (c3 - 1) + (c3 - 1) ** 2 / v
    HA, HI = h2 - 2 * (o + c3 / (tau * v)) + 1 / (tau * v), h2 - 2 * o + 1 / (tau * v)
    closed = p_c * (1 - 1 / v + (1 - y1) ** 2 * P11 + 2 * y1 * (1 - y1) * P12 + y1**2 * P22)
    closed += p_r * (tau / T * (base + y1**2 * HA) + (1 - tau / T) * (base + y2**2 * HI)) + 0.8 * base
    assert theory.topicwise_attention_loss(s, gamma, gamma) == pytest.approx(closed, rel=1e-14)


def test_length_tends_to_infinity() -> None:
    limit = Setting(4, 3, 2, *P)
    exact = theory.topicwise_attention_loss(limit, [2.0, 0.5], [1.0, 9.0], "diagonal")
    gaps = []
    for length in (200, 400, 800):
        s = replace(limit, document_length=length, weighting="token")
        gaps.append(np.abs(theory.topicwise_attention_loss(s, [2.0, 0.5], [1.0, 9.0], "diagonal") - exact))
    assert gaps[0] / gaps[1] == pytest.approx([2, 2], rel=0.1)  # the distance is of order 1/N
    assert gaps[1] / gaps[2] == pytest.approx([2, 2], rel=0.05)


def test_finite_documents_order_the_weights_as_knowl_9_measured() -> None:
    s = Setting(10, 10, 2, *P, 100)
    block, diagonal = (theory.topicwise_attention_optimum(s, v) for v in ("block", "diagonal"))
    assert block.beta < block.alpha
    assert block.alpha > 1
    assert diagonal.alpha < 1 < diagonal.beta
    assert "N = ∞" in block.violated_assumptions


def test_gamma_exceeds_one_exactly_when_several_topics_are_active() -> None:
    assert theory.topicwise_attention_optimum(Setting(10, 10, 1, *P)).gamma == pytest.approx(1, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(100):
        T = int(rng.integers(3, 200))
        p_c = float(rng.uniform(0.01, 0.6))
        s = Setting(T, int(rng.integers(1, 30)), int(rng.integers(2, T)), float(rng.uniform(0.02, 0.9)), p_c, 0.3)
        assert theory.topicwise_attention_optimum(s).gamma > 1


def test_sharper_limits() -> None:
    for tau in (2, 5, 20):
        s = Setting(10**8, 10, tau, *P)
        assert theory.topicwise_attention_optimum(s).gamma == pytest.approx(theory.block_limit(s), rel=1e-4)
        best = theory.topicwise_attention_optimum(s, "diagonal")
        assert (best.alpha, best.beta) == pytest.approx(theory.diagonal_limit(s), rel=1e-4)
        assert best.alpha < 1
    many = Setting(10**9, 10, 10**6, *P)
    assert theory.block_limit(many) / 10**6 == pytest.approx(1 / (0.9 * 0.15), rel=1e-5)


def test_edges() -> None:
    still = theory.topicwise_attention_optimum(Setting(5, 3, 2, 0.15, 0.0, 0.0), "diagonal")
    assert (still.alpha, still.beta) == (1.0, 1.0)
    lone = theory.topicwise_attention_optimum(Setting(5, 1, 2, *P), "diagonal")
    assert lone.alpha == lone.beta == lone.gamma
    no_random = theory.topicwise_attention_optimum(Setting(5, 3, 2, 0.15, 0.1, 0.0))
    assert no_random.upper_bound is None
    assert not no_random.bound_holds
    s = Setting(2, 2, 1, *P, 3)  # a document can consist of one topic, where α = β = 0 leaves no weight at all
    zero, near = (theory.topicwise_attention_loss(s, x, x, "diagonal") for x in (0.0, 1e-9))
    assert float(zero) == pytest.approx(float(near), rel=1e-8)


def test_a_weight_without_effect_is_one_instead_of_where_rounding_chose_it() -> None:
    """One token attends to itself; of two tokens of a topic, the block matrix maps both to the same output."""
    for setting in (Setting(1, 6, 1, 0.5, 0.1, 0.1, 1), Setting(3, 2, 2, 0.15, 0.5, 0.1, 1, "token")):
        for value in ("block", "diagonal"):
            best = theory.topicwise_attention_optimum(setting, value)
            assert (best.alpha, best.beta) == (1.0, 1.0)
    for setting in (Setting(1, 5, 1, 0.5, 0.1, 0.1, 2), Setting(3, 3, 2, 0.28, 0.29, 0.33, 2)):
        W = theory.value_matrix_optimum(replace(setting, document_length=None))
        best = theory.topicwise_attention_optimum(setting)
        losses = [enumerated_loss(setting, W, kernel=topicwise_kernel(setting, x, best.beta)) for x in (1.0, 1e3)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-13)
        assert best.alpha == 1.0
        assert np.isfinite(best.beta)
    assert theory.topicwise_attention_optimum(setting, "diagonal").alpha != 1.0


def test_what_cannot_be_is_refused() -> None:
    s = Setting(5, 3, 2, *P)
    with pytest.raises(InputError, match="negative"):
        theory.topicwise_attention_loss(s, -1.0, 1.0)
    with pytest.raises(InputError, match="infinite"):
        theory.topicwise_attention_loss(s, np.inf, 1.0)
    with pytest.raises(InputError, match="cross-entropy"):
        theory.topicwise_attention_loss(replace(s, document_length=5), 1.0, 1.0, "block", "cross_entropy")
    with pytest.raises(InputError, match="too long"):
        theory.topicwise_attention_loss(replace(s, document_length=10**6), 1.0, 1.0)
