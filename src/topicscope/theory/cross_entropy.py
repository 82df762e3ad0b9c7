"""Cross-entropy under uniform attention: an exact three-parameter problem."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError, RunError
from topicscope.synthetic import Setting


@dataclass(frozen=True, eq=False)
class CrossEntropyOptimum:
    """The minimiser of CE(W) + λ‖W‖² over all value matrices, N = ∞, uniform attention, no bias.

    | field | meaning |
    | --- | --- |
    | c0, c1, eta | W = c0 e_0 x̂ᵀ + c1 1_w x̂ᵀ + η (BBᵀ/v - J/V), x̂ = x̄0/√λ0, x̄0 = (m, (1-m)/V, …) |
    | objective | CE + λ(c0² + V c1² + (T-1) η²) |
    | cross_entropy | CE alone; at least log(τv), which no finite W attains |
    """

    c0: float
    c1: float
    eta: float
    objective: float
    cross_entropy: float

    def matrix(self, setting: Setting) -> Float[np.ndarray, "size size"]:
        """W[out, in], (V+1) × (V+1)."""
        T, v, V = setting.num_topics, setting.words_per_topic, setting.vocabulary_size
        x = np.full(V + 1, (1 - setting.m) / V)
        x[0] = setting.m
        x /= np.linalg.norm(x)
        W = np.outer(np.concatenate([[self.c0], np.full(V, self.c1)]), x)
        W[1:, 1:] += self.eta * (np.kron(np.eye(T), np.ones((v, v))) / v - 1 / V)
        return W


def uniform_cross_entropy_optimum(setting: Setting, ridge: float) -> CrossEntropyOptimum:
    """Minimise log(e^{z0} + τv e^{zA} + (T-τ)v e^{zI}) - zA + λ(c0² + V c1² + (T-1)η²) by Newton's method.

        z0 = c0 √λ0,  zA = c1 √λ0 + η a (1/τ - 1/T)/v,  zI = c1 √λ0 - η a/(vT),  λ0 = m² + (1-m)²/V

    The problem is strictly convex, and symmetry under permutations puts the minimiser of the full problem into this
    family. Without a ridge the infimum log(τv) is not attained: η → ∞. Ours.

    Raises:
        InputError: a ridge that is not positive, or a finite document length.
        RunError: Newton's method did not converge.
    """
    if not ridge > 0:
        raise InputError(
            "no optimum without a ridge",
            received=ridge,
            expected="ridge > 0",
            advice="at ridge 0 the infimum is log(τv) and the value matrix diverges",
        )
    if setting.document_length is not None:
        raise InputError(
            "the cross-entropy optimum is derived for infinite documents",
            received=f"document_length = {setting.document_length}",
            expected="document_length = None",
        )
    T, v, V, tau = setting.num_topics, setting.words_per_topic, setting.vocabulary_size, setting.topics_per_document
    root = np.sqrt(setting.m**2 + (1 - setting.m) ** 2 / V)
    along = setting.a / v
    logits = np.array([[root, 0, 0], [0, root, along * (1 / tau - 1 / T)], [0, root, -along / T]])
    log_counts = np.log(np.array([1.0, tau * v, max((T - tau) * v, 1)]))
    if tau == T:
        logits, log_counts = logits[:2], log_counts[:2]
    penalty = ridge * np.array([1.0, V, T - 1])

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        scores = logits @ x + log_counts
        log_sum = float(np.logaddexp.reduce(scores))
        return log_sum - float(logits[1] @ x), np.exp(scores - log_sum)

    def objective(x: np.ndarray) -> float:
        return evaluate(x)[0] + float(penalty @ x**2)

    x = np.zeros(3)
    for _ in range(200):
        _, share = evaluate(x)
        gradient = logits.T @ share - logits[1] + 2 * penalty * x
        hessian = logits.T @ (np.diag(share) - np.outer(share, share)) @ logits + np.diag(2 * penalty)
        if T == 1:  # no contrast between topics exists: η multiplies a zero matrix
            hessian[2, 2] = 1.0
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while objective(x - size * step) > objective(x) + 1e-14 and size > 1e-12:
            size /= 2
        x = x - size * step
        if gradient @ step <= 1e-16:  # the objective is at its minimum to rounding
            cross_entropy = evaluate(x)[0]
            c0, c1, eta = x.tolist()
            return CrossEntropyOptimum(c0, c1, eta, objective(x), cross_entropy)
    raise RunError("the cross-entropy optimum did not converge", received=f"ridge = {ridge}", where=repr(setting))
