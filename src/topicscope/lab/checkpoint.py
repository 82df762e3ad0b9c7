"""Checkpoints that survive SIGKILL.

A checkpoint is a safetensors file, and a JSON file that names it once it is whole. The JSON is written last and
atomically, so it always points at a complete pair; the older pair is removed afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from topicscope.errors import InputError
from topicscope.records import read_json, write_bytes, write_json

SCHEMA_VERSION = 1
POINTER = "checkpoint.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything that decides the rest of a run: tensors by name, and plain data (step, generators, history, ...)."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the pair and remove older tensors; returns the JSON's path."""
    name = f"checkpoint-{checkpoint.state['step']:08d}.safetensors"
    write_bytes(folder / name, save({key: value.contiguous() for key, value in checkpoint.tensors.items()}))
    write_json(folder / POINTER, {"schema_version": SCHEMA_VERSION, "tensors": name, "state": checkpoint.state})
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != name:
            old.unlink()
    return folder / POINTER


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint, or None if the run was stopped before its first one.

    Raises:
        InputError: another schema version.
    """
    if not (folder / POINTER).is_file():
        return None
    document = read_json(folder / POINTER)
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            "unknown schema version of a checkpoint",
            received=document.get("schema_version"),
            expected=SCHEMA_VERSION,
            where=str(folder / POINTER),
            advice="start the run again without --resume, in another folder",
        )
    return Checkpoint(load((folder / document["tensors"]).read_bytes()), document["state"])


def remove_checkpoint(folder: Path) -> None:
    """Clear up after a finished run, the pointer first."""
    (folder / POINTER).unlink(missing_ok=True)
    for old in folder.glob("checkpoint-*.safetensors"):
        old.unlink()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory (moments, step counts) as named tensors."""
    memory = optimizer.state_dict()["state"]
    return {
        f"{index}/{key}": value
        for index, values in memory.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizer` took."""
    document = optimizer.state_dict()
    memory: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        memory.setdefault(int(index), {})[key] = value
    document["state"] = memory
    optimizer.load_state_dict(document)
