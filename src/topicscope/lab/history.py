"""When to measure, what is measured (the columns of a history), and whether a history has two stages.

| column | meaning |
| --- | --- |
| seed, step | run, and number of updates made |
| loss | data loss on the held-out documents (a fixed set: on all of it; a population: the exact expectation) |
| batch_loss, objective | data loss of the batch that update number `step` will use; the same with the ridge |
| learning_rate | η of that update |
| X_norm, X_change, X_grad | ‖X‖_F, ‖X - X(0)‖_F and ‖∂objective/∂X‖_F of every trained parameter X |
| W_V_mask_column, W_V_different, W_V_same, W_V_diagonal | means of W_V over entries [word, MASK], words of different
  topics, distinct words of one topic, a word and itself (one-hot embeddings) |
| E_mask_column, E_different, E_same, E_diagonal | the same means of the Gram matrix E = W_Eᵀ W_E (trained embeddings) |
| attention_same_word, _same_topic, _different_topic | mean attention over pairs of distinct positions of each class,
  in unmasked documents; an infinite document counts as one of 100 tokens |
| attention_special | mean attention mass of a word on START and END together (with `specials`) |
| W_V_distance | ‖W_V - reference‖_F, when a reference was handed in (any name likewise) |

The token-by-token matrices of the first seed at a few steps, so that a page can show how they grew.

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

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from topicscope.errors import InputError
from topicscope.lab.data import HeldOut
from topicscope.lab.engine import Engine, TokenEngine, by_name, weights_of
from topicscope.lab.recipe import History
from topicscope.topics import PairClass, Positions, TopicModel, classify_pairs

MOST_FRAMES = 20
MOST_BINS = 200


class Snapshots:
    """Collects the matrices of the first seed while a run of `steps` updates goes on.

    steps: after how many updates they are taken: 0, then evenly spaced in log(step) up to the last.
    """

    def __init__(self, topic_model: TopicModel, frozen: frozenset[str], steps: int) -> None:
        main = topic_model.phi.argmax(axis=0)
        words = np.argsort(main, kind="stable")
        self._frozen = frozen
        self.steps = {0} | {round(step) for step in np.geomspace(1, steps, MOST_FRAMES - 1).tolist()}
        self._token = np.concatenate([[0], 1 + words])
        bins = min(MOST_BINS, len(self._token))
        self._edge = np.linspace(0, len(self._token), bins + 1).astype(int)
        self._axes = {"token": self._token, "topic": np.concatenate([[-1], main[words]]), "edge": self._edge}
        self._taken: dict[str, list[np.ndarray]] = {"step": []}

    def take(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keep what `weights`, [seed …] each, say at this step."""
        first = {name: value[0].cpu().numpy() for name, value in weights.items()}
        W_E, W_V, W_K, W_Q = (first[name] for name in ("W_E", "W_V", "W_K", "W_Q"))
        W_pred = first.get("W_pred", W_E.T)
        found = {}
        self._taken["step"].append(np.array(step))
        # The weights of a run that diverges overflow here before its loss tells.
        with np.errstate(over="ignore", invalid="ignore"):
            if "W_V" not in self._frozen and W_V.shape == (len(W_E), len(W_E)):
                found["W_V"] = W_pred @ W_V @ W_E
            if "W_E" not in self._frozen:
                found["E"] = W_E.T @ W_E
            if "W_K" not in self._frozen:
                found["logits"] = (W_K @ W_E).T @ (W_Q @ W_E) / np.sqrt(len(W_K))
            for name, matrix in found.items():
                blocks = matrix[np.ix_(self._token, self._token)]
                if len(self._edge) <= len(blocks):  # the means of blocks between consecutive edges
                    sizes, begins = np.diff(self._edge), self._edge[:-1]
                    rows = np.add.reduceat(blocks.astype(np.float64), begins, axis=0)
                    blocks = np.add.reduceat(rows, begins, axis=1) / np.outer(sizes, sizes)
                self._taken.setdefault(name, []).append(blocks.astype(np.float32))

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Put back what `arrays` gave."""
        self._taken = {"step": []} | {name: list(arrays[name]) for name in arrays if name not in self._axes}

    def arrays(self) -> dict[str, np.ndarray]:
        """What was taken so far, by the names of the table above; nothing where no matrix is trained that fits."""
        if self._taken.keys() <= {"step"}:
            return {}
        return {name: np.stack(frames) for name, frames in self._taken.items()} | self._axes


EVERY_STEP_BELOW = 50
_PAIRS = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)


def measured_steps(history: History, steps: int) -> list[int]:
    """Every step below 50 (the stage detector needs them), a logarithmic and a linear grid, and the last step."""
    grid = set(range(min(EVERY_STEP_BELOW, steps) + 1)) | {steps} | set(range(0, steps, history.every))
    decades = np.log10(max(steps, EVERY_STEP_BELOW))
    count = int(np.ceil(history.points_per_decade * decades)) + 1
    return sorted(grid | {int(s) for s in np.unique(np.round(np.logspace(0, decades, count))) if s <= steps})


class Meter:
    """Measures all seeds at one moment; keeps what the changes are measured from."""

    def __init__(
        self,
        engine: Engine,
        topic_model: TopicModel,
        held_out: HeldOut,
        references: Mapping[str, np.ndarray],
        seeds: Sequence[int],
        *,
        attention: bool,
    ) -> None:
        self.engine, self.topic_model, self.held_out, self.seeds = engine, topic_model, held_out, seeds
        self.references = {name: torch.tensor(np.asarray(array)) for name, array in references.items()}
        self._attention = attention
        weights = weights_of(engine)
        self._start = {name: weights[name] for name in engine.parameters}
        for name, reference in self.references.items():
            if name not in weights or weights[name].shape[1:] != reference.shape:
                raise InputError(
                    f"no matrix to compare the reference {name} with",
                    received=tuple(reference.shape),
                    expected={name: tuple(value.shape[1:]) for name, value in weights.items()},
                )

    def measure(self, step: int, update: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """One row a seed. update: columns [seed] of the update that follows, whose backward pass has been made."""
        weights = weights_of(self.engine)
        columns: dict[str, Any] = {"loss": self.engine.losses(self.held_out), **(update or {})}
        normed = {f"{name}_norm": weights[name] for name in self._start}
        normed |= {f"{name}_change": weights[name] - start for name, start in self._start.items()}
        if update is not None:
            found = {
                f"{name}_grad": [p.grad for p in parts if p.grad is not None]
                for name, parts in self.engine.parameters.items()
            }
            normed |= by_name(self.engine, {name: parts for name, parts in found.items() if parts})
        normed |= {
            f"{name}_distance": weights[name] - value.to(weights[name]) for name, value in self.references.items()
        }
        columns |= {name: value.detach().flatten(1).norm(dim=1) for name, value in normed.items()}  # Frobenius, [seed]
        arrays = {name: value.cpu().numpy() for name, value in weights.items()}
        # The token-by-token matrix of the model, [seed token token], where there is one.
        name, square, W_E = "W_V", arrays["W_V"], arrays["W_E"]
        if "W_E" not in self.engine.frozen:
            name, square = "E", W_E.transpose(0, 2, 1) @ W_E
        if square.shape[-1] == square.shape[-2] == W_E.shape[-1]:
            rows = [block_means(matrix, self.topic_model) for matrix in square]
            columns |= {f"{name}_{part}": [row[part] for row in rows] for part in rows[0]}
        if self._attention:
            columns |= mean_attention(self.engine, arrays, self.held_out, self.topic_model)
        return [
            {"seed": seed, "step": step} | {name: float(values[i]) for name, values in columns.items()}
            for i, seed in enumerate(self.seeds)
        ]


def block_means(matrix: np.ndarray, topic_model: TopicModel) -> dict[str, float]:
    """Means of a token-by-token matrix [out, in] by what its two tokens have in common; NaN without such a pair.

    mask_column: word rows of column 0. different, same, diagonal: see the module. Words sharing any topic are "same".
    """
    V = len(topic_model.vocabulary)
    words = np.asarray(matrix, dtype=np.float64)[1 : V + 1, 1 : V + 1]
    share = shares_topic(topic_model)
    distinct = ~np.eye(V, dtype=bool)
    return {
        "mask_column": float(np.mean(matrix[1 : V + 1, 0], dtype=np.float64)),
        "different": _mean(words[~share & distinct]),
        "same": _mean(words[share & distinct]),
        "diagonal": float(np.trace(words)) / V,
    }


def shares_topic(topic_model: TopicModel) -> np.ndarray:
    """bool [word word]: the two words have a topic in common, by `TopicModel.members`."""
    member = topic_model.members.astype(np.float64)
    return np.asarray(member.T @ member > 0)


def mean_attention(
    engine: Engine, weights: Mapping[str, np.ndarray], held_out: HeldOut, topic_model: TopicModel
) -> dict[str, np.ndarray]:
    """Mean attention [seed] over pairs of each class; from counts where the model is a function of counts."""
    if isinstance(engine, TokenEngine):
        rows = [_attention_of_tokens(model, held_out, topic_model) for model in engine.models]
    else:
        assert held_out.shares is not None
        scores = attention_scores(weights)
        rows = [attention_by_counts(s, held_out.shares, topic_model, infinite=held_out.infinite) for s in scores]
    return {f"attention_{name}": np.array([row[name] for row in rows]) for name in rows[0]}


def attention_scores(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """S = (W_Q W_E)ᵀ (W_K W_E) / √d_a, [seed query key], of a one-layer, one-head model."""
    W_E, W_K, W_Q = (np.asarray(weights[name], dtype=np.float64) for name in ("W_E", "W_K", "W_Q"))
    return np.asarray((W_Q @ W_E).transpose(0, 2, 1) @ (W_K @ W_E) / np.sqrt(W_K.shape[1]))


def attention_by_counts(
    scores: np.ndarray, shares: np.ndarray, topic_model: TopicModel, *, infinite: bool = False
) -> dict[str, float]:
    """Mean attention by class of pair from scores [query key] and counts of tokens [document token].

    A query of type u gives one token of type k the weight e^{S_uk} / Z_du, Z_du = Σ_k c_dk e^{S_uk}; a document has
    c_u (c_u - 1) ordered pairs of the same word (an infinite one c_u²), c_u c_k of two words.
    """
    V = len(topic_model.vocabulary)
    # Plain documents show no [MASK]. The floor keeps Z_du positive: e^-600 is nothing beside a key that is there.
    shown = scores[1 : V + 1, 1:]
    weight = np.exp(np.maximum(shown - shown.max(axis=1, keepdims=True), -600.0))
    words, counts = weight[:, :V], shares[:, 1 : V + 1]
    own = counts / (shares[:, 1:] @ weight.T)  # c_du / Z_du
    share = shares_topic(topic_model) & ~np.eye(V, dtype=bool)
    groups = {"same_topic": share, "different_topic": ~share & ~np.eye(V, dtype=bool)}
    again = counts if infinite else counts - 1
    means = {"same_word": _ratio((own * again * np.diag(words)).sum(), (counts * again).sum())}
    for name, chosen in groups.items():
        means[name] = _ratio((own * (counts @ (words * chosen).T)).sum(), (counts * (counts @ chosen.T)).sum())
    if shares.shape[1] > V + 1:
        means["special"] = _ratio((own * (shares[:, V + 1 :] @ weight[:, V:].T)).sum(), counts.sum())
    return means


def _attention_of_tokens(model: Any, held_out: HeldOut, topic_model: TopicModel) -> dict[str, float]:
    """The same from a token-level model: mean over layers and heads, position by position."""
    batch = held_out.plain
    assert batch is not None
    V = len(topic_model.vocabulary)
    is_word = (batch.labels >= 1) & (batch.labels <= V)
    words = np.where(is_word, batch.labels - 1, -1)
    member = topic_model.members.T.astype(np.float64)[np.maximum(words, 0)] * is_word[..., None]
    place = np.broadcast_to(np.arange(words.shape[1]), words.shape)
    classes = classify_pairs(Positions(words, member, place))
    pattern = np.mean([p.detach().double().cpu().numpy().mean(axis=1) for p in model.attention(batch)], axis=0)
    means = {pair.name: _mean(pattern[classes == int(pair)]) for pair in _PAIRS}
    if bool((batch.labels == V + 1).any()):
        specials = ((batch.labels > V) & batch.attendable)[:, None, :]
        means["special"] = _mean((pattern * specials).sum(axis=2)[is_word])
    return means


def _mean(values: np.ndarray) -> float:
    return float(values.mean(dtype=np.float64)) if values.size else float("nan")


def _ratio(top: float, bottom: float) -> float:
    return float(top / bottom) if bottom > 0 else float("nan")


ATTENTION_MOVED = 0.1
VALUE_SETTLED = 0.9
SEPARATION = 3.0
_COLUMNS = ("step", "W_V_change", "W_K_norm", "W_K_change", "W_Q_norm", "W_Q_change")


@dataclass(frozen=True)
class Stages:
    """The verdict for one run.

    k1: step at which W_V had covered 90 % of its way; k2: step at which W_K or W_Q had moved by 10 %, or the last step.
    """

    k1: int
    k2: int
    ratio: float
    separated: bool
    stage_two_reached: bool

    @property
    def verdict(self) -> str:
        """One line for people."""
        what = "separated" if self.separated else "no separation"
        after = "" if self.stage_two_reached else "; stage 2 not reached"
        return f"{what}: W_V settled by step {self.k1}, W_K and W_Q moved by step {self.k2}{after}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for records."""
        return {**asdict(self), "verdict": self.verdict}


