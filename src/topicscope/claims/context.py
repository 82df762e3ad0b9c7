"""What a claim may use: trained runs, how many seeds, and whether to be quick."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from topicscope.experiments import resolve
from topicscope.lab import load_recipe, recipe_path, train
from topicscope.progress import Progress, SilentProgress
from topicscope.records import NUMBERS_VERSION, RunRecord, write_npz

Made = TypeVar("Made")


@dataclass
class Context:
    """The surroundings of a claim's run.

    | field | meaning |
    | --- | --- |
    | seeds | independent runs behind every measured number, at least 2: the error is their spread |
    | quick | shorter runs and fewer settings; each claim says which |
    | folder | where training runs are kept and resumed; None: nowhere |
    | progress | receives the state of long work |
    | models | pretrained models to probe, by name; none: those that the claim takes by default |
    | memory | what several claims read, such as a model's attention on a corpus; kept as long as the context lives |
    | evidence | what lies in `folder` for figures to draw: of every training run {path, recipe, overrides, seeds}, of
    arrays kept {path, title, …} |
    """

    seeds: int = 4
    quick: bool = False
    folder: Path | None = None
    progress: Progress = field(default_factory=SilentProgress)
    models: tuple[str, ...] = ()
    memory: dict[str, Any] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def train(self, name: str, *overrides: str, seeds: int | None = None) -> RunRecord:
        """Train a recipe of topicscope, changed by overrides; closed forms are handed in as the command line does.

        seeds: where a claim needs more runs than asked for, such as a mean over random starts.
        """
        recipe = load_recipe(recipe_path(name), overrides)
        seeds = self.seeds if seeds is None else seeds
        text = f"{NUMBERS_VERSION} {seeds} {recipe.model_dump_json()}"
        path = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        self.evidence.append({"path": path, "recipe": name, "overrides": list(overrides), "seeds": seeds})
        arrays, references = resolve(recipe)
        return train(
            recipe,
            seeds=seeds,
            out=None if self.folder is None else self.folder / path,
            resume=self.folder is not None,
            arrays=arrays,
            references=references,
            progress=self.progress,
        )

    def keep(self, name: str, title: str, arrays: Mapping[str, np.ndarray], **labels: Any) -> None:
        """Keep small arrays for a figure as `name`.npz; labels tell the figure what they are."""
        if self.folder is not None:
            write_npz(self.folder / f"{name}.npz", arrays)
        self.evidence.append({"path": f"{name}.npz", "title": title, **labels})

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` gives, made at the first call with this name only; claims of one run share it."""
        if name not in self.memory:
            self.memory[name] = make()
        made: Made = self.memory[name]
        return made
