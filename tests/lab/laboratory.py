"""What the tests of trained models share: recipes of the repository, and oracles that use nothing of the package."""

from pathlib import Path

import numpy as np
import pytest

from topicscope.experiments import resolve
from topicscope.lab import load_recipe, train

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def run(name, *overrides, seeds=3):
    """Train a recipe of the repository, changed by overrides; closed forms are handed in as the command line does."""
    recipe = load_recipe(RECIPES / f"{name}.toml", overrides)
    arrays, references = resolve(recipe)
    return train(recipe, seeds=seeds, arrays=arrays, references=references)


class Stop(Exception):
    """Stands for the plug being pulled."""


def stopped_run(recipe, folder, at: int, **kwargs) -> None:
    class Watch:
        def start(self, task: str, total: int | float | None, unit: str) -> None: ...

        def update(self, task: str, done: int | float) -> None:
            if done >= at:
                raise Stop

        def finish(self, task: str) -> None: ...

    with pytest.raises(Stop):
        train(recipe, out=folder, progress=Watch(), **kwargs)


def at_step(record, step):
    """History rows of one step, one a seed."""
    rows = record.history[record.history.step == step]
    assert len(rows) == record.summary["seeds"]
    return rows


class Rates:
    """a, r, m, p_0 and κ of theory.md, spelt out again."""

    def __init__(self, T, v, tau, p_m=0.15, p_c=0.1, p_r=0.1) -> None:
        self.T, self.v, self.tau, self.V = T, v, tau, T * v
        self.p_m, self.p_c, self.p_r, self.p_0 = p_m, p_c, p_r, 1 - p_c - p_r
        self.a, self.r, self.m = 1 - (1 - p_c) * p_m, p_m * p_r, p_m * self.p_0
        self.kappa = (T - tau) / (tau * T * (T - 1))


def ridge_minimiser(rates, N, ridge):
    """W = Xᵀ (C + λ)⁻¹ from theory.md 1b for τ-uniform documents of N words, per-document weighting; [out in]."""
    g = rates
    phi = np.vstack([np.zeros((1, g.T)), np.kron(np.eye(g.T), np.ones((g.v, 1)) / g.v)])
    mean_theta = np.full(g.T, 1 / g.T)
    second_theta = g.kappa * np.eye(g.T) + (1 / g.T - g.kappa) / g.T
    pp, p = phi @ second_theta @ phi.T, phi @ mean_theta
    u = np.append(0.0, np.full(g.V, 1 / g.V))
    e0 = np.eye(g.V + 1)[0]
    noise = g.p_r * u + g.p_0 * e0
    qp = g.p_c * pp + np.outer(noise, p)
    qq = g.p_c**2 * pp + g.p_c * (np.outer(noise, p) + np.outer(p, noise)) + np.outer(noise, noise)
    q = g.p_c * p + noise
    some = 1 - (1 - g.p_m) ** N
    k1 = g.p_m / some
    k2 = (g.p_m * (1 - g.p_m) / N + g.p_m**2) / some
    cross = qp.T - pp  # E p (q - p)ᵀ
    squares = qq - qp - qp.T + pp
    C = pp + k1 * (cross + cross.T) + k2 * squares
    C += ((1 - k1) * (np.diag(p) - pp) + k1 * (np.diag(q) - qq)) / N
    X = pp + k1 * (qp - pp) + g.p_c / N * (np.diag(p) - pp)
    return np.linalg.solve(C + ridge * np.eye(g.V + 1), X).T


def entries(W, v):
    """[MASK] column, different, same and diagonal entry of a matrix that has only these, [out in]."""
    return {"mask_column": W[1, 0], "different": W[1, 1 + v], "same": W[1, 2], "diagonal": W[1, 1]}
