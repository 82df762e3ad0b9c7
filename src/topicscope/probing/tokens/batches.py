"""Batches of aligned units: padded to one length, with units of like length together to keep the padding small."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int64

from topicscope.probing.tokens.alignment import AlignedUnit

# On a CPU what its caches hold is read fastest; elsewhere a batch must keep the device busy.
CPU_TOKENS, DEVICE_TOKENS = 2048, 16384
PADDING = 0  # The view overwrites it by the model's own; it is never attended.


@dataclass(frozen=True)
class Batch:
    """Units padded to one length L.

    input_ids [unit, position]: token ids, arbitrary where padded.
    attention_mask [unit, position]: 1 for tokens, 0 for padding; the tokens of a unit stand in one run.
    unit_index: for each row the index of its unit in the sequence given to `make_batches`.
    """

    input_ids: Int64[torch.Tensor, "unit position"]
    attention_mask: Int64[torch.Tensor, "unit position"]
    unit_index: tuple[int, ...]


def make_batches(
    units: Sequence[AlignedUnit],
    *,
    batch_size: int | None = None,
    max_tokens: int = CPU_TOKENS,
    pad_side: Literal["right", "left"] = "right",
) -> list[Batch]:
    """All units in batches of at most `max_tokens` tokens, padding counted, and `batch_size` units where that is given.

    Units are ordered by length, equal lengths by index, so that the same units always give the same batches. A unit
    longer than `max_tokens` gets a batch of its own. The side of the padding makes no difference to what
    `ModelView.run` hands out, apart from the places of the tokens.
    """
    assert batch_size is None or batch_size >= 1
    order = sorted(range(len(units)), key=lambda i: (len(units[i].input_ids), i))
    batches: list[Batch] = []
    rows: list[int] = []
    for i in order:
        too_many = (len(rows) + 1) * len(units[i].input_ids) > max_tokens
        if rows and (len(rows) == batch_size or too_many):
            batches.append(_pad(units, rows, pad_side))
            rows = []
        rows.append(i)
    if rows:
        batches.append(_pad(units, rows, pad_side))
    return batches


def tokens_at_once(device: str) -> int:
    """How many tokens a batch holds on this device unless its user says so."""
    return CPU_TOKENS if torch.device(device).type == "cpu" else DEVICE_TOKENS


def _pad(units: Sequence[AlignedUnit], rows: Sequence[int], pad_side: str) -> Batch:
    length = max(len(units[i].input_ids) for i in rows)
    input_ids = torch.full((len(rows), length), PADDING, dtype=torch.int64)
    mask = torch.zeros_like(input_ids)
    for row, i in enumerate(rows):
        ids = torch.tensor(units[i].input_ids, dtype=torch.int64)
        place = slice(0, len(ids)) if pad_side == "right" else slice(length - len(ids), length)
        input_ids[row, place] = ids
        mask[row, place] = 1
    return Batch(input_ids, mask, tuple(rows))
