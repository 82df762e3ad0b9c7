"""A series: the checkpoints of a training run, each probed with the same documents and the same topics; one curve.

What a series keeps of one probe: a row for each quantity, part and layer, in one table for all checkpoints.

| quantity | same, different: means over pairs of words of one topic, of two topics |
| --- | --- |
| embeddings, embeddings_dot | cosine, and dot product, of the embedding matrix |
| ov | u_aᵀ W_O W_V x_b of each layer, summed over its heads (Elhage et al. 2021); u the prediction vectors |
| attention | A_ij · L/100 of each part, A_ij · (i+1)/100 where it is causal |

z, z_banded: topics shuffled over words, and over words of like frequency; of attention only the latter, from the
permutation test.
difference = same - different, ratio = same / different; ratio is withheld (NaN) for embeddings and OV where `different`
is not clearly away from 0. Errors: over words for embeddings and OV, over documents for attention.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from topicscope.errors import InputError
from topicscope.monitoring.onsets import MonitorStages, onset
from topicscope.probing.circuits import ALL_HEADS
from topicscope.probing.results import ProbeResult
from topicscope.probing.statistics import (
    CORRECTED,
    COUNTS,
    DIFFERENT,
    PAIRED,
    SUMS,
    Moments,
    PartMoments,
    delta_method,
    effective_documents,
)
from topicscope.records import SERIES, Result, select, threshold_of, write_json, write_text

VALUES = ("same", "different", "difference", "difference_se", "ratio", "ratio_se", "z", "z_banded", "p_value")
COLUMNS = ("checkpoint", "step", "quantity", "part", "layer", *VALUES, "verdict")


def series_rows(result: ProbeResult) -> Iterator[dict[str, Any]]:
    """The rows of one probe, at the headline's threshold; embeddings are averaged over topic seeds."""
    threshold = threshold_of(result.headline["threshold"])
    yield from _embeddings(select(result.embeddings, threshold))
    yield from _circuits(select(result.circuits, threshold))
    measured = select(result.rows[result.rows["source"] == "measured"], threshold)
    for row in measured.to_dict(orient="records"):
        pairs = [p for p in result.coverage["pairs"] if p["part"] == row["part"]]
        chosen = [i for i, p in enumerate(pairs) if threshold_of(p["threshold"]) == threshold]
        moments = PartMoments.from_arrays(result.moments, str(row["part"]))
        yield _attention(row, moments, chosen)