def find_stages(history: pd.DataFrame) -> Stages:
    """Are there two stages (Knowl 5)? One rule on a history of norms, with no free choice left to the reader.

        k₂ = first step with max(‖W_K - W_K(0)‖ / ‖W_K(0)‖, ‖W_Q - W_Q(0)‖ / ‖W_Q(0)‖) >= 0.1, else the last step
        k₁ = first step with ‖W_V - W_V(0)‖ >= 0.9 ‖W_V(k₂) - W_V(0)‖
        separated exactly if k₂ / k₁ >= 3

    Norms are Frobenius norms. Changes from the start are used, never the norms: a random 100 × 100 matrix of σ = 0.1
    has norm 10, beside which what is learned is hard to see. The history must hold every early step, or k₁ is rounded
    up.

    history: of one seed, with the columns step, W_V_change, and W_K / W_Q each _norm and _change.

    Raises:
        InputError: a column is missing (W_V, W_K or W_Q was not part of the model), several seeds at once, or a
            history that does not begin at step 0.
    """
    missing = [name for name in _COLUMNS if name not in history.columns]
    if missing:
        raise InputError(
            "no stages without W_V, W_K and W_Q",
            received=f"a history without {', '.join(missing)}",
            expected=", ".join(_COLUMNS),
            advice="train a model with trained attention, without frozen matrices",
        )
    seeds = set(history["seed"]) if "seed" in history.columns else set()
    if len(seeds) > 1:
        raise InputError(
            "stages are found for one seed at a time",
            received=f"{len(seeds)} seeds",
            advice="use history[history.seed == 0]",
        )
    rows = history.sort_values("step").reset_index(drop=True)
    if rows.empty or rows["step"][0] != 0:
        raise InputError("the history must begin at step 0", received="empty" if rows.empty else int(rows["step"][0]))
    relative = []
    for name in ("W_K", "W_Q"):
        start, change = float(rows[f"{name}_norm"][0]), rows[f"{name}_change"]
        # From exactly zero any movement at all is more than ten per cent.
        relative.append(change / start if start > 0 else change.where(change == 0, math.inf))
    moved = pd.concat(relative, axis=1).max(axis=1) >= ATTENTION_MOVED
    reached = bool(moved.any())
    second = int(moved.to_numpy().argmax()) if reached else len(rows) - 1
    way = float(rows["W_V_change"][second])
    k1 = int(rows["step"][int((rows["W_V_change"] >= VALUE_SETTLED * way).to_numpy().argmax())])
    k2 = int(rows["step"][second])
    # way = 0: W_V never moved, which is not a first stage, however large k₂ is.
    ratio = k2 / k1 if k1 > 0 else math.nan
    return Stages(k1, k2, ratio, separated=way > 0 and ratio >= SEPARATION, stage_two_reached=reached)
