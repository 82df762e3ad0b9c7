"""The history of a run: one line of JSON for each event, appended as it happens, and what is read out of it.

| kind | content |
| --- | --- |
| run | a beginning at `start_step` (0, or where training was resumed), the model, the topics, the documents |
| measurement | `step`, `seconds`, `documents`, `units`, rows of `embeddings` and `layers` (see `measurement`) |
| note | what was skipped or went wrong, at `step` |

Nothing is ever rewritten. A run that begins at step s makes what was measured after s (for s = 0 everything) the
history of another run; `load` leaves it out and counts it. A line that a killed process left unfinished is skipped and
counted.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from topicscope.errors import InputError
from topicscope.records import dump_json

SCHEMA_VERSION = 1
HISTORY_FILE = "topic_structure.jsonl"
_LAYER_KEY, _EMBEDDING_KEY = ["step", "part", "layer"], ["step", "kind"]


@dataclass(frozen=True, eq=False)
class MonitorHistory:
    """What was measured, in the order of the steps.

    runs, notes: the lines of these kinds. measurements: one row per step (step, seconds, documents, units).
    layers: one row per step, part and layer (attention_…, ov_…, W_Q_norm, …). embeddings: one per step and kind.
    left_out: {"superseded": measurements of runs that were left, "damaged_lines": …}.
    """

    runs: tuple[Mapping[str, Any], ...]
    notes: tuple[Mapping[str, Any], ...]
    measurements: pd.DataFrame
    layers: pd.DataFrame
    embeddings: pd.DataFrame
    left_out: Mapping[str, int]

    @classmethod
    def load(cls, path: str | Path) -> "MonitorHistory":
        """Read a history file, or the one in a folder.

        Raises:
            InputError: no such file, no history, or one of a later version.
        """
        place = Path(path)
        place = place / HISTORY_FILE if place.is_dir() else place
        if not place.is_file():
            raise InputError("no history of topic structure", received=str(path), expected=HISTORY_FILE)
        lines, damaged = read_lines(place)
        runs = tuple(line for line in lines if line["kind"] == "run")
        if not runs or any(run.get("schema_version") != SCHEMA_VERSION for run in runs):
            raise InputError(
                "not a history that this version reads",
                received=sorted({str(run.get("schema_version")) for run in runs}) or "no run",
                expected=f"schema_version {SCHEMA_VERSION}",
                where=str(place),
            )
        kept, superseded = current(lines)
        rows = [kept[step] for step in sorted(kept)]
        return cls(
            runs=runs,
            notes=tuple(line for line in lines if line["kind"] == "note"),
            measurements=_frame(
                [{name: row[name] for name in ("step", "seconds", "documents", "units")} for row in rows], ["step"]
            ),
            layers=_frame([{"step": row["step"]} | layer for row in rows for layer in row["layers"]], _LAYER_KEY),
            embeddings=_frame([{"step": row["step"]} | e for row in rows for e in row["embeddings"]], _EMBEDDING_KEY),
            left_out={"superseded": superseded, "damaged_lines": damaged},
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The stacks of attention that were measured."""
        return tuple(dict.fromkeys(self.layers["part"]))

    def layer(self, layer: int, part: str | None = None) -> pd.DataFrame:
        """The rows of one layer, by step; of the first part unless it is named.

        Raises:
            InputError: no such layer.
        """
        part = self.parts[0] if part is None and self.parts else part
        rows = self.layers[(self.layers["part"] == part) & (self.layers["layer"] == layer)]
        if rows.empty:
            known = self.layers[["part", "layer"]].drop_duplicates().to_records(index=False).tolist()
            raise InputError("no such layer", received=(part, layer), expected=f"one of {known}")
        return rows.reset_index(drop=True)

    def plot(self, kind: str = "emergence", *, columns: Literal["single", "double"] | None = None) -> Any:
        """Curves over steps with the stages drawn in: (data, matplotlib `Figure`), the data being what is drawn.

        columns: as wide as one or two columns of a paper.

        Raises:
            InputError: another kind than "emergence", or nothing was measured.
        """
        if kind != "emergence":
            raise InputError("unknown figure", received=kind, expected='"emergence"')
        from topicscope.monitoring.onsets import find_stages
        from topicscope.report import emergence

        stages = find_stages(self)
        name = str(self.runs[-1].get("model", {}).get("name", "model"))
        return emergence(
            self.layers, self.embeddings, [onset.as_dict() for onset in stages.onsets], name=name, columns=columns
        )


def append_line(path: Path, kind: str, line: Mapping[str, Any]) -> None:
    """Add a line and flush it to the disk; a last line that a killed process left unfinished is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
        stream.write((dump_json({"kind": kind, **line}) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a history, and how many were unfinished or no lines of a history."""
    lines, damaged = [], 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if isinstance(line, dict) and line.get("kind") in ("run", "measurement", "note"):
            lines.append(line)
        else:
            damaged += 1
    return lines, damaged


def current(lines: list[dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], int]:
    """The measurements of the run as it stands, by step, and how many belong to runs that were left."""
    kept: dict[int, dict[str, Any]] = {}
    total = 0
    for line in lines:
        if line["kind"] == "run":
            start = int(line["start_step"])
            kept = {step: row for step, row in kept.items() if start > 0 and step <= start}
        elif line["kind"] == "measurement":
            kept[int(line["step"])] = line
            total += 1
    return kept, total - len(kept)


def _frame(rows: list[dict[str, Any]], key: list[str]) -> pd.DataFrame:
    """Null is NaN again."""
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=key)
    numbers = [name for name in frame if name not in ("part", "kind")]
    return frame.astype(dict.fromkeys((n for n in numbers if frame[n].dtype == object), float)) if rows else frame
