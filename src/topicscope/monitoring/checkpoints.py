"""The checkpoints of one training run, in order: folders of models, or revisions of a model on the hub."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topicscope.errors import InputError
from topicscope.probing.hf import pinned

CheckpointSource = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Checkpoint:
    """name: what it is called in the series, and the folder of its result. model: what `probe` takes. step: see
    `find_checkpoints`.
    """

    name: str
    model: str
    step: int


def find_checkpoints(source: CheckpointSource) -> tuple[Checkpoint, ...]:
    """Checkpoints by step.

    source: a folder that holds folders of models (such as a Trainer's output folder with its checkpoint-N),
    "MODEL@REV1,REV2,…", or a list of folders and MODEL@REVISION.
    The step is the last number in a checkpoint's name: checkpoint-500, step1000. Where one has none, or two have the
    same, the steps are the places in the order given (of a folder: of the names), from 0.

    Raises:
        InputError: nothing there, no model in the folder, or the same checkpoint twice.
    """
    models = _models(source)
    if not models:
        raise InputError(
            "a series needs a checkpoint", received=source, expected="a folder of models, or MODEL@REV1,REV2"
        )
    names = [_name(model) for model in models]
    if len(set(names)) < len(names):
        # Checkpoints of several runs are told apart by the folder that they lie in.
        names = [_slug("-".join(Path(model).parts[-2:])) for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("two checkpoints have one name", received=twice, expected="names that differ")
    found = [re.findall(r"\d+", name) for name in names]
    steps = [int(numbers[-1]) for numbers in found if numbers]
    if len(set(steps)) < len(models):
        steps = list(range(len(models)))
    checkpoints = [Checkpoint(*each) for each in zip(names, models, steps, strict=True)]
    return tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.step))


def _models(source: CheckpointSource) -> list[str]:
    if not isinstance(source, (str, Path)):
        return [str(model) for model in source]
    folder = Path(source).expanduser()
    if folder.is_dir():
        found = [str(child) for child in sorted(folder.iterdir()) if (child / "config.json").is_file()]
        if not found:
            raise InputError(
                "no checkpoint in the folder",
                received=str(source),
                expected="folders with config.json, weights and tokenizer, such as a Trainer's checkpoint-500",
                where="found: " + (", ".join(sorted(child.name for child in folder.iterdir())[:8]) or "nothing"),
            )
        return found
    name, revisions = pinned(str(source))
    if revisions is None:
        raise InputError(
            "no such folder, and no revisions of a model",
            received=str(source),
            expected="a folder of checkpoints, or MODEL@REV1,REV2",
        )
    given = [revision.strip() for revision in revisions.split(",")]
    if not all(given):
        raise InputError("a revision is missing", received=str(source), expected="MODEL@REV1,REV2")
    return [f"{name}@{revision}" for revision in given]


def _name(model: str) -> str:
    """The last part of a folder's path, or the revision."""
    if Path(model).expanduser().is_dir():
        return _slug(Path(model).expanduser().resolve().name)
    name, revision = pinned(model)
    return _slug(Path(name).name if revision is None else revision)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "checkpoint"
