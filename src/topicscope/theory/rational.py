"""Sums of rational terms in the attention weights (α, β): the form that every topic-wise squared loss has.

A query's attention column is normalised by a weight Z that is linear in z = (1, α, β), and its output is linear in z
over Z, so its squared loss is N(z)/Z(z)² - 2 M(z)/Z(z) + 1 with N quadratic and M linear. Value, gradient and Hessian
then cost three matrix products for any number of terms and points.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_CHUNK = 1 << 18  # terms × points held at once: 2 MB a temporary array
_TINY = 1e-100  # stands for a weight of 0: where a whole document has weight 0, the limit along α = β is meant
_FLAT = 1e-14  # below this, differences of the loss are rounding and the gradient decides


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The quadratic left(z)·right(z) in coefficients of 1, α, β, α², αβ, β²: [..., 3] and [..., 3] to [..., 6]."""
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

    def __call__(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """The loss at each point of two arrays of one shape; memory stays bounded for any number of points."""
        flat_alpha, flat_beta = np.maximum(alpha.ravel(), _TINY), np.maximum(beta.ravel(), _TINY)
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

    def derivatives(self, alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """Gradient [2] and Hessian [2, 2] in (α, β) at one point, without terms whose weights are all 0 there."""
        z = np.array([1.0, alpha, beta])
        kept = self.normaliser @ z > 0
        quadratic, linear, normaliser = self.quadratic[kept], self.linear[kept], self.normaliser[kept]
        c = quadratic.T
        N = quadratic @ np.array([1.0, alpha, beta, alpha**2, alpha * beta, beta**2])
        dN = np.stack([c[1] + 2 * c[3] * alpha + c[4] * beta, c[2] + c[4] * alpha + 2 * c[5] * beta])
        ddN = np.array([[2 * c[3].T, c[4].T], [c[4].T, 2 * c[5].T]])
        Z, dZ = normaliser @ z, normaliser.T[1:]
        M, dM = linear @ z, linear.T[1:]
        gradient = dN / Z**2 - 2 * N * dZ / Z**3 - 2 * dM / Z + 2 * M * dZ / Z**2
        cross_N = dN[:, None] * dZ[None] + dZ[:, None] * dN[None]
        cross_M = dM[:, None] * dZ[None] + dZ[:, None] * dM[None]
        dZdZ = dZ[:, None] * dZ[None]
        hessian = ddN / Z**2 - 2 * cross_N / Z**3 + 6 * N * dZdZ / Z**4 + 2 * cross_M / Z**2 - 4 * M * dZdZ / Z**3
        return gradient.sum(axis=1), hessian.sum(axis=2)

    def minimise(self, directions: Float[np.ndarray, "2 free"], largest: float) -> Float[np.ndarray, "2"]:
        """The least point (α, β) = directions @ x over 0 ≤ x ≤ largest, on a grid, then by projected Newton steps.

        directions: [[1, 0], [0, 1]] for both weights, [[1], [1]] for the ridge α = β.
        largest: the grid covers 0 and 1e-3 … largest evenly in the logarithm (120 points, 48 a side in two dimensions);
            a coordinate that ends there has its infimum at infinity, as far as double precision can tell.
        """
        free = directions.shape[1]
        axis = np.concatenate([[0.0], np.geomspace(1e-3, largest, 120 if free == 1 else 48)])
        points = np.stack([x.ravel() for x in np.meshgrid(*[axis] * free, indexing="ij")])
        alpha, beta = directions @ points
        x = points[:, np.argmin(self(alpha, beta))]
        for _ in range(100):
            moved = self._descend(directions, x, largest)
            if (moved == x).all():
                break
            x = moved
        point: np.ndarray = directions @ x
        return point

    def _descend(self, directions: np.ndarray, x: np.ndarray, largest: float) -> np.ndarray:
        """One projected Newton step, halved until it helps; x itself when nothing does."""
        gradient, hessian = self.derivatives(*(directions @ x).tolist())
        gradient, hessian = directions.T @ gradient, directions.T @ hessian @ directions
        inside = _free(x, gradient, largest)
        if not inside.any():
            return x
        step = np.zeros_like(x)
        # α and β can differ in scale by a factor of v²: bring the curvatures to 1 before judging which are too small.
        scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian))[inside], 1e-300))
        values, vectors = np.linalg.eigh(hessian[np.ix_(inside, inside)] * np.outer(scale, scale))
        # Reflecting negative curvature keeps every step a descent direction.
        curvature = np.maximum(np.abs(values), 1e-12)
        step[inside] = -scale * (vectors @ ((vectors.T @ (scale * gradient[inside])) / curvature))
        here, slope = self._value(directions, x), self._slope(directions, x, largest)
        for _ in range(40):
            if np.abs(step).max() <= 1e-14 * np.abs(x).max():
                return x
            moved = np.clip(x + step, 0.0, largest)
            gain = here - self._value(directions, moved)
            if gain > _FLAT or (gain > -_FLAT and self._slope(directions, moved, largest) < slope):
                return np.asarray(moved)
            step = step / 2
        return x

    def _value(self, directions: np.ndarray, x: np.ndarray) -> float:
        point = directions @ x
        return float(self(point[:1], point[1:])[0])

    def _slope(self, directions: np.ndarray, x: np.ndarray, largest: float) -> float:
        """Size of the gradient along which x may still move."""
        gradient = directions.T @ self.derivatives(*(directions @ x).tolist())[0]
        return float(np.abs(np.where(_free(x, gradient, largest), gradient, 0.0)).max())


def _free(x: np.ndarray, gradient: np.ndarray, largest: float) -> np.ndarray:
    """Which coordinates may still move downhill inside the box."""
    return np.asarray(~(((x == 0) & (gradient >= 0)) | ((x == largest) & (gradient <= 0))))
