"""SweepResult: every point of a sweep with what came out, as a table, a picture, a page and a folder."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from topicscope.errors import InputError
from topicscope.records import SWEEP, Manifest, Result, dump_json, write_json, write_text

STATUSES = ("finished", "diverged", "failed", "waiting")


def flat(point: Mapping[str, Any]) -> dict[str, Any]:
    """id, status, seconds, the swept fields by their names, and of every measurement X the columns X (mean over seeds),
    X_sd, X_count and, where theory speaks of it, X_theory and X_deviation.

    A value that is no plain one (a list, a table) is JSON text.
    """
    row = {name: point[name] for name in ("id", "status", "seconds")}
    row |= {name: plain(value) for name, value in point["values"].items()}
    for name, measured in point["measurements"].items():
        row |= {name: measured["mean"], f"{name}_sd": measured["sd"], f"{name}_count": measured["count"]}
        if measured["theory"] is not None:
            row |= {f"{name}_theory": measured["theory"], f"{name}_deviation": measured["deviation"]}
    return row


def plain(value: Any) -> Any:
    """The value itself, or JSON text of a list or a table."""
    return dump_json(value) if isinstance(value, (list, tuple, Mapping)) else value


RECORD, TABLE, FIGURE = "sweep.json", "table.csv", "sweep.png"


@dataclass(frozen=True, eq=False)
class SweepResult(Result):
    """name, description: of the recipe. spec: the sweep as plain data (`SweepSpec`). points: of each its id, the values
    of the swept fields, status ("finished"; "diverged" and "failed" with their reason; "waiting"), seconds and
    measurements by name (`experiments.sweep.measurements`). impossible: settings that were left out, with
    reasons. counts: points by status, impossible and repeated settings, rows kept from earlier, rows in the folder
    whose points the sweep no longer has, bytes of the records. wanted: the metric asked for. interrupted: somebody
    stopped it.
    """

    kind, layout = "sweep", SWEEP

    name: str
    description: str
    spec: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    impossible: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]
    manifest: Manifest
    wanted: str | None = None
    interrupted: bool = False
    folder: Path | None = None

    @property
    def swept(self) -> tuple[str, ...]:
        """The fields that take several values."""
        return (*self.spec["grid"], *((self.spec["random"] or {}).get("fields", {})))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all measurements that some point has."""
        return tuple(dict.fromkeys(name for point in self.points for name in point["measurements"]))

    @property
    def metric(self) -> str:
        """The measurement that picture and page show: the one asked for, if some point has it; else the deviation from
        theory, if every finished point has one; else the loss on held-out documents."""
        if self.wanted in self.metrics:
            return str(self.wanted)
        finished = [point for point in self.points if point["status"] == "finished"]
        known = bool(finished) and all("deviation" in point["measurements"] for point in finished)
        return "deviation" if known else "loss"

    @property
    def complete(self) -> bool:
        """Whether every point finished."""
        return self.counts["finished"] == len(self.points)

    def table(self) -> pd.DataFrame:
        """One row a point: id, status, the swept fields, seconds, and of every measurement X its mean over seeds X, and
        X_sd, X_count, X_theory, X_deviation (see `flat`). Numbers that are not known are NaN."""
        rows, words = [flat(point) for point in self.points], ("id", "status", *self.swept)
        names = dict.fromkeys([*words, "seconds", *(name for row in rows for name in row)])
        numbers = [name for name in names if name not in words]
        return pd.DataFrame(rows, columns=list(names)).astype(dict.fromkeys(numbers, float))

    def plot(self, metric: str | None = None, *, columns: Literal["single", "double"] = "double") -> Any:
        """A matplotlib figure of one measurement (`metrics`; unless given that of the page) against the swept fields.

        Raises:
            InputError: no such measurement, or no point has it.
        """
        return self._drawn(metric, columns)[1]

    def plot_data(self, metric: str | None = None) -> pd.DataFrame:
        """The numbers that `plot` shows: the swept fields, status, mean, sd and theory, one row a point."""
        return self._drawn(metric, "double")[0]

    def _drawn(self, metric: str | None, columns: Literal["single", "double"]) -> tuple[pd.DataFrame, Any]:
        from topicscope.report import draw_sweep

        name = self.metric if metric is None else metric
        if name not in self.metrics:
            near = difflib.get_close_matches(name, self.metrics, n=1, cutoff=0.0)
            raise InputError(
                "no point of the sweep has this measurement",
                received=name,
                expected="one of " + ", ".join(self.metrics) if self.metrics else "a finished point",
                advice=f"did you mean {near[0]}?" if near else None,
            )
        return draw_sweep(self.to_dict(), name, columns)

    def to_dict(self) -> dict[str, Any]:
        """The document that sweep.json holds and `--json` prints."""
        return {
            **self._head(),
            "name": self.name,
            "description": self.description,
            "metric": self.metric,
            "wanted": self.wanted,
            "complete": self.complete,
            "interrupted": self.interrupted,
            "counts": dict(self.counts),
            "swept": list(self.swept),
            "spec": dict(self.spec),
            "impossible": [dict(one) for one in self.impossible],
            "points": [dict(point) for point in self.points],
            "table": [flat(point) for point in self.points],
            "manifest": self.manifest.model_dump(),
        }

    def page(self) -> str:
        """One HTML file that needs no network: the answer, the picture, the table, settings, and what failed."""
        from topicscope.report import render_sweep

        return render_sweep(self.to_dict(), self.table(), self.plot() if self.metric in self.metrics else None)

    def pictures(self) -> dict[str, bytes]:
        """The picture of the page, if any point has its measurement."""
        from topicscope.report import to_png

        return {FIGURE: to_png(self.plot())} if self.metric in self.metrics else {}

    def write(self, folder: Path) -> None:
        """table.csv and sweep.json. Records of single points are written by the sweep itself, beside them."""
        write_text(folder / TABLE, self.table().to_csv(index=False))
        write_json(folder / RECORD, self.to_dict())

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "SweepResult":
        """See `Result.read`."""
        return cls(
            name=record["name"],
            description=record["description"],
            spec=record["spec"],
            points=tuple(record["points"]),
            impossible=tuple(record["impossible"]),
            counts=record["counts"],
            manifest=Manifest.model_validate(record["manifest"]),
            wanted=record["wanted"],
            interrupted=record["interrupted"],
            folder=folder,
        )

    def __str__(self) -> str:
        more = [
            f"{self.counts[name]} {name}" for name in (*STATUSES[1:], "impossible", "repeated") if self.counts[name]
        ]
        return f"{self.name}: " + ", ".join([f"{self.counts['finished']} of {len(self.points)} points finished", *more])
