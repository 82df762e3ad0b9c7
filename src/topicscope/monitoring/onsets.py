"""In which order structure appears: embeddings and values first, attention later (Knowl 5), as numbers with intervals.

A quantity has structure from its onset on: the first measured step from which its z stays at 4 or more to the end. Two
uncertainties make its interval [low, high]: between two measurements nothing is known, and z has a standard error of 1.
low: the last measured step at which z was below 2 (4 less two standard errors), 0 where it never was; high: the first
step from which z stays at 6 or more (4 plus two), infinite where it does not. z is that within frequency bands where
it is known. The rule on norms of `lab.find_stages`, as for laboratory runs, is applied to each layer beside it.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.lab import Stages
from topicscope.lab import find_stages as stages_of_norms
from topicscope.monitoring.history import MonitorHistory

Z, MARGIN = 4.0, 2.0


@dataclass(frozen=True)
class Onset:
    """When one quantity has structure.

    quantity: "embeddings", "ov" or "attention". part, layer: None for embeddings. step: NaN where it never has.
    low, high: see the module. z: at the last measurement.
    """

    quantity: str
    part: str | None
    layer: int | None
    step: float
    low: float
    high: float
    z: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for records and figures."""
        return asdict(self)


@dataclass(frozen=True)
class MonitorStages:
    """Onsets of every quantity, and the verdict of the rule on norms for every part and layer (None: not known)."""

    onsets: tuple[Onset, ...]
    norms: dict[tuple[str, int], Stages | None]

    def first(self, quantity: str) -> Onset:
        """The earliest onset of a quantity over parts and layers; one that never came where none did.

        Raises:
            InputError: nothing of the quantity was measured.
        """
        found = [onset for onset in self.onsets if onset.quantity == quantity]
        if not found:
            raise InputError(
                "no such quantity in the history", received=quantity, expected=sorted({o.quantity for o in self.onsets})
            )
        return min(found, key=lambda onset: (onset.step if onset.step == onset.step else math.inf, onset.low))

    def lag(self, earlier: str = "embeddings", later: str = "attention") -> tuple[float, float, float]:
        """How many times later the second appears than the first, (step ratio, low, high); NaN without both.

        low > 1: later for sure; high is infinite where the second has not surely come yet.
        """
        a, b = self.first(earlier), self.first(later)
        low = b.low / a.high if a.high > 0 else math.nan
        high = b.high / a.low if a.low > 0 else math.inf
        return (b.step / a.step if a.step > 0 else math.nan), low, high

    @property
    def verdict(self) -> str:
        """One line for people."""
        said = []
        for quantity in dict.fromkeys(onset.quantity for onset in self.onsets):
            onset = self.first(quantity)
            where = "" if onset.layer is None else f" (layer {onset.layer})"
            if math.isnan(onset.step):
                said.append(f"{quantity}: not yet, z {onset.z:.1f}")
            else:
                said.append(f"{quantity}: from step {onset.step:.0f} [{onset.low:.0f}, {onset.high:.0f}]{where}")
        return "; ".join(said)


def find_stages(history: MonitorHistory) -> MonitorStages:
    """Onsets and the rule on norms.

    Raises:
        InputError: nothing was measured.
    """
    if history.measurements.empty:
        raise InputError("no stages without a measurement", received="an empty history")
    cosine = history.embeddings[history.embeddings["kind"] == "cosine"]
    onsets = [onset(cosine, "", quantity="embeddings")]
    norms: dict[tuple[str, int], Stages | None] = {}
    for _, rows in history.layers.groupby(["part", "layer"]):
        part, layer = str(rows["part"].iloc[0]), int(rows["layer"].iloc[0])
        for quantity in ("ov", "attention"):
            if f"{quantity}_z" in rows:
                onsets.append(onset(rows, f"{quantity}_", quantity=quantity, part=part, layer=layer))
        names = ["step", *(f"{w}_{end}" for w in ("W_V", "W_K", "W_Q") for end in ("norm", "change"))]
        known = all(name in rows and rows[name].notna().all() for name in names) and 0 in set(rows["step"])
        norms[part, layer] = stages_of_norms(rows[names]) if known else None
    order = ("embeddings", "ov", "attention")
    onsets.sort(key=lambda o: (order.index(o.quantity), o.part or "", -1 if o.layer is None else o.layer))
    return MonitorStages(tuple(onsets), norms)


def onset(
    rows: pd.DataFrame, prefix: str, *, quantity: str, part: str | None = None, layer: int | None = None
) -> Onset:
    """The onset of one curve; rows: step, {prefix}z and {prefix}z_banded."""
    rows = rows.sort_values("step")
    steps = rows["step"].to_numpy(dtype=float)
    z = rows[f"{prefix}z_banded"].fillna(rows[f"{prefix}z"]).to_numpy(dtype=float)
    start, sure = _from_where(steps, z, Z), _from_where(steps, z, Z + MARGIN)
    below = np.flatnonzero(~(z >= Z - MARGIN))
    low = float(steps[below[-1]]) if len(below) else 0.0
    return Onset(quantity, part, layer, start, low, sure, float(z[-1]))


def _from_where(steps: np.ndarray, z: np.ndarray, least: float) -> float:
    below = np.flatnonzero(~(z >= least))
    first = int(below[-1]) + 1 if len(below) else 0
    if first < len(steps):
        return float(steps[first])
    return math.nan if least == Z else math.inf
