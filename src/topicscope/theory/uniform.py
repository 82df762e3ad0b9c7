"""The exact squared loss under uniform attention (W_K = W_Q = 0), for any value matrix and bias."""

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.synthetic import Setting
from topicscope.theory.moments import moments


def uniform_attention_loss(
    setting: Setting, W: Float[np.ndarray, "size size"], b: Float[np.ndarray, "outputs"] | None = None
) -> float:
    """E ‖W x̄ + b - x_j‖² over documents, masks and selected positions j, x̄ the mean one-hot input.

    N = ∞, in O(V²), with B [V, T] the topic indicator and κ the variance of the topic proportions:

        A = (a/v) W[:,1:] B;  A[1:] -= B/v;  c = m W[:,0] + (r/V) W[:,1:] 1 + b
        L = 1 - 1/(τv) + κ(‖A‖² - ‖A1‖²/T) + ‖A1/T + c‖²

    Finite N: through `moments`, in O(V³).

    W: [V+1 out, V+1 in], index 0 = [MASK]; b: [V+1], 0 by default. Source: Knowl 6; the closed form is ours.

    Raises:
        InputError: W or b does not fit the setting's V + 1 tokens.
    """
    check_size(setting, W, "W")
    if b is not None and len(b) != len(W):
        raise InputError("b has the wrong size", received=b.shape, expected=(len(W),))
    if setting.document_length is not None:
        return moments(setting).loss(W, b)
    T, v, tau = setting.num_topics, setting.words_per_topic, setting.topics_per_document
    A = setting.a / v * W[:, 1:].reshape(-1, T, v).sum(axis=2)
    A[1:] -= np.kron(np.eye(T), np.full((v, 1), 1 / v))
    c = setting.m * W[:, 0] + setting.r / setting.vocabulary_size * W[:, 1:].sum(axis=1)
    if b is not None:
        c = c + b
    A1 = A.sum(axis=1)
    spread = np.sum(A**2) - A1 @ A1 / T
    return float(1 - 1 / (tau * v) + setting.kappa * spread + np.sum((A1 / T + c) ** 2))


def check_size(setting: Setting, matrix: np.ndarray, name: str) -> None:
    """Refuse a matrix that is not (V+1) × (V+1)."""
    size = setting.vocabulary_size + 1
    if matrix.shape != (size, size):
        raise InputError(
            f"{name} has the wrong shape",
            received=matrix.shape,
            expected=f"({size}, {size}): [MASK] and the {size - 1} words of the setting",
        )
