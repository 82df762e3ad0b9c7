"""The token-by-token matrices of the first seed at a few steps, so that a page can show how they grew.

Kept are at most 20 moments, evenly spaced in log(step), and matrices of at most 200 x 200: of more tokens the means of
blocks of tokens that follow each other in the order of topics.

| array | shape | meaning |
| --- | --- | --- |
| step | [frame] | number of updates made; the last one is of the final weights |
| token | [token] | token ids in the order of rows and columns: [MASK], then words by their likeliest topic |
| topic | [token] | likeliest topic of each token of `token`, -1 for [MASK] |
| edge | [bin + 1] | bin b holds the tokens from edge[b] up to edge[b + 1] of that order; single tokens where they fit |
| W_V | [frame bin bin] | W_pred W_V W_E, [output token, input token], if trained: W_V itself with one-hot embeddings |
| E | [frame bin bin] | the Gram matrix W_Eᵀ W_E of trained embeddings |
| logits | [frame bin bin] | (W_K W_E)ᵀ (W_Q W_E) / √d_a, [key, query], of one trained head |
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from topicscope.topics import TopicModel

MOST_FRAMES = 20
MOST_BINS = 200


def snapshot_steps(steps: int) -> list[int]:
    """At most 20 steps: 0, then evenly spaced in log(step) up to the last."""
    return sorted({0} | {round(s) for s in np.geomspace(1, steps, MOST_FRAMES - 1).tolist()})


class Snapshots:
    """Collects the matrices of the first seed while a run goes on."""

    def __init__(self, topic_model: TopicModel, frozen: frozenset[str], steps: int) -> None:
        main = topic_model.phi.argmax(axis=0)
        words = np.argsort(main, kind="stable")
        self._frozen, self._steps = frozen, set(snapshot_steps(steps))
        self._token = np.concatenate([[0], 1 + words])
        self._topic = np.concatenate([[-1], main[words]])
        bins = min(MOST_BINS, len(self._token))
        self._edge = np.linspace(0, len(self._token), bins + 1).astype(int)
        self._taken: dict[str, list[np.ndarray]] = {"step": []}

    def due(self, step: int) -> bool:
        """Whether the matrices after this many updates are to be kept."""
        return step in self._steps

    def take(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keep what `weights`, [seed …] each, say at this step."""
        first = {name: value[0].cpu().numpy() for name, value in weights.items()}
        self._taken["step"].append(np.array(step))
        # The weights of a run that diverges overflow here before its loss tells.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, matrix in token_matrices(first, self._frozen).items():
                ordered = matrix[np.ix_(self._token, self._token)]
                self._taken.setdefault(name, []).append(block_mean(ordered, self._edge).astype(np.float32))

    def state(self) -> dict[str, np.ndarray]:
        """What was taken so far, stacked [frame …], for a checkpoint."""
        return {name: np.stack(frames) for name, frames in self._taken.items() if frames}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Put `state`'s frames back."""
        self._taken = {"step": []} | {name: list(frames) for name, frames in state.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, by the names of the table above; nothing where no matrix is trained that fits."""
        state = self.state()
        if state.keys() <= {"step"}:
            return {}
        return {**state, "token": self._token, "topic": self._topic, "edge": self._edge}


def token_matrices(weights: Mapping[str, np.ndarray], frozen: frozenset[str]) -> dict[str, np.ndarray]:
    """W_V, E and logits [token token] of one seed's weights, those that are trained."""
    W_E = weights["W_E"]
    W_pred = weights.get("W_pred", W_E.T)
    found = {}
    W_V, W_K, W_Q = (weights.get(name) for name in ("W_V", "W_K", "W_Q"))
    square = (W_E.shape[0],) * 2
    if W_V is not None and "W_V" not in frozen and W_V.shape == square:
        found["W_V"] = W_pred @ W_V @ W_E
    if "W_E" not in frozen:
        found["E"] = W_E.T @ W_E
    if W_K is not None and W_Q is not None and "W_K" not in frozen:
        found["logits"] = (W_K @ W_E).T @ (W_Q @ W_E) / np.sqrt(len(W_K))
    return found


def block_mean(matrix: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Means of the blocks of `matrix` [token token] between consecutive edges [bin + 1]."""
    if len(edge) == len(matrix) + 1:
        return matrix
    sizes = np.diff(edge)
    rows = np.add.reduceat(matrix.astype(np.float64), edge[:-1], axis=0)
    return np.asarray(np.add.reduceat(rows, edge[:-1], axis=1) / np.outer(sizes, sizes))
