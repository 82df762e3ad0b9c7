"""RunRecord: what a training run leaves on disk, and how to read it again without torch.

A folder holds

    recipe.json        every field of the recipe, defaults included
    manifest.json      library versions, machine, command line, seeds
    history.jsonl      one line per seed and measured step
    weights.safetensors  the final matrices, each [seed, …]
    snapshots.npz      token-by-token matrices of the first seed along training; left out where none is trained
    summary.json       {"schema_version", "summary"}: what `topicscope train --json` prints
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from topicscope.errors import InputError
from topicscope.records.arrays import read_npz
from topicscope.records.contents import RUN
from topicscope.records.files import read_json, read_jsonl, write_bytes, write_json, write_jsonl, write_npz
from topicscope.records.manifest import Manifest
from topicscope.records.result import Result
from topicscope.records.urls import result_path

SCHEMA_VERSION = 1
RECIPE, MANIFEST, HISTORY, WEIGHTS, SUMMARY = (
    "recipe.json",
    "manifest.json",
    "history.jsonl",
    "weights.safetensors",
    "summary.json",
)
SNAPSHOTS = "snapshots.npz"


@dataclass(frozen=True, eq=False)
class RunRecord(Result):
    """One finished training run.

    config: the recipe as plain data.
    manifest: environment, options and sources.
    history: one row per (seed, step); the columns are listed in `topicscope.lab.history`.
    weights: name -> array [seed, …]; `W_V` is [seed, output token, input token] in the paper's orientation.
    summary: final numbers, stages of training and, when the command line made the run, theory beside them.
    snapshots: matrices of the first seed at up to 20 steps, see `topicscope.lab.history`; empty in old records.
    """

    kind, layout = "run", RUN

    config: dict[str, Any]
    manifest: Manifest
    history: pd.DataFrame
    weights: dict[str, np.ndarray]
    summary: dict[str, Any]
    snapshots: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    @property
    def final(self) -> pd.DataFrame:
        """What was measured on the final weights (the averaged ones, with iterate averaging), one row a seed."""
        return pd.DataFrame(self.summary["final"])

    def table(self) -> pd.DataFrame:
        """Mean and sample standard deviation over seeds of every final measurement (sd NaN for a single seed)."""
        values = self.final.drop(columns=["seed", "step"]).astype(float)
        table = pd.DataFrame({"mean": values.mean(), "sd": values.std(ddof=1)})
        return table.rename_axis("measurement").reset_index()

    def plot(self, kind: str = "norms", *, columns: Literal["single", "double"] = "double", **more: Any) -> Any:
        """A matplotlib figure as wide as one or two columns of a paper.

        kind: "norms", "losses", "stages", "attention", and heat maps of the first seed: "values" (W_V), "gram" (the
        embeddings' W_Eᵀ W_E), "logits" (of attention), which take `step` as well.

        Raises:
            InputError: no such kind, or the run lacks what it would show.
        """
        from topicscope.report import draw_run

        return draw_run(self, kind, columns, **more)[1]

    def plot_data(self, kind: str = "norms", **more: Any) -> Any:
        """The numbers that `plot` shows: a DataFrame, or arrays by name for a heat map."""
        from topicscope.report import draw_run

        return draw_run(self, kind, **more)[0]

    def _repr_html_(self) -> str:
        """For notebooks: what came out, the final table and the norms."""
        from topicscope.report import notebook

        return notebook(self)

    def page(self) -> str:
        """What came out, theory beside it, curves, and the matrices with a slider of steps, as one HTML file."""
        from topicscope.report import render_run

        return render_run(self)

    def to_dict(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {**self._head(), "summary": self.summary}

    def write(self, folder: Path) -> None:
        """Every file of the record; the summary last, so that it marks the end."""
        write_json(folder / RECIPE, {"schema_version": SCHEMA_VERSION, "recipe": self.config})
        write_json(folder / MANIFEST, self.manifest.model_dump())
        write_jsonl(folder / HISTORY, self.history.to_dict(orient="records"))
        write_bytes(
            folder / WEIGHTS,
            save_tensors({name: np.ascontiguousarray(array) for name, array in self.weights.items()}),
        )
        if self.snapshots:
            write_npz(folder / SNAPSHOTS, self.snapshots)
        write_json(folder / SUMMARY, self.to_dict())

    @classmethod
    def load(cls, folder: Path | str) -> "RunRecord":
        """Read a record written by `topicscope train` or `save`.

        Raises:
            InputError: as `Result.load`; an unfinished run.
        """
        folder = result_path(folder)
        if not folder.is_dir():
            raise InputError("no such run", received=str(folder), expected="a folder written by `topicscope train`")
        missing = [name for name in (RECIPE, MANIFEST, HISTORY, WEIGHTS, SUMMARY) if not (folder / name).is_file()]
        if missing:
            raise InputError(
                "the folder holds no finished run",
                received=f"{folder} without {', '.join(missing)}",
                expected="a folder written by `topicscope train`",
                advice="run `topicscope train RECIPE --out DIR --resume` to finish an interrupted run",
            )
        return super().load(folder)

    @classmethod
    def read(cls, folder: Path, record: Mapping[str, Any]) -> "RunRecord":
        """See `Result.read`."""
        try:
            weights = load_tensors((folder / WEIGHTS).read_bytes())
        except SafetensorError as error:
            raise InputError("not a safetensors file", received=str(error), where=str(folder / WEIGHTS)) from error
        return cls(
            config=_versioned(folder / RECIPE)["recipe"],
            manifest=Manifest.model_validate(read_json(folder / MANIFEST)),
            # JSON has no NaN: null in a column of numbers would make it one of objects.
            history=pd.DataFrame(read_jsonl(folder / HISTORY)).astype(float).astype({"seed": int, "step": int}),
            weights=weights,
            summary=record["summary"],
            snapshots=read_npz(folder / SNAPSHOTS) if (folder / SNAPSHOTS).is_file() else {},
            folder=folder,
        )


def _versioned(path: Path) -> dict[str, Any]:
    document = read_json(path)
    found = document.get("schema_version") if isinstance(document, dict) else None
    if found != SCHEMA_VERSION:
        raise InputError(
            "unknown schema version",
            received=found,
            expected=SCHEMA_VERSION,
            where=str(path),
            advice="read it with the version of topicscope that wrote it",
        )
    return dict(document)
