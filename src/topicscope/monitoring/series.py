"""A series: the checkpoints of a training run, each probed with the same documents and the same topics; one curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from topicscope.errors import InputError
from topicscope.monitoring.onsets import MonitorStages, onset
from topicscope.monitoring.series_rows import COLUMNS
from topicscope.probing.results import ProbeResult
from topicscope.records import read_json, result_path, write_bytes, write_json, write_text

SCHEMA_VERSION = 1
RECORD, TABLE, FIGURE, PAGE, RESULTS = "series.json", "series.csv", "emergence.png", "report.html", "results"


@dataclass(frozen=True, eq=False)
class CheckpointSeries:
    """name: of the model. rows: see `series_rows`. checkpoints: name, model, step and status of each ("measured",
    "skipped" with its reason, "waiting"). settings: what all share: text, topics, options. folder: where it lies.
    interrupted: somebody stopped it.
    """

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
            "schema_version": SCHEMA_VERSION,
            "kind": "series",
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

    def save(self) -> Path:
        """Write series.json, series.csv, emergence.png and report.html into the folder, each atomically."""
        from topicscope.report import to_png

        if not self.rows.empty:
            write_text(self.folder / TABLE, self.rows.to_csv(index=False))
            write_bytes(self.folder / FIGURE, to_png(self.plot()[1]))
            write_text(self.folder / PAGE, self.page())
        write_json(self.folder / RECORD, self.to_dict())
        return self.folder

    @classmethod
    def load(cls, folder: str | Path) -> "CheckpointSeries":
        """Read a folder that `probe_checkpoints` wrote.

        Raises:
            InputError: no series, one of another version, or a URL.
        """
        folder = result_path(folder)
        record = read_json(folder / RECORD)
        if record.get("kind") != "series" or record.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                "not a series that this version reads",
                received={"kind": record.get("kind"), "schema_version": record.get("schema_version")},
                expected={"kind": "series", "schema_version": SCHEMA_VERSION},
                where=str(folder / RECORD),
            )
        kept = (record[name] for name in ("settings", "command", "interrupted"))
        settings, command, interrupted = kept
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