def _embeddings(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for kind, quantity in (("cosine", "embeddings"), ("dot", "embeddings_dot")):
        seeds = frame[(frame["place"] == "raw") & (frame["kind"] == kind)]
        if seeds.empty:
            continue
        mean = seeds[[name for name in VALUES if name in seeds]].mean(skipna=False)
        row = {"quantity": quantity} | {str(name): float(value) for name, value in mean.items()}
        yield row | {
            "p_value": float(seeds["p_value_banded"].mean()),
            "verdict": "; ".join(dict.fromkeys(seeds["verdict"])),
        }


def _circuits(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    if frame.empty:
        return
    layers = frame[(frame["circuit"] == "OV") & (frame["head"] == ALL_HEADS) & (frame["place"] == "raw")]
    for row in layers.to_dict(orient="records"):
        # The error of the difference is at least that of `different`, the mean of far more pairs than `same`.
        clear = abs(row["different"]) > 2 * row["difference_se"]
        banded = not math.isnan(row["z_banded"])  # with fewer than 40 words there are no bands: the tests are one
        found = {"quantity": "ov", "part": row["part"], "layer": int(row["layer"])}
        found |= {name: row[name] for name in ("same", "different", "difference", "difference_se", "z")}
        found |= {
            "z_banded": row["z_banded" if banded else "z"],
            "p_value": row["p_value_banded" if banded else "p_value"],
        }
        yield found | {"ratio": row["same"] / row["different"] if clear else math.nan}


def _attention(row: dict[Any, Any], moments: PartMoments, chosen: Sequence[int]) -> dict[str, Any]:
    corrected = not math.isnan(row["attention_ratio_position_corrected"])
    name = "attention_ratio_position_corrected" if corrected else "attention_ratio"
    means = np.array([_means(moments, c, CORRECTED.start if corrected else SUMS.start) for c in chosen]).mean(0)
    found = {"quantity": "attention", "part": row["part"]}
    found |= dict(zip(("same", "different", "difference", "difference_se"), means.tolist(), strict=True))
    found |= {"ratio": row[name], "ratio_se": row[f"{name}_se"]}
    return found | {"z_banded": row["permutation_z"], "p_value": row["permutation_p"], "verdict": row["verdict"]}


def _means(moments: PartMoments, configuration: int, start: int) -> tuple[float, float, float, float]:
    """S, D, S - D and its error, clustered by document."""
    pooled = Moments(moments.documents, moments.pooled_total[configuration], moments.pooled_outer[configuration])
    gradient, means, used = np.zeros_like(pooled.total), [], []
    for sign, kinds in ((1.0, PAIRED), (-1.0, DIFFERENT)):
        x, n = [start + k for k in kinds], [COUNTS.start + k for k in kinds]
        count = float(pooled.total[n].sum())
        if count == 0:
            return math.nan, math.nan, math.nan, math.nan
        means.append(float(pooled.total[x].sum()) / count)
        gradient[x], gradient[n] = sign / count, -sign * means[-1] / count
        used += [x, n]
    same, different = means
    found = delta_method(pooled, same - different, gradient, effective=effective_documents(pooled, *used))
    return same, different, found.value, found.se


RECORD, TABLE, FIGURE, RESULTS = "series.json", "series.csv", "emergence.png", "results"


@dataclass(frozen=True, eq=False)
class CheckpointSeries(Result):
    """name: of the model. rows: see `series_rows`. checkpoints: name, model, step and status of each ("measured",
    "skipped" with its reason, "waiting"). settings: what all share: text, topics, options. folder: where it lies.
    interrupted: somebody stopped it.
    """

    kind, layout = "series", SERIES

    name: str
    rows: pd.DataFrame
    checkpoints: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]
    folder: Path
    command: str | None = None
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every checkpoint was measured, with all its documents."""
        return all(checkpoint["status"] == "measured" for checkpoint in self.checkpoints)

    def count(self, status: str) -> int:
        """How many checkpoints have a status."""
        return sum(checkpoint["status"] == status for checkpoint in self.checkpoints)

    def table(self) -> pd.DataFrame:
        """One row for each checkpoint, quantity, part and layer; see `series_rows`."""
        return self.rows.copy()

    def curve(self, quantity: str, *, part: str | None = None, layer: int | None = None) -> pd.DataFrame:
        """The rows of one quantity by step; of all parts and layers unless they are named.

        Raises:
            InputError: nothing of this kind was measured.
        """
        rows = self.rows[self.rows["quantity"] == quantity]
        rows = rows if part is None else rows[rows["part"] == part]
        rows = rows if layer is None else rows[rows["layer"] == layer]
        if rows.empty:
            known = sorted(set(self.rows["quantity"]))
            raise InputError(
                "no such curve", received=(quantity, part, layer), expected=f"one of {known}, or fewer names"
            )
        return rows.sort_values("step").reset_index(drop=True)

    @property
    def stages(self) -> MonitorStages:
        """From which checkpoint on embeddings, OV circuits and attention have structure, with intervals."""
        found = []
        for quantity in ("embeddings", "ov", "attention"):
            rows = self.rows[self.rows["quantity"] == quantity]
            for _, curve in rows.groupby(["part", "layer"], dropna=False):
                part, layer = curve["part"].iloc[0], curve["layer"].iloc[0]
                where = {"part": part if isinstance(part, str) else None}
                found.append(
                    onset(curve, "", quantity=quantity, layer=None if math.isnan(layer) else int(layer), **where)
                )
        return MonitorStages(tuple(found), {})

    def result(self, name: str) -> ProbeResult:
        """The whole result of one checkpoint.

        Raises:
            InputError: as `ProbeResult.load`.
        """
        return ProbeResult.load(self.folder / RESULTS / name)

    def plot(self, kind: str = "emergence", *, columns: Literal["single", "double"] | None = None) -> Any:
        """The curves with their onsets: (data, matplotlib `Figure`).

        Raises:
            InputError: another kind than "emergence", or nothing was measured.
        """
        if kind != "emergence":
            raise InputError("unknown figure", received=kind, expected='"emergence"')
        from topicscope.report import emergence

        embeddings = self.rows[self.rows["quantity"] == "embeddings"].assign(kind="cosine")
        onsets = [found.as_dict() for found in self.stages.onsets]
        return emergence(self._layers(), embeddings, onsets, name=self.name, columns=columns)

    def _layers(self) -> pd.DataFrame:
        """As in a `MonitorHistory`; attention is that of whole parts, which have no layer."""
        frames = []
        for quantity in ("ov", "attention"):
            rows = self.rows[self.rows["quantity"] == quantity]
            values = rows[["ratio", "ratio_se", "z", "z_banded"]].add_prefix(f"{quantity}_")
            frames.append(pd.concat([rows[["step", "part", "layer"]], values], axis=1))
        return pd.concat(frames, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """The document that series.json holds and `--json` prints."""
        measured = not self.rows.empty
        return {
            **self._head(),
            "name": self.name,
            "verdict": self.stages.verdict if measured else None,
            "complete": self.complete,
            "interrupted": self.interrupted,
            "counts": {status: self.count(status) for status in ("measured", "skipped", "waiting")},
            "checkpoints": [dict(checkpoint) for checkpoint in self.checkpoints],
            "onsets": [onset.as_dict() for onset in self.stages.onsets],
            "rows": self.rows.to_dict(orient="records"),
            "settings": dict(self.settings),
            "command": self.command,
        }

    def page(self) -> str:
        """One HTML file that needs no network: the answer, the curves, tables, what was skipped."""
        from topicscope.report import render_series

        return render_series(self.to_dict(), self.rows, None if self.rows.empty else self.plot()[1])

    def pictures(self) -> dict[str, bytes]:
        """The curves, if anything was measured."""
        from topicscope.report import to_png

        return {} if self.rows.empty else {FIGURE: to_png(self.plot()[1])}

    def write(self, folder: Path) -> None:
        """series.json and, if anything was measured, series.csv; results of single checkpoints are beside them."""
        if not self.rows.empty:
            write_text(folder / TABLE, self.rows.to_csv(index=False))
        write_json(folder / RECORD, self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "CheckpointSeries":
        """See `Result.read`."""
        settings, command, interrupted = (record[name] for name in ("settings", "command", "interrupted"))
        rows, checkpoints = frame_of(record["rows"]), tuple(record["checkpoints"])
        return cls(record["name"], rows, checkpoints, settings, folder, command, interrupted)

    def __str__(self) -> str:
        left = [f"{self.count(status)} {status}" for status in ("skipped", "waiting") if self.count(status)]
        counts = ", ".join([f"{self.count('measured')} of {len(self.checkpoints)} checkpoints measured", *left])
        return f"{self.name}: {counts}. " + (self.stages.verdict if len(self.rows) else "Nothing was measured.")


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows with every column, by step; what is missing is NaN, None in words."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    words = ["checkpoint", "quantity", "part", "verdict"]
    numbers = [name for name in COLUMNS if name not in words]
    frame = frame.astype(dict.fromkeys(numbers, float))
    return frame.astype({"step": int}).sort_values("step", kind="stable").reset_index(drop=True)
