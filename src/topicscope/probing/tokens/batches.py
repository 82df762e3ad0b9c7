"""Windows of text as columns, and batches cut from them.

A batch is padded to one length, with windows of like length together to keep the padding small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Int, Int64

from topicscope.probing.tokens.alignment import LATER_PIECE, AlignedUnit

# On a CPU what its caches hold is read fastest; elsewhere a batch must keep the device busy.
CPU_TOKENS, DEVICE_TOKENS = 2048, 16384
PADDING = 0  # The view overwrites it by the model's own; it is never attended.
# What stands in `TokenWindows.words` where the token is no word, or a later piece of one.
NO_WORD, LATER = -1, -2


@dataclass(frozen=True, eq=False)
class TokenWindows(Sequence[AlignedUnit]):
    """What the model reads of some units, as columns; an item is one window with its words.

    input_ids, words [token]: of all windows one after another; words are numbers of `vocabulary`, `NO_WORD` or `LATER`.
    lengths [window]: tokens of each. document_ids, unit, window [window]: as in `AlignedUnit`.
    """

    input_ids: Int[np.ndarray, "token"]
    words: Int[np.ndarray, "token"]
    lengths: Int[np.ndarray, "window"]
    document_ids: tuple[str, ...]
    unit: Int[np.ndarray, "window"]
    window: Int[np.ndarray, "window"]
    vocabulary: tuple[str, ...]

    @classmethod
    def of(cls, units: Sequence[AlignedUnit]) -> "TokenWindows":
        """The columns of units; those that are columns already are given back."""
        if isinstance(units, TokenWindows):
            return units
        numbers: dict[str | None, int] = {None: NO_WORD, LATER_PIECE: LATER}
        codes = [numbers.setdefault(word, len(numbers) - 2) for unit in units for word in unit.words]
        return cls(
            input_ids=np.array([token for unit in units for token in unit.input_ids], dtype=np.int64),
            words=np.array(codes, dtype=np.int64),
            lengths=np.array([len(unit.input_ids) for unit in units], dtype=np.int64),
            document_ids=tuple(unit.document_id for unit in units),
            unit=np.array([unit.unit for unit in units], dtype=np.int64),
            window=np.array([unit.window for unit in units], dtype=np.int64),
            vocabulary=tuple(word for word in numbers if word),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> AlignedUnit: ...
    @overload
    def __getitem__(self, index: slice) -> "TokenWindows": ...
    def __getitem__(self, index: int | slice) -> "AlignedUnit | TokenWindows":
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        one = self.take([range(len(self))[index]])
        spelled: dict[int, str | None] = {NO_WORD: None, LATER: LATER_PIECE}
        return AlignedUnit(
            document_id=one.document_ids[0],
            unit=int(one.unit[0]),
            window=int(one.window[0]),
            input_ids=tuple(one.input_ids.tolist()),
            words=tuple(spelled[code] if code < 0 else self.vocabulary[code] for code in one.words.tolist()),
        )

    def take(self, rows: Sequence[int]) -> "TokenWindows":
        """Some of the windows, in the order of `rows`."""
        chosen = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[chosen]
        starts = np.repeat((np.cumsum(self.lengths) - self.lengths)[chosen], lengths)
        tokens = starts + np.arange(len(starts)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return TokenWindows(
            input_ids=self.input_ids[tokens],
            words=self.words[tokens],
            lengths=lengths,
            document_ids=tuple(self.document_ids[row] for row in chosen.tolist()),
            unit=self.unit[chosen],
            window=self.window[chosen],
            vocabulary=self.vocabulary,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process with the words that occur in it, in place of those of the whole text."""
        used, codes = np.unique(np.append(self.words, [LATER, NO_WORD]), return_inverse=True)
        words = codes[: len(self.words)] + LATER
        vocabulary = tuple(self.vocabulary[code] for code in used[2:].tolist())
        columns = (self.input_ids, words, self.lengths, self.document_ids, self.unit, self.window, vocabulary)
        return TokenWindows, columns


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
    windows = TokenWindows.of(units)
    groups: list[list[int]] = []
    for i in np.argsort(windows.lengths, kind="stable").tolist():
        there = len(groups[-1]) if groups else 0
        if not there or there == batch_size or (there + 1) * int(windows.lengths[i]) > max_tokens:
            groups.append([])
        groups[-1].append(i)
    batches = []
    for rows in groups:
        chosen = windows.take(rows)
        places = np.arange(int(chosen.lengths.max()))
        mask = (places if pad_side == "right" else places[::-1]) < chosen.lengths[:, None]
        input_ids = np.full(mask.shape, PADDING, dtype=np.int64)
        input_ids[mask] = chosen.input_ids
        batches.append(Batch(torch.from_numpy(input_ids), torch.from_numpy(mask.astype(np.int64)), tuple(rows)))
    return batches


def tokens_at_once(device: str) -> int:
    """How many tokens a batch holds on this device unless its user says so."""
    return CPU_TOKENS if torch.device(device).type == "cpu" else DEVICE_TOKENS
