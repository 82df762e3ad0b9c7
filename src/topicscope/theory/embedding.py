"""Theorem 1 (Knowl 1): optimal tied embeddings under uniform attention and an identity value matrix."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.fft import dct

from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory.moments import moments
from topicscope.theory.theorem import THEOREM_1, violated
from topicscope.theory.uniform import check_size, uniform_attention_loss


def embedding_bias(setting: Setting) -> Float[np.ndarray, "size"]:
    """Theorem 1's frozen output bias: -r/(aV) for words, 0 for [MASK]."""
    bias = np.full(setting.vocabulary_size + 1, -setting.r / (setting.a * setting.vocabulary_size))
    bias[0] = 0.0
    return bias


def embedding_loss(setting: Setting, W_E: Float[np.ndarray, "dimension size"]) -> float:
    """The squared loss of tied embeddings W_E [d, V+1]: W = W_EᵀW_E and Theorem 1's bias, uniform attention.

    Raises:
        InputError: W_E does not fit the setting.
    """
    E = W_E.T @ W_E
    check_size(setting, E, "the Gram matrix of W_E")
    return uniform_attention_loss(setting, E, embedding_bias(setting))


def embedding_gradient(
    setting: Setting, W_E: Float[np.ndarray, "dimension size"]
) -> Float[np.ndarray, "dimension size"]:
    """∂L/∂W_E = W_E (G + Gᵀ) with G = ∂L/∂W at W = W_EᵀW_E, from the exact moments."""
    G = moments(setting).gradient(W_E.T @ W_E, embedding_bias(setting))
    return np.asarray(W_E @ (G + G.T))


@dataclass(frozen=True, eq=False)
class EmbeddingOptimum:
    """One optimal embedding of the wanted dimension at N = ∞.

    | field | meaning |
    | --- | --- |
    | embedding | W_E [d, V+1], column 0 = [MASK] |
    | loss | its squared loss |
    | excess | loss above the unconstrained optimum 1 - 1/(τv): 0 for d ≥ T, (T-d)κ/v below |
    | excess_free_bias | the same when the output bias may be trained: max(0, T-1-d) κ/v |
    | gap | average same-topic minus different-topic entry of W_EᵀW_E; (d-1)/((T-1)av) below full rank |
    | violated_assumptions | those of Theorem 1 that the setting does not meet |
    """

    embedding: Float[np.ndarray, "dimension size"]
    loss: float
    excess: float
    excess_free_bias: float
    gap: float
    violated_assumptions: tuple[str, ...]


def embedding_optimum(setting: Setting, dimension: int) -> EmbeddingOptimum:
    """A least-loss W_E of d rows: √(1/(av)) · (the first d rows of an orthonormal basis of topic space that starts
    with 1).

    Derivation (ours; Theorem 1 is the case d ≥ T): with E = B G Bᵀ/(av), G positive semidefinite of rank ≤ d, the
    excess is κ(‖G-I‖² - |(G-I)1|²/T)/v + v|(G-I)1|²(1+r/a)²/V². A projector that keeps 1 and any d-1 contrasts leaves
    (T-d)κ/v.

    Raises:
        InputError: dimension < 1, or a finite document length (the optimum is derived for N = ∞).
    """
    if dimension < 1:
        raise InputError("an embedding needs a dimension", received=dimension, expected="dimension >= 1")
    if setting.document_length is not None:
        raise InputError(
            "the optimal embedding is derived for infinite documents",
            received=f"document_length = {setting.document_length}",
            expected="document_length = None",
            advice="use embedding_loss, which is exact at every length",
        )
    T, v, V = setting.num_topics, setting.words_per_topic, setting.vocabulary_size
    rank = min(dimension, T)
    basis = dct(np.eye(T), axis=0, norm="ortho")[:rank]  # row 0 is the constant
    W_E = np.zeros((dimension, V + 1))
    W_E[:rank, 1:] = np.repeat(basis, v, axis=1) / np.sqrt(setting.a * v)
    return EmbeddingOptimum(
        embedding=W_E,
        loss=embedding_loss(setting, W_E),
        excess=(T - rank) * setting.kappa / v,
        excess_free_bias=max(0, T - 1 - rank) * setting.kappa / v,
        gap=(rank - 1) / ((T - 1) * setting.a * v) if T > 1 else float("nan"),
        violated_assumptions=violated(THEOREM_1, setting),
    )
