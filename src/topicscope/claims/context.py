"""What a claim may use: trained runs, how many seeds, and whether to be quick."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import topicscope
from topicscope.claims.closed_forms import resolve
from topicscope.claims.recipes import find_recipe
from topicscope.progress import Progress, SilentProgress
from topicscope.records.run_record import RunRecord
from topicscope.training.loop import train


@dataclass
class Context:
    """The surroundings of a claim's run.

    | field | meaning |
    | --- | --- |
    | seeds | independent runs behind every measured number, at least 2: the error is their spread |
    | quick | shorter runs and fewer settings; each claim says which |
    | folder | where training runs are kept and resumed; None: nowhere |
    | progress | receives the state of long work |
    """

    seeds: int = 4
    quick: bool = False
    folder: Path | None = None
    progress: Progress = field(default_factory=SilentProgress)

    def train(self, name: str, *overrides: str) -> RunRecord:
        """Train a recipe of topicscope, changed by overrides; closed forms are handed in as the command line does."""
        recipe = find_recipe(name, overrides)
        text = f"{topicscope.__version__} {self.seeds} {recipe.model_dump_json()}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return train(
            recipe,
            seeds=self.seeds,
            out=None if self.folder is None else self.folder / f"{name}-{digest}",
            resume=self.folder is not None,
            arrays=resolve(recipe, recipe.arrays),
            references=resolve(recipe, recipe.references),
            progress=self.progress,
        )
