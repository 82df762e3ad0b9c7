"""What else a head attends to, so that topic heads can be told from positional ones (Clark et al. 2019).

Read from whole rows of attention, which the sums of a probe do not need; so on a sample of the units, by weights.
For a head with rows A_i over the visible tokens j, means over all attended tokens i but the first of each unit:

    entropy        -Σ_j A_ij ln A_ij (nats)
    entropy_share  the same / ln(number of visible tokens): 1 where attention is uniform
    first_token    A_i0, where sinks stand
    separators     Σ A_ij over special tokens other than the first, as [SEP] and </s>
    punctuation    Σ A_ij over tokens that are punctuation alone
    itself, previous, next  A_ii, A_i,i-1, A_i,i+1
    distance       Σ_j A_ij |i-j| / Σ_j A_ij (tokens)
    same_topic_share  Σ_j A_ij over different words of i's topic; mean over the i of a unit that have such a j, then
                   over units

In cross attention, and wherever a decoder reads the text moved by one, i and j are the places of the text that the
positions hold. Axes: b unit, h head, q query, k key, L positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from topicscope.probing.attention.positions import pair_codes, text_side
from topicscope.probing.attention.sinks import moved, specials_and_punctuation
from topicscope.probing.attention.topic_lookup import TopicLookup
from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.tokens import AlignedUnit, Batch, make_batches
from topicscope.topics import PairClass

TO_KEYS = ("first_token", "separators", "punctuation")
BY_PLACE = ("itself", "previous", "next", "distance")
MEASURES = ("entropy", "entropy_share", *TO_KEYS, *BY_PLACE)
# Weights of one layer are all alive at once here.
TOKENS_AT_A_TIME, LONGEST = 1024, 512


@dataclass(frozen=True)
class HeadProfile:
    """frame: one row per part, layer and head, with the measures, `profile_units` and `profile_tokens` (queries read).

    shares[part] [layer, head, unit]: `same_topic_share` of each unit alone; NaN where no two words share a topic.
    """

    frame: pd.DataFrame
    shares: dict[str, np.ndarray]


def sampled(units: Sequence[AlignedUnit], number: int, seed: int) -> list[AlignedUnit]:
    """A seeded sample of so many units, in their order (all where there are no more), of each the first 512 tokens."""
    chosen = np.arange(len(units))
    if number < len(units):
        chosen = np.sort(np.random.default_rng([seed, number]).choice(len(units), number, replace=False))
    found = [units[int(i)] for i in chosen]
    return [replace(unit, input_ids=unit.input_ids[:LONGEST], words=unit.words[:LONGEST]) for unit in found]


def profile_heads(
    view: ModelView, units: Sequence[AlignedUnit], lookup: TopicLookup, configuration: int
) -> HeadProfile:
    """The profile of every head that is read, over all of `units`; topics are those of one configuration.

    Raises:
        RunError: as `ModelView.run`.
    """
    size = {part.name: (len(part.layers), len(part.heads)) for part in view.parts}
    totals = {name: np.zeros((*shape, len(MEASURES))) for name, shape in size.items()}
    queries = {name: np.zeros((*shape, 1)) for name, shape in size.items()}
    shares = {name: np.full((*shape, len(units)), np.nan) for name, shape in size.items()}
    for batch in make_batches(units, max_tokens=TOKENS_AT_A_TIME):
        places = {part.name: _Places(view, batch, units, lookup, configuration, part) for part in view.parts}

        def hear(
            part: str, layer: int, attention: torch.Tensor, places: dict[str, _Places] = places, batch: Batch = batch
        ) -> None:
            here = places[part]
            row = here.part.layers.index(layer)
            sums, counts, share = here.measure(attention)
            totals[part][row] += sums
            queries[part][row] += counts
            shares[part][row][:, list(batch.unit_index)] = share

        view.run(batch, hear)
    frames = []
    for part in view.parts:
        mean = totals[part.name] / np.maximum(queries[part.name], 1)
        layers, heads = np.meshgrid(part.layers, part.heads, indexing="ij")
        frame = pd.DataFrame({"part": part.name, "layer": layers.ravel(), "head": heads.ravel()})
        frame[list(MEASURES)] = mean.reshape(-1, len(MEASURES))
        known = ~np.isnan(shares[part.name])
        total = np.nansum(shares[part.name], axis=-1)
        count = known.sum(-1)
        frame["same_topic_share"] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0).ravel()
        frame["profile_units"] = len(units)
        frame["profile_tokens"] = queries[part.name].astype(int).ravel()
        frames.append(frame)
    return HeadProfile(pd.concat(frames, ignore_index=True), shares)


class _Places:
    """What stands where in one batch, as the queries and keys of one part see it."""

    def __init__(
        self,
        view: ModelView,
        batch: Batch,
        units: Sequence[AlignedUnit],
        lookup: TopicLookup,
        configuration: int,
        part: PartSpec,
    ) -> None:
        self.part = part
        attended = batch.attention_mask.bool()
        b, length = attended.shape
        position = torch.arange(length)
        side = text_side([units[i] for i in batch.unit_index], batch.attention_mask, lookup)
        codes = pair_codes(side.shifted(part.query_shift), side.shifted(part.key_shift), causal=part.causal)
        self._topical = (codes[:, configuration] == PairClass.same_topic).to(view.device)
        queries = attended.clone()
        queries[:, 0] = False
        self._queries = queries.to(view.device)
        visible = attended[:, None, :].expand(b, length, length)
        visible = visible.tril() if part.causal else visible
        # At least 2 wherever a query counts.
        self._most = visible.sum(-1).clamp(min=2).log().to(view.device)  # [b, q]
        first = torch.zeros(b, length, dtype=torch.bool)
        first[:, 0] = True
        special, punctuation = (moved(kind, part.key_shift) & ~first for kind in specials_and_punctuation(view, batch))
        keys = torch.stack([first, special & attended, punctuation & attended], -1)
        self._keys = keys.float().to(view.device)  # [b, k, 3]
        gap = (position[None, :] - part.key_shift) - (position[:, None] - part.query_shift)
        by_place = torch.stack([gap == 0, gap == -1, gap == 1, gap.abs()], -1)
        self._by_place = by_place.float().to(view.device)  # [q, k, 4]

    def measure(self, attention: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of A [b, h, q, k]: sums [h, measure] and numbers [h, 1] of rows, and the share [h, b] of the same topic."""
        mass = attention.sum(-1)
        rows = (self._queries[:, None] & (mass > 0)).float()  # a row without mass was not a number
        entropy = torch.special.entr(attention).sum(-1)
        to_keys = torch.einsum("bhqk,bkf->bhqf", attention, self._keys)
        by_place = torch.einsum("bhqk,qkf->bhqf", attention, self._by_place)
        by_place[..., -1] /= mass.clamp(min=1e-30)
        found = torch.cat([torch.stack([entropy, entropy / self._most[:, None]], -1), to_keys, by_place], -1)
        sums = torch.einsum("bhq,bhqf->hf", rows, found.masked_fill(rows[..., None] == 0, 0))
        having = rows * self._topical.any(-1)[:, None]
        given = torch.einsum("bhqk,bqk->bhq", attention, self._topical.float()) * having
        number = having.sum(-1)
        share = torch.where(number > 0, given.sum(-1) / number.clamp(min=1), torch.nan)
        return tuple(t.double().cpu().numpy() for t in (sums, rows.sum((0, 2))[:, None], share.T))  # type: ignore[return-value]
