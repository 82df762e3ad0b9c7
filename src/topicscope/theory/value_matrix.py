"""Theorem 2 (Knowl 2): the optimal value matrix under uniform attention, with any ridge and document length.

The moments C and X commute with every permutation of topics and of words inside a topic, so they act on four spaces
only: the plane of [MASK] and the constant, the contrasts between topics (dimension T-1) and the contrasts inside
topics (V-T). Each entry of the optimum therefore has a closed form that costs nothing at any V.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory.moments import TopicLaw, check_topics, selection_moments, uniform_law


@dataclass(frozen=True)
class ValueMatrixBlocks:
    """The distinct entries of a symmetric value matrix; row 0 is zero.

    | field | entry |
    | --- | --- |
    | mask_column | W_i0 |
    | different | W_il, i and l in different topics (meaningless at T = 1) |
    | same | W_il, i ≠ l in one topic (meaningless at v = 1) |
    | diagonal | W_ii |
    """

    mask_column: float
    different: float
    same: float
    diagonal: float

    def matrix(self, setting: Setting) -> Float[np.ndarray, "size size"]:
        """The (V+1) × (V+1) matrix W[out, in] with these entries."""
        T, v, V = setting.num_topics, setting.words_per_topic, setting.vocabulary_size
        W = np.zeros((V + 1, V + 1))
        W[1:, 0] = self.mask_column
        same_topic = np.kron(np.eye(T), np.ones((v, v)))
        W[1:, 1:] = self.different + (self.same - self.different) * same_topic
        np.fill_diagonal(W[1:, 1:], self.diagonal)
        return W


@dataclass(frozen=True)
class Eigenvalues:
    """Moments of the mean input on the spaces that the model's symmetry leaves invariant.

    mask_share: m' = E n_0/N; mask_variance: ν = Var(n_0/N), n_0 the number of [MASK] tokens.
    contrast_input, contrast_cross: eigenvalue of C and of X on contrasts between topics.
    within_input, within_cross: the same on contrasts inside topics (both 0 at N = ∞).
    """

    mask_share: float
    mask_variance: float
    contrast_input: float
    contrast_cross: float
    within_input: float
    within_cross: float


def moment_eigenvalues(setting: Setting) -> Eigenvalues:
    """With σ² = κ/v and k1, k2 of `selection_moments`: the scalars behind `value_matrix_blocks`, `value_matrix_loss`
    and stage one."""
    v, V, p_c, p_0 = setting.words_per_topic, setting.vocabulary_size, setting.p_correct, setting.p_mask_token
    if setting.document_length == 1 and p_0 == 1:  # the only token is always [MASK]; rounding must not look like signal
        return Eigenvalues(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    sigma2 = setting.kappa / v
    k1, k2 = selection_moments(setting)
    inverse_length = 0.0 if setting.document_length is None else 1 / setting.document_length
    mask_second = k2 * p_0**2 + inverse_length * k1 * p_0 * (1 - p_0)
    noise = (1 - k1) * (1 / V - sigma2) + k1 * ((p_c + setting.p_random) / V - p_c**2 * sigma2)
    return Eigenvalues(
        mask_share=k1 * p_0,
        mask_variance=0.0 if setting.document_length is None else mask_second - (k1 * p_0) ** 2,
        contrast_input=(1 - 2 * k1 * (1 - p_c) + k2 * (1 - p_c) ** 2) * sigma2 + inverse_length * noise,
        contrast_cross=(1 - k1 * (1 - p_c)) * sigma2 + p_c * inverse_length * (1 / V - sigma2),
        within_input=inverse_length * (1 - k1 * p_0) / V,
        within_cross=inverse_length * p_c / V,
    )


def value_matrix_blocks(setting: Setting, ridge: float = 0.0) -> ValueMatrixBlocks:
    """The entries of argmin L(W) + λ‖W‖² (the limit λ → 0 at λ = 0), in O(1) for any V.

        trivial plane:  (w_0, w_1) = (C₂ + λ)⁻¹ x₂ with x₂ = E (n_0/N, (1-n_0/N)/√V) and C₂ its second moment
        contrasts:      h = contrast_cross / (contrast_input + λ),   g = within_cross / (within_input + λ)
        W_i0 = w_0/V,   W_ww = w_1 J/V^{3/2} + h (BBᵀ/v - J/V) + g (I - BBᵀ/v)

    At N = ∞ and λ = 0 this is Theorem 2: W_i0 = m/(Vm² + (1-m)²), W_diff = (1-m)/(V(Vm² + (1-m)²)) - 1/(aV),
    W_same = W_diff + 1/(av). At finite N and λ = 0: W_i0 = 1/V, and a diagonal spike g. τ = T leaves h undetermined;
    the ridge limit h = 0 is returned.

    Source: Knowl 2 at N = ∞; its ridge and finite-N forms are ours.

    Raises:
        InputError: a negative ridge.
    """
    if not ridge >= 0:
        raise InputError("the ridge cannot be negative", received=ridge, expected="ridge >= 0")
    T, v, V = setting.num_topics, setting.words_per_topic, setting.vocabulary_size
    eigen = moment_eigenvalues(setting)
    x0, x1, variance = eigen.mask_share, (1 - eigen.mask_share) / np.sqrt(V), eigen.mask_variance
    if variance == 0:  # C₂ = x₂x₂ᵀ has rank one
        norm2 = x0**2 + x1**2
        w0, w1 = x0 / (norm2 + ridge), x1 / (norm2 + ridge)
    else:  # C₂ = x₂x₂ᵀ + ν ddᵀ, d = (1, -1/√V): the adjugate keeps full precision as λ → 0
        trace = x0**2 + x1**2 + variance * (1 + 1 / V)
        determinant = ridge**2 + ridge * trace + variance / V
        w0 = (variance / V + ridge * x0) / determinant
        w1 = (variance / np.sqrt(V) + ridge * x1) / determinant
    h = 0.0 if eigen.contrast_input == 0 else eigen.contrast_cross / (eigen.contrast_input + ridge)
    g = 0.0 if eigen.within_input == 0 else eigen.within_cross / (eigen.within_input + ridge)
    if T == 1:
        h = 0.0  # no contrast between topics exists
    if v == 1:
        g = 0.0  # no contrast inside a topic exists
    constant = float(w1) / V**1.5
    different = constant - h / V
    same = different + (h - g) / v
    return ValueMatrixBlocks(float(w0) / V, different, same, same + g)


def value_matrix_optimum(setting: Setting, ridge: float = 0.0) -> Float[np.ndarray, "size size"]:
    """The minimiser of L(W) + λ‖W‖² as a (V+1) × (V+1) matrix W[out, in]; see `value_matrix_blocks`."""
    return value_matrix_blocks(setting, ridge).matrix(setting)


def value_matrix_loss(setting: Setting) -> float:
    """The least squared loss under uniform attention and no bias: 1 - 1/(τv) at N = ∞, more at finite N.

    L* = 1 - [1/V + (T-1) contrast_cross²/contrast_input + (V-T) within_cross²/within_input]
    """
    T, V = setting.num_topics, setting.vocabulary_size
    eigen = moment_eigenvalues(setting)
    explained = 1 / V
    if eigen.contrast_input > 0:
        explained += (T - 1) * eigen.contrast_cross**2 / eigen.contrast_input
    if eigen.within_input > 0:
        explained += (V - T) * eigen.within_cross**2 / eigen.within_input
    return 1 - explained


def diagonal_value_matrix(setting: Setting) -> Float[np.ndarray, "size size"]:
    """Knowl 4's D^V: c3 on the diagonal of the words and -c1 in the [MASK] column, 0 elsewhere.

    The [MASK] column is needed when b = 0, which Knowl 4 does not say. D^V is one of the unregularised optima at N = ∞.
    """
    return diagonal_blocks(setting).matrix(setting)


def diagonal_blocks(setting: Setting) -> ValueMatrixBlocks:
    """The entries of `diagonal_value_matrix`: -c1 = -r/(a V m), 0, 0 and c3 = 1/a."""
    return ValueMatrixBlocks(-setting.r / (setting.a * setting.vocabulary_size * setting.m), 0.0, 0.0, 1 / setting.a)


def minimum_norm_value_matrix(
    phi: Float[np.ndarray, "topic word"], setting: Setting, law: TopicLaw | None = None
) -> Float[np.ndarray, "size size"]:
    """The N = ∞ optimum of least Frobenius norm for arbitrary topics: W* = [0; Φ] Q^½ pinv([m 1ᵀ; aΦ + r/V] Q^½).

    Q = E θθᵀ. When Q has full rank the law drops out: W* = [0; Φ] pinv([m 1ᵀ; aΦ + r/V]). With topics of unequal
    sizes v_t the same-minus-different gap is 1/(a v_t); a word of two topics gets weight with both. Its loss is
    `minimum_norm_loss`. Ours; Theorem 2 is the case of equal disjoint topics.

    phi: [topic, word], rows sum to 1. setting: only the masking rates and T are used, and τ when no law is given.
    law: of θ, τ-uniform by default.

    Raises:
        InputError: phi or the law speak of another number of topics than the setting.
    """
    law = uniform_law(setting.num_topics, setting.topics_per_document) if law is None else law
    check_topics(setting, phi, law)
    T, V = phi.shape
    values, vectors = np.linalg.eigh(law.second)
    values[values < 1e-13 * values.max()] = 0.0  # exact zeros of E θθᵀ (τ = T) come out as rounding
    root = vectors * np.sqrt(values)
    inputs = np.vstack([np.full((1, T), setting.m), setting.a * phi.T + setting.r / V]) @ root
    outputs = np.vstack([np.zeros((1, T)), phi.T]) @ root
    return np.asarray(outputs @ np.linalg.pinv(inputs, rcond=1e-12))


def minimum_norm_loss(phi: Float[np.ndarray, "topic word"], law: TopicLaw) -> float:
    """L* = 1 - tr(Φ E[θθᵀ] Φᵀ), the least N = ∞ squared loss under uniform attention; needs Φ of full column rank."""
    return 1 - float(np.sum((phi @ phi.T) * law.second))
