"""Sums of rational terms in the attention weights (α, β): the form that every topic-wise squared loss has.

A query's attention column is normalised by a weight Z that is linear in z = (1, α, β), and its output is linear in z over
Z, so its squared loss is N(z)/Z(z)² - 2 M(z)/Z(z) + 1 with N quadratic and M linear. Value, gradient and Hessian then cost
three matrix products for any number of terms and points.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_CHUNK = 1 << 18  # terms × points held at once: 2 MB a temporary array


def product(
    left: Float[np.ndarray, "*terms 3"], right: Float[np.ndarray, "*terms 3"]
) -> Float[np.ndarray, "*terms 6"]:
    """The quadratic left(z)·right(z) in coefficients of 1, α, β, α², αβ, β²."""
    (a0, a1, a2), (b0, b1, b2) = np.moveaxis(left, -1, 0), np.moveaxis(right, -1, 0)
    return np.stack([a0 * b0, a0 * b1 + a1 * b0, a0 * b2 + a2 * b0, a1 * b1, a1 * b2 + a2 * b1, a2 * b2], axis=-1)


@dataclass(frozen=True, eq=False)
class RationalLoss:
    """L(α, β) = constant + Σ_k [N_k(z)/Z_k(z)² - 2 M_k(z)/Z_k(z)], z = (1, α, β); weights are folded into N and M.

    | field | meaning | shape |
    | --- | --- | --- |
    | quadratic | N_k, coefficients of 1, α, β, α², αβ, β² | [terms, 6] |
    | linear | M_k, coefficients of 1, α, β | [terms, 3] |
    | normaliser | Z_k, coefficients of 1, α, β | [terms, 3] |
    | constant | what does not depend on the attention | |
    """

    quadratic: Float[np.ndarray, "terms 6"]
    linear: Float[np.ndarray, "terms 3"]
    normaliser: Float[np.ndarray, "terms 3"]
    constant: float

    def __call__(
        self, alpha: Float[np.ndarray, "*points"], beta: Float[np.ndarray, "*points"]
    ) -> Float[np.ndarray, "*points"]:
        """The loss at each point; memory stays bounded for any number of points."""
        flat_alpha, flat_beta = alpha.ravel(), beta.ravel()
        result = np.full(flat_alpha.shape, self.constant)
        step = max(1, _CHUNK // max(1, len(self.linear)))
        for start in range(0, len(result), step):
            x, y = flat_alpha[start : start + step], flat_beta[start : start + step]
            z = np.stack([np.ones_like(x), x, y])
            inverse = 1 / (self.normaliser @ z)
            value = self.quadratic @ np.concatenate([z, [x * x, x * y, y * y]])
            value *= inverse
            value -= 2 * (self.linear @ z)
            result[start : start + step] += np.einsum("tp,tp->p", value, inverse)
        return result.reshape(alpha.shape)

    def derivatives(self, alpha: float, beta: float) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2 2"]]:
        """Gradient and Hessian in (α, β) at one point."""
        z = np.array([1.0, alpha, beta])
        c = self.quadratic.T
        N = self.quadratic @ np.array([1.0, alpha, beta, alpha**2, alpha * beta, beta**2])
        dN = np.stack([c[1] + 2 * c[3] * alpha + c[4] * beta, c[2] + c[4] * alpha + 2 * c[5] * beta])
        ddN = np.array([[2 * c[3].T, c[4].T], [c[4].T, 2 * c[5].T]])
        Z, dZ = self.normaliser @ z, self.normaliser.T[1:]
        M, dM = self.linear @ z, self.linear.T[1:]
        gradient = dN / Z**2 - 2 * N * dZ / Z**3 - 2 * dM / Z + 2 * M * dZ / Z**2
        cross_N = dN[:, None] * dZ[None] + dZ[:, None] * dN[None]
        cross_M = dM[:, None] * dZ[None] + dZ[:, None] * dM[None]
        dZdZ = dZ[:, None] * dZ[None]
        hessian = ddN / Z**2 - 2 * cross_N / Z**3 + 6 * N * dZdZ / Z**4 + 2 * cross_M / Z**2 - 4 * M * dZdZ / Z**3
        return gradient.sum(axis=1), hessian.sum(axis=2)

    def minimise(self, directions: Float[np.ndarray, "2 free"], largest: float) -> Float[np.ndarray, "2"]:
        """The least point (α, β) = directions @ x over x ≥ 0, globally on a grid, then by projected Newton steps.

        directions: [[1, 0], [0, 1]] for both weights, [[1], [1]] for the ridge α = β.
        largest: the grid covers 0 and 1e-3 … largest evenly in the logarithm (120 points, 48 a side in two dimensions).
        """
        free = directions.shape[1]
        axis = np.concatenate([[0.0], np.geomspace(1e-3, largest, 120 if free == 1 else 48)])
        points = np.stack([x.ravel() for x in np.meshgrid(*[axis] * free, indexing="ij")])
        alpha, beta = directions @ points
        x = points[:, np.argmin(self(alpha, beta))]
        for _ in range(100):
            step = self._newton_step(directions, x)
            moved = self._backtrack(directions, x, step)
            done = np.abs(moved - x).max() <= 4e-16 * np.abs(x).max()
            x = moved
            if done:
                break
        point: np.ndarray = directions @ x
        return point

    def _newton_step(self, directions: np.ndarray, x: np.ndarray) -> np.ndarray:
        gradient, hessian = self.derivatives(*(directions @ x).tolist())
        gradient, hessian = directions.T @ gradient, directions.T @ hessian @ directions
        inside = ~((x == 0) & (gradient >= 0))
        step = np.zeros_like(x)
        if inside.any():
            values, vectors = np.linalg.eigh(hessian[np.ix_(inside, inside)])
            # Reflecting negative curvature keeps every step a descent direction.
            curvature = np.maximum(np.abs(values), 1e-12 * np.abs(values).max() + 1e-300)
            step[inside] = -vectors @ ((vectors.T @ gradient[inside]) / curvature)
        return step

    def _backtrack(self, directions: np.ndarray, x: np.ndarray, step: np.ndarray) -> np.ndarray:
        if np.abs(step).max() <= 1e-6 * np.abs(x).max():
            return np.asarray(np.maximum(x + step, 0.0))  # the loss is flat to rounding here; the gradient is not
        here = self._value(directions, x)
        for halving in range(60):
            moved = np.maximum(x + step * 0.5**halving, 0.0)
            if self._value(directions, moved) < here:
                return np.asarray(moved)
        return x

    def _value(self, directions: np.ndarray, x: np.ndarray) -> float:
        point = directions @ x
        return float(self(point[:1], point[1:])[0])
