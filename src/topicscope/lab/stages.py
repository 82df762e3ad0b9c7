"""Are there two stages (Knowl 5)? One rule on a history of norms, with no free choice left to the reader.

    k₂ = first step with max(‖W_K - W_K(0)‖ / ‖W_K(0)‖, ‖W_Q - W_Q(0)‖ / ‖W_Q(0)‖) >= 0.1, else the last step
    k₁ = first step with ‖W_V - W_V(0)‖ >= 0.9 ‖W_V(k₂) - W_V(0)‖
    separated exactly if k₂ / k₁ >= 3

Norms are Frobenius norms. Changes from the start are used, never the norms: a random 100 × 100 matrix of σ = 0.1 has
norm 10, beside which what is learned is hard to see. The history must hold every early step, or k₁ is rounded up.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from topicscope.errors import InputError

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
    """Apply the rule to the history of one seed: columns step, W_V_change, and W_K / W_Q each _norm and _change.

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
    moved = pd.concat([_relative(rows, name) for name in ("W_K", "W_Q")], axis=1).max(axis=1) >= ATTENTION_MOVED
    reached = bool(moved.any())
    second = int(moved.to_numpy().argmax()) if reached else len(rows) - 1
    way = float(rows["W_V_change"][second])
    k1 = int(rows["step"][int((rows["W_V_change"] >= VALUE_SETTLED * way).to_numpy().argmax())])
    k2 = int(rows["step"][second])
    # way = 0: W_V never moved, which is no first stage, however large k₂ is.
    ratio = k2 / k1 if k1 > 0 else math.nan
    return Stages(k1, k2, ratio, separated=way > 0 and ratio >= SEPARATION, stage_two_reached=reached)


def _relative(rows: pd.DataFrame, name: str) -> pd.Series:
    start = float(rows[f"{name}_norm"][0])
    change = rows[f"{name}_change"]
    # From exactly zero any movement at all is more than ten per cent.
    return change / start if start > 0 else change.where(change == 0, math.inf)
