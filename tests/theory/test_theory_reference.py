"""Reference values computed independently in 30-digit arithmetic, and the paper's landscape figures."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from topicscope import theory
from topicscope.synthetic import Setting
from topicscope.theory.value_matrix import moment_eigenvalues

S = Setting(10, 10, 2, 0.15, 0.1, 0.1)
LONG = replace(S, document_length=100)


def digits(value: float, reference: str) -> bool:
    """Equal to every digit of the reference, one unit of its last digit allowed."""
    decimals = reference.split("e", maxsplit=1)[0].split(".")[1]
    exponent = int(reference.split("e")[1]) if "e" in reference else 0
    return abs(value - float(reference)) <= 1.01 * 10.0 ** (exponent - len(decimals))


def test_rates() -> None:
    assert digits(S.a, "0.865")
    assert digits(S.r, "0.015")
    assert digits(S.m, "0.12")
    assert digits(S.kappa, "0.0444444444444")


def test_theorem_2() -> None:
    blocks = theory.value_matrix_blocks(S)
    assert digits(blocks.mask_column, "0.054190751445087")
    assert digits(blocks.different, "-0.0075867052023121")
    assert digits(blocks.same, "0.10802023121387")
    assert digits(float(np.linalg.norm(theory.value_matrix_optimum(S))), "3.53271240949")


def test_theorem_3() -> None:
    best = theory.topicwise_attention_optimum(S, value="block")
    assert digits(best.gamma, "5.7629127958366")
    assert digits(best.loss, "0.9461027399915445")
    assert digits(float(theory.topicwise_attention_loss(S, 5, 5)), "0.94611613235512")
    assert digits(theory.topicwise_attention_optimum(replace(S, topics_per_document=5)).gamma, "8.1844752651235")
    assert digits(theory.block_limit(S), "14.0527003")


def test_theorem_4() -> None:
    best = theory.topicwise_attention_optimum(S, value="diagonal")
    assert best.alpha == pytest.approx(0.87387875221594, rel=1e-10)
    assert best.beta == pytest.approx(57.094386554011, rel=1e-10)
    assert digits(best.loss, "0.8709157170779998")
    assert digits(float(theory.topicwise_attention_loss(S, 0, 20, "diagonal")), "0.87417662338949")
    five = theory.topicwise_attention_optimum(replace(S, topics_per_document=5), value="diagonal")
    assert five.alpha == pytest.approx(0.94749630510008, rel=1e-10)
    assert five.beta == pytest.approx(78.271517502492, rel=1e-10)


def test_bounds_in_the_papers_own_words() -> None:
    p_m, p_c, p_r, T, tau, v = 0.15, 0.1, 0.1, 10, 2, 10
    keep = 1 - (1 - p_c) * p_m
    lambda_1 = (keep + p_m * p_r) * (1 + (1 - p_c) * p_m) / (2 * keep)
    lambda_2 = 100 * (keep / (p_m * p_r) + 1)
    lambda_3 = (keep + p_m * p_r) / 100 * v
    lambda_4 = keep / (np.sqrt(v - 1) - 2 + (1 - p_c) * p_m) * (1 - (1 - p_c - p_r) * p_m) / (p_m * p_r) * v
    lambda_5 = 1 / ((v - 1) * keep)
    assert theory.block_bounds(S) == pytest.approx((lambda_1 * (tau - 1), lambda_2 * T), rel=1e-13)
    assert theory.diagonal_bounds(S) == pytest.approx((lambda_3 * tau, lambda_4 * T, lambda_5), rel=1e-13)
    best = theory.topicwise_attention_optimum(S, "diagonal")
    assert best.alpha_bound == pytest.approx(lambda_5 * best.beta)


def test_bayes_and_cross_entropy() -> None:
    assert digits(theory.bayes_loss(S), "0.87083333")
    assert digits(theory.bayes_loss(S, "cross_entropy"), "2.74461623766039")
    ridge = theory.uniform_cross_entropy_optimum(Setting(4, 3, 2, 0.15, 0.1, 0.1), 0.01)
    assert digits(ridge.objective, "2.5150410472")


def test_the_chain_of_models() -> None:
    losses = [
        theory.value_matrix_loss(S),
        theory.topicwise_attention_optimum(S, "block").loss,
        theory.topicwise_attention_optimum(S, "diagonal").loss,
        theory.bayes_loss(S),
    ]
    assert losses == pytest.approx([0.95, 0.94610274, 0.87091572, 0.87083333], abs=5e-9)


def test_dynamics() -> None:
    norms = theory.initial_gradient_norms(S, 0.01)
    assert digits(norms.value_at_zero, "0.037654098198")
    assert digits(norms.attention_scale, "0.028606194306")
    rates = theory.growth_rates(S, 1)
    assert digits(rates.value_mask, "0.044288")
    assert digits(rates.value_topic, "0.00665088888889")
    assert digits(rates.attention, "5.57482337829e-5")
    block, diagonal = theory.stage_two_drift(S), theory.stage_two_drift(S, "diagonal")
    assert digits(block.same_topic, "5.017341040e-6")
    assert digits(block.different_topic, "-5.574823378e-7")
    assert digits(diagonal.same_word, "9.532947977e-5")
    assert digits(diagonal.same_topic, "-5.017341040e-6")
    assert digits(diagonal.different_topic, "-5.574823378e-7")


def test_finite_documents() -> None:
    eigen = moment_eigenvalues(LONG)
    assert digits(eigen.contrast_cross / eigen.contrast_input, "1.138989245896")
    assert digits(eigen.within_cross / eigen.within_input, "0.113636364992")
    assert digits(theory.value_matrix_loss(LONG), "0.950431750439")
    block = theory.topicwise_attention_loss(LONG, [1, 5], [1, 2])
    diagonal = theory.topicwise_attention_loss(LONG, [1, 0], [1, 20], "diagonal")
    assert digits(float(block[0]), "0.950809191791")
    assert digits(float(block[1]), "0.947005022249")
    assert digits(float(diagonal[0]), "0.959064886667")
    assert digits(float(diagonal[1]), "0.888017936987")


@pytest.mark.parametrize(
    ("tau", "block", "diagonal"),
    [
        (2, (6.5, 0.5, "0.9469654877"), (0.0, 24.0, "0.8877667844")),
        (3, (8.0, 1.0, "0.9627989865"), (0.0, 30.0, "0.9114150885")),
        (5, (9.0, 2.5, "0.9760474470"), (0.0, 36.0, "0.9339160002")),
    ],
)
def test_landscape_figures(tau: int, block: tuple[float, float, str], diagonal: tuple[float, float, str]) -> None:
    setting = replace(LONG, topics_per_document=tau)
    grids = {
        "block": (np.arange(41) * 0.5, np.arange(41) * 0.5),
        "diagonal": (np.arange(31) * 0.1, np.arange(101) * 2.0),
    }
    for value, (alpha, beta, loss) in (("block", block), ("diagonal", diagonal)):
        alphas, betas = grids[value]
        landscape = theory.attention_landscape(setting, alphas, betas, value=value)
        i, j = np.unravel_index(landscape.argmin(), landscape.shape)
        assert (alphas[i], betas[j]) == pytest.approx((alpha, beta))
        assert digits(float(landscape[i, j]), loss)
        best = theory.topicwise_attention_optimum(setting, value)
        assert landscape[i, j] - 2e-5 < best.loss <= landscape[i, j]
        assert abs(best.alpha - alpha) <= 0.5
        assert abs(best.beta - beta) <= 2.0


def test_theory_needs_no_torch() -> None:
    code = "import sys, topicscope.theory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
