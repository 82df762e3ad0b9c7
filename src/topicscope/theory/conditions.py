"""The whole sets of unregularised optima at N = ∞ under uniform attention, as residuals of their linear conditions.

Both Theorem 1 (Knowl 1) and the lemma behind Theorem 2 say the same of a matrix W[out, in]: for some u, every row i has
topic means u_i, plus 1/(av) at the row's own topic, and a [MASK] column of -c2 u_i - c (c = c1 without a bias, 0 with
Theorem 1's bias, which does c1's work). They are necessary and sufficient for 1 ≤ τ < T and only sufficient at τ = T.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.synthetic import Setting
from topicscope.theory.uniform import check_size


@dataclass(frozen=True, eq=False)
class OptimumConditions:
    """How far a matrix is from the set of optima; residuals are largest absolute values, in the matrix's own units.

    | field | residual of |
    | --- | --- |
    | mask_row | row 0: topic means u_0, W_00 = -c2 u_0 |
    | mask_column | W_i0 = -c2 u_i - c, words i |
    | word_blocks | topic means u_i, and u_i + 1/(av) at i's own topic, words i |
    | u | [V+1], the constants, fitted to each row's topic means by least squares |
    | gap | average same-topic minus average different-topic entry, self-pairs included; 1/(av) at an optimum |
    | distinct_gap | the same without self-pairs; no sign is implied at an optimum |

    A gap is NaN where there is no such pair (T = 1; v = 1 for the distinct one).
    """

    mask_row: float
    mask_column: float
    word_blocks: float
    u: Float[np.ndarray, "size"]
    gap: float
    distinct_gap: float

    @property
    def residual(self) -> float:
        """The largest of the three; 0 exactly on the set of optima when τ < T."""
        return max(self.mask_row, self.mask_column, self.word_blocks)


def value_matrix_conditions(setting: Setting, W: Float[np.ndarray, "size size"]) -> OptimumConditions:
    """Residuals of the lemma behind Theorem 2: the optima W[out, in] with b = 0.

    Σ_{l∈t} W_il = u_i v (+ 1/a when t is i's topic), W_i0 = -c2 u_i - c1, W_00 = -c2 u_0.

    Raises:
        InputError: W does not fit the setting.
    """
    return _conditions(setting, W, setting.r / (setting.a * setting.vocabulary_size * setting.m))


def embedding_conditions(setting: Setting, E: Float[np.ndarray, "size size"]) -> OptimumConditions:
    """Residuals of Theorem 1's three conditions on the Gram matrix E = W_EᵀW_E, with its gap.

    Raises:
        InputError: E does not fit the setting.
    """
    return _conditions(setting, E, 0.0)


def _conditions(setting: Setting, W: np.ndarray, word_offset: float) -> OptimumConditions:
    check_size(setting, W, "the matrix")
    T, v, V = setting.num_topics, setting.words_per_topic, setting.vocabulary_size
    own = np.kron(np.eye(T), np.ones((v, 1)))  # [word, topic]
    means = W[:, 1:].reshape(-1, T, v).mean(axis=2)  # [V+1, topic]
    levels = means.copy()
    levels[1:] -= own / (setting.a * v)
    u = levels.mean(axis=1)
    spread = np.abs(levels - u[:, None])
    mask = np.abs(W[:, 0] + (1 / setting.m - 1) * u)
    mask[1:] = np.abs(W[1:, 0] + (1 / setting.m - 1) * u[1:] + word_offset)
    same = float((means[1:] * own).sum() / V)
    nan = float("nan")
    different = float((means[1:] * (1 - own)).sum() / (V * (T - 1))) if T > 1 else nan
    distinct = (same * v - float(np.trace(W[1:, 1:])) / V) / (v - 1) if v > 1 else nan
    return OptimumConditions(
        mask_row=float(max(spread[0].max(), mask[0])),
        mask_column=float(mask[1:].max()),
        word_blocks=float(spread[1:].max()),
        u=u,
        gap=same - different,
        distinct_gap=distinct - different,
    )
