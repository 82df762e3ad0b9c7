"""Every pair of words of some units as one table: what the pair is, and the attention from one word to the other.

The sums of a probe (`pair_sums`) never hold single pairs. Regressions on pairs of words, shares of variance, and a
monitor that measures the same pairs again and again, do.

Axes: b unit of the batch, h head, q query position, k key position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Float, Int

from topicscope.probing.attention.positions import TopicLookup, pair_codes, text_positions
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import AlignedUnit, Batch, TokenWindows, make_batches, tokens_at_once
from topicscope.topics import PairClass


@dataclass(frozen=True, eq=False)
class PairTable:
    """Ordered pairs of positions of one part of a model, one pair in each row of every column.

    | column | content |
    | --- | --- |
    | document | number of the document |
    | row | number of the row of attention, within which pairs compete |
    | query, key | word indices |
    | pair_class | `PairClass` |
    | distance | between the places of the two words in the text, in tokens |
    | length | L, the attended tokens of the unit |
    | rank | 1, 2, … : which of these the query is |
    | attention | A_qk, one map for each layer or head that was read |

    nan_rows: rows of attention that are left out because they held a NaN.
    """

    document: Int[np.ndarray, "pair"]
    row: Int[np.ndarray, "pair"]
    query: Int[np.ndarray, "pair"]
    key: Int[np.ndarray, "pair"]
    pair_class: Int[np.ndarray, "pair"]
    distance: Int[np.ndarray, "pair"]
    length: Int[np.ndarray, "pair"]
    rank: Int[np.ndarray, "pair"]
    attention: Float[np.ndarray, "pair map"]
    nan_rows: int = 0

    def only(self, chosen: np.ndarray) -> "PairTable":
        """Some of the pairs, by a mask or by their indices."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    @classmethod
    def joined(cls, tables: Sequence["PairTable"]) -> "PairTable":
        """All pairs of several tables, in order."""
        columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in _COLUMNS}
        return cls(**columns, nan_rows=sum(table.nan_rows for table in tables))


_COLUMNS = tuple(field.name for field in fields(PairTable) if field.name != "nan_rows")


class PairReader:
    """The pairs of some units, found once; their attention can be read of a model again and again.

    document_of [unit]: number of each unit's document. lookup: its first configuration gives the classes. classes: the
    pairs that are kept.
    """

    def __init__(
        self,
        view: ModelView,
        units: Sequence[AlignedUnit],
        document_of: Int[np.ndarray, "unit"],
        lookup: TopicLookup,
        classes: Sequence[PairClass] = tuple(PairClass),
    ) -> None:
        # Each batch with the pairs of its parts, still without attention, and where these stand in its flat [b q k].
        self._batches: list[tuple[Batch, dict[str, tuple[PairTable, np.ndarray]]]] = []
        windows, rows = TokenWindows.of(units), 0
        for batch in make_batches(windows, max_tokens=tokens_at_once(view.device)):
            text = text_positions(windows.take(batch.unit_index), batch.attention_mask, lookup)
            document, length = document_of[list(batch.unit_index)], (text.rank > 0).sum(1).numpy()
            found = {}
            for part in view.parts:
                query, key = text.shifted(part.query_shift), text.shifted(part.key_shift)
                codes = pair_codes(query, key, causal=part.causal)[:, 0].numpy()
                unit, i, j = np.nonzero(np.isin(codes, [int(pair_class) for pair_class in classes]))
                row = unit * codes.shape[1] + i
                table = PairTable(
                    document=document[unit],
                    row=rows + row,
                    query=query.words.numpy()[unit, i],
                    key=key.words.numpy()[unit, j],
                    pair_class=codes[unit, i, j].astype(np.int64),
                    distance=np.abs(query.place.numpy()[unit, i] - key.place.numpy()[unit, j]),
                    length=length[unit],
                    rank=query.rank.numpy()[unit, i],
                    attention=np.zeros((len(unit), 0)),
                )
                found[part.name] = table, row * codes.shape[2] + j
            self._batches.append((batch, found))
            rows += batch.input_ids.numel()

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def read(self, view: ModelView, *, heads: bool = False) -> Iterator[dict[str, PairTable]]:
        """The pairs of each part, batch by batch, with one map for each layer: the mean over its heads.

        heads: one map for each head of each layer instead.

        Raises:
            RunError: see `ModelView.run`.
        """
        for batch, found in self._batches:
            maps: dict[str, list[np.ndarray]] = {name: [] for name in found}

            def on_attention(
                part: str,
                _layer: int,
                attention: torch.Tensor,
                found: dict[str, tuple[PairTable, np.ndarray]] = found,
                maps: dict[str, list[np.ndarray]] = maps,
            ) -> None:
                flat = torch.from_numpy(found[part][1]).to(attention.device)
                weights = attention if heads else attention.mean(1, keepdim=True)
                maps[part].append(weights.movedim(1, -1).flatten(0, 2)[flat].double().cpu().numpy())

            rows = view.run(batch, on_attention)
            tables = {}
            for name, (pairs, flat) in found.items():
                table = replace(pairs, attention=np.concatenate(maps[name], axis=1))
                nan = rows.not_a_number[name].flatten().cpu().numpy()
                if nan.any():
                    table = replace(table.only(~nan[flat // batch.input_ids.shape[1]]), nan_rows=int(nan.sum()))
                tables[name] = table
            yield tables
