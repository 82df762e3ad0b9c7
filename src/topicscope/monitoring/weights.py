"""Norms of a layer's query, key, value and output weights, and how far they are from where training began.

The start is kept on disk, not in memory, so that a resumed run measures from the same start, and a run needs no second
copy of its weights.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from topicscope.errors import UnsupportedModelError
from topicscope.probing.circuits import attention_weights
from topicscope.probing.hf import ModelView

START_FILE = "topic_structure_start.safetensors"


def save_start(view: ModelView, path: Path) -> bool:
    """Write the weights as they are; false where the model's matrices are not known."""
    try:
        found = {
            f"{part}/{layer}/{name}": matrix.float().contiguous().clone()
            for part, layer, matrices in attention_weights(view)
            for name, matrix in matrices.items()
        }
    except UnsupportedModelError:
        return False
    waiting = path.with_suffix(".writing")
    save_file(found, waiting)
    waiting.replace(path)
    return True


def weight_rows(view: ModelView, start: Path | None) -> Iterator[dict[str, Any]]:
    """One row per part and layer: ‖X‖_F as X_norm, and ‖X - X(start)‖_F as X_change, for W_Q, W_K, W_V and W_O.

    start: the file of `save_start`; None: no change is known. Nothing where the model's matrices are not known.
    """
    if start is None or not start.is_file():
        yield from _rows(view, None)
        return
    with safe_open(start, framework="pt") as kept:
        yield from _rows(view, kept)


def _rows(view: ModelView, kept: Any) -> Iterator[dict[str, Any]]:
    try:
        for part, layer, matrices in attention_weights(view):
            row: dict[str, Any] = {"part": part, "layer": layer}
            for name, matrix in matrices.items():
                row[f"{name}_norm"] = float(matrix.norm())
                if kept is not None:
                    row[f"{name}_change"] = float((matrix - kept.get_tensor(f"{part}/{layer}/{name}")).norm())
            yield row
    except UnsupportedModelError:
        return
