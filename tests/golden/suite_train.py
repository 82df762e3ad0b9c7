"""Golden trainings: every recipe for 20 steps with two seeds, and a sweep of four points."""

import json
from pathlib import Path

from golden import adapter
from golden.recording import Recorder, succeed

_OTHER_KINDS = {"pretrained-table"}  # a recipe of `reproduce`, which `train` does not take
STEPS = ("--set", "training.steps=20")
_SWEEP = """
recipe = "value-matrix"
seeds = 2
[set]
"training.steps" = 20
[grid]
"training.optimizer" = ["adam", "sgd"]
"data.length" = [50, 100]
"""


def record_trainings(recorder: Recorder) -> None:
    """Weights, history and summary of each recipe."""
    with adapter.undrawn():
        for recipe in sorted((adapter.source_tree() / "recipes").glob("*.toml")):
            if recipe.stem in _OTHER_KINDS:
                continue
            folder = Path("train") / recipe.stem
            succeed("train", recipe, "--seeds", 2, *STEPS, "--out", folder, "--progress", "none", "--json")
            recorder.put_folder(recipe.stem, folder)


def record_sweep(recorder: Recorder) -> None:
    """Four points, with their records; and what `--dry-run` says of them."""
    spec = Path("sweep.toml")
    spec.write_text(_SWEEP, encoding="utf-8")
    recorder.put("dry-run.json", json.loads(succeed("sweep", spec, "--dry-run", "--json")))
    printed = succeed("sweep", spec, "--out", "sweep", "--json", "--progress", "none")
    recorder.put("printed.json", json.loads(printed))
    recorder.put_folder("folder", Path("sweep"))
