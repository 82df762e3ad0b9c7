"""Theorem 2 and its ridge, finite-N and arbitrary-topic forms, against gradients of the enumerated loss."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from theory.theory_settings import finite_settings, infinite_settings
from topicscope import theory
from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory import enumerated_loss
from topicscope.theory.moments import disjoint_phi

QUICK = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SETTINGS = [
    Setting(3, 2, 2, 0.3, 0.2, 0.25),
    Setting(3, 2, 1, 0.15, 0.1, 0.1),
    Setting(2, 2, 1, 0.3, 0.0, 0.25, 3, "token"),
    Setting(2, 2, 2, 0.3, 0.2, 0.0, 2),
    Setting(3, 1, 2, 0.6, 0.2, 0.25, 3),
]


def enumerated_gradient(setting: Setting, W: np.ndarray) -> np.ndarray:
    """∂L/∂W by central differences, exact for a quadratic loss."""
    gradient = np.zeros_like(W)
    for index in np.ndindex(*W.shape):
        step = np.zeros_like(W)
        step[index] = 0.5
        gradient[index] = enumerated_loss(setting, W + step) - enumerated_loss(setting, W - step)
    return gradient


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("ridge", [0.0, 0.02])
def test_the_gradient_of_the_enumerated_loss_vanishes_at_the_optimum(setting: Setting, ridge: float) -> None:
    W = theory.value_matrix_optimum(setting, ridge)
    assert np.abs(enumerated_gradient(setting, W) + 2 * ridge * W).max() < 1e-12
    if ridge == 0:
        assert enumerated_loss(setting, W) == pytest.approx(theory.value_matrix_loss(setting), rel=1e-13)


@QUICK
@given(st.one_of(infinite_settings(), finite_settings()), st.integers(0, 2**31))
def test_no_perturbation_lowers_the_loss(setting: Setting, seed: int) -> None:
    W = theory.value_matrix_optimum(setting)
    best = theory.value_matrix_loss(setting)
    assert theory.uniform_attention_loss(setting, W) == pytest.approx(best, rel=1e-12)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 3.0):
        assert theory.uniform_attention_loss(setting, W + size * rng.normal(size=W.shape)) >= best - 1e-13


@QUICK
@given(st.one_of(infinite_settings(), finite_settings()), st.floats(1e-3, 10))
def test_blocks_equal_the_dense_solution(setting: Setting, ridge: float) -> None:
    exact = theory.moments(setting)
    dense = np.linalg.solve(exact.input_second + ridge * np.eye(len(exact.cross)), exact.cross).T
    assert theory.value_matrix_optimum(setting, ridge) == pytest.approx(dense, abs=1e-12)


@QUICK
@given(infinite_settings())
def test_without_a_ridge_the_infinite_optimum_is_the_one_of_least_norm(setting: Setting) -> None:
    exact = theory.moments(setting)
    least = exact.cross.T @ np.linalg.pinv(exact.input_second, rcond=1e-11, hermitian=True)
    assert theory.value_matrix_optimum(setting) == pytest.approx(least, abs=1e-9)


def test_theorem_2_in_the_papers_constants() -> None:
    s = Setting(10, 10, 2, 0.15, 0.1, 0.1)
    V, c1, c2, c3 = 100, 0.1 / (0.8 * 0.865 * 100), 1 / (0.8 * 0.15) - 1, 1 / 0.865
    blocks = theory.value_matrix_blocks(s)
    assert blocks.mask_column == pytest.approx((c2 * c3 - c1 * V) / (c2**2 + V), rel=1e-13)
    assert blocks.different == pytest.approx(-(c1 * c2 + c3) / (c2**2 + V), rel=1e-13)
    assert blocks.same == pytest.approx(blocks.different + c3 / 10, rel=1e-13)
    assert blocks.diagonal == blocks.same


def test_c1_may_exceed_one() -> None:
    s = Setting(6, 3, 2, 0.5, 0.05, 0.9)
    assert 0.9 / ((1 - 0.95) * s.a * 18) == pytest.approx(1.905, abs=1e-3)
    W = theory.value_matrix_optimum(s)
    assert np.abs(theory.moments(s).gradient(W)).max() < 1e-14


@QUICK
@given(infinite_settings())
def test_same_topic_entries_are_positive_and_different_ones_negative(setting: Setting) -> None:
    blocks = theory.value_matrix_blocks(setting)
    if setting.topics_per_document < setting.num_topics:
        assert blocks.different < 0 < blocks.same


def test_the_limits_of_no_ridge_and_long_documents_do_not_commute() -> None:
    limit = Setting(4, 3, 2, 0.3, 0.2, 0.25)
    theorem_2 = theory.value_matrix_optimum(limit)
    ridge_last = theory.value_matrix_optimum(replace(limit, document_length=10**9))
    length_last = theory.value_matrix_optimum(replace(limit, document_length=10**12), ridge=1e-6)
    assert length_last == pytest.approx(theorem_2, abs=1e-4)
    spike = limit.p_correct / (1 - limit.m)
    assert theory.value_matrix_blocks(replace(limit, document_length=10**9)).diagonal - theory.value_matrix_blocks(
        replace(limit, document_length=10**9)
    ).same == pytest.approx(spike, rel=1e-6)
    assert np.abs(ridge_last - theorem_2).max() > 0.1


def test_at_tau_equal_T_the_ridge_limit_is_returned() -> None:
    s = Setting(3, 2, 3, 0.3, 0.2, 0.25)
    blocks = theory.value_matrix_blocks(s)
    assert blocks.same == blocks.different
    near = theory.value_matrix_blocks(s, ridge=1e-9)
    assert blocks.mask_column == pytest.approx(near.mask_column, rel=1e-6)


def test_conditions_hold_on_the_whole_set_and_only_there() -> None:
    s = Setting(3, 2, 2, 0.3, 0.2, 0.25)
    rng = np.random.default_rng(0)
    _, vectors = np.linalg.eigh(theory.moments(s).input_second)
    null_space = vectors[:, : 7 - 3]  # C has rank T
    for start in (theory.value_matrix_optimum(s), theory.diagonal_value_matrix(s)):
        W = start + rng.normal(size=(7, 4)) @ null_space.T
        conditions = theory.value_matrix_conditions(s, W)
        assert conditions.residual < 1e-13
        assert conditions.gap == pytest.approx(1 / (s.a * 2), rel=1e-12)
        assert theory.uniform_attention_loss(s, W) == pytest.approx(theory.value_matrix_loss(s), rel=1e-13)
        off = W + 1e-3 * rng.normal(size=(7, 3)) @ vectors[:, 4:].T
        assert theory.value_matrix_conditions(s, off).residual > 1e-4
        assert theory.uniform_attention_loss(s, off) > theory.value_matrix_loss(s) + 1e-8


@pytest.mark.parametrize("part", [(0, 0), (0, 3), (4, 0), (4, 4)])
def test_each_condition_notices_its_part(part: tuple[int, int]) -> None:
    s = Setting(3, 2, 2, 0.3, 0.2, 0.25)
    W = theory.value_matrix_optimum(s)
    W[part] += 0.1
    found = theory.value_matrix_conditions(s, W)
    broken = {
        "mask_row": found.mask_row > 0.01,
        "mask_column": found.mask_column > 0.01,
        "word_blocks": found.word_blocks > 0.01,
    }
    assert broken["mask_row"] == (part[0] == 0)
    assert (broken["mask_column"] or broken["word_blocks"]) == (part[0] > 0)
    assert broken["word_blocks"] == (part == (4, 4))


def test_arbitrary_topics_the_least_norm_optimum() -> None:
    rng = np.random.default_rng(1)
    s = Setting(3, 1, 2, 0.3, 0.2, 0.25)
    phi = rng.dirichlet(np.full(7, 0.4), size=3)
    for law in (theory.uniform_law(3, 2), theory.dirichlet_law(np.array([0.3, 0.6, 1.1]))):
        W = theory.minimum_norm_value_matrix(phi, s, law)
        exact = theory.moments(s, phi, law)
        assert np.abs(exact.gradient(W)).max() < 1e-13
        least = exact.cross.T @ np.linalg.pinv(exact.input_second, rcond=1e-11, hermitian=True)
        assert pytest.approx(least, abs=1e-9) == W
        assert exact.loss(W) == pytest.approx(theory.minimum_norm_loss(phi, law), rel=1e-12)
    assert enumerated_loss(s, theory.minimum_norm_value_matrix(phi, s), phi=phi) == pytest.approx(
        theory.minimum_norm_loss(phi, theory.uniform_law(3, 2)), rel=1e-12
    )


def test_equal_disjoint_topics_are_theorem_2() -> None:
    for tau in (1, 2, 3):
        s = Setting(3, 2, tau, 0.3, 0.2, 0.25)
        assert theory.minimum_norm_value_matrix(disjoint_phi(s), s) == pytest.approx(
            theory.value_matrix_optimum(s), abs=1e-12
        )


def test_unequal_topics_have_unequal_gaps_and_a_shared_word_belongs_to_both() -> None:
    s = Setting(3, 1, 1, 0.15, 0.1, 0.1)
    phi = np.zeros((3, 9))
    phi[0, :2], phi[1, 2:5], phi[2, 5:9] = 1 / 2, 1 / 3, 1 / 4
    W = theory.minimum_norm_value_matrix(phi, s)
    for size, (i, same, different) in zip((2, 3, 4), [(1, 2, 4), (3, 4, 7), (6, 7, 1)], strict=True):
        assert W[i, same] - W[i, different] == pytest.approx(1 / (s.a * size), rel=1e-12)
    shared = phi.copy()
    shared[1, 1:5] = 1 / 4  # word 2 (index 1) now lives in topics 0 and 1
    W = theory.minimum_norm_value_matrix(shared, s)
    assert min(W[2, 1], W[2, 4]) > W[2, 7] + 0.1


def test_blocks_cost_nothing_at_a_million_words() -> None:
    blocks = theory.value_matrix_blocks(Setting(10**5, 10, 3, 0.15, 0.1, 0.1))
    assert blocks.same - blocks.different == pytest.approx(1 / (0.865 * 10), rel=1e-10)


def test_a_document_of_one_mask_teaches_nothing() -> None:
    blocks = theory.value_matrix_blocks(Setting(3, 2, 1, 0.3, 0.0, 0.0, 1))
    assert blocks.mask_column == pytest.approx(1 / 6)
    assert (blocks.different, blocks.same, blocks.diagonal) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: theory.value_matrix_blocks(s, -1.0),
        lambda s: theory.uniform_attention_loss(s, np.eye(3)),
        lambda s: theory.uniform_attention_loss(s, np.eye(7), np.zeros(3)),
        lambda s: theory.value_matrix_conditions(s, np.eye(3)),
        lambda s: theory.moments(s, np.eye(4)),
        lambda s: theory.moments(s, np.ones((3, 4))),
        lambda s: theory.minimum_norm_value_matrix(np.eye(3), s, theory.uniform_law(4, 2)),
        lambda s: theory.dirichlet_law(np.array([1.0, 0.0])),
    ],
)
def test_what_cannot_be_is_refused(call: object) -> None:
    with pytest.raises(InputError):
        call(Setting(3, 2, 2, 0.3, 0.2, 0.25))  # type: ignore[operator]
