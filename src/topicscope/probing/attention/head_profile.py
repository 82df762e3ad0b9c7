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

For single heads the sampled unit in which they attend most to words of the same topic, with the pairs of words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from topicscope.probing.attention.positions import TopicLookup, pair_codes, text_positions
from topicscope.probing.attention.sinks import moved, specials_and_punctuation
from topicscope.probing.config import ProbeConfig
from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.tokens import AlignedUnit, Batch, make_batches
from topicscope.records import select, threshold_of
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

        def on_attention(
            part: str, layer: int, attention: torch.Tensor, places: dict[str, _Places] = places, batch: Batch = batch
        ) -> None:
            here = places[part]
            row = here.part.layers.index(layer)
            sums, counts, share = here.measure(attention)
            totals[part][row] += sums
            queries[part][row] += counts
            shares[part][row][:, list(batch.unit_index)] = share

        view.run(batch, on_attention)
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
        placed = text_positions([units[i] for i in batch.unit_index], batch.attention_mask, lookup)
        codes = pair_codes(placed.shifted(part.query_shift), placed.shifted(part.key_shift), causal=part.causal)
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


MOST_PAIRS = 5
# Each further sentence costs one more forward pass, at most as many as the sample has.
MOST_EXAMPLES = 200


def profiled(
    view: ModelView,
    units: Sequence[AlignedUnit],
    lookup: TopicLookup,
    head_table: pd.DataFrame,
    headline: Mapping[str, Any],
    options: ProbeConfig,
) -> tuple[pd.DataFrame, tuple[dict[str, Any], ...]]:
    """The head table with the profile of every head beside it, and examples for the 200 best (`top_heads`).

    Read from a seeded sample of `options.profile` units; shares and examples are for the topics of the headline's
    threshold, in the first topic model.

    Raises:
        RunError: as `ModelView.run`.
    """
    part, threshold = str(headline["part"]), threshold_of(headline["threshold"])
    configuration = next(i for i, c in enumerate(lookup.configurations) if c.threshold == threshold)
    chosen = sampled(units, options.profile, options.seed)
    paths = dict(view.paths)
    try:
        profile = profile_heads(view, chosen, lookup, configuration)
        table = head_table.merge(profile.frame, on=["part", "layer", "head"], how="left", validate="many_to_one")
        best = top_heads(table, MOST_EXAMPLES, part=part, threshold=threshold)
        places = [(part, int(layer), int(head)) for layer, head in zip(best["layer"], best["head"], strict=True)]
        return table, tuple(examples(view, chosen, lookup, configuration, profile, places))
    finally:
        view.paths = paths  # how the sums were read is not how this was


def top_heads(head_table: pd.DataFrame, number: int, *, part: str, threshold: float | None) -> pd.DataFrame:
    """The heads with the largest ratio of distinct words, largest first."""
    at = select(head_table, threshold)
    chosen = at[(at["part"] == part) & at["attention_ratio_distinct"].notna()]
    return chosen.sort_values("attention_ratio_distinct", ascending=False, kind="stable").head(number)


def examples(
    view: ModelView,
    units: Sequence[AlignedUnit],
    lookup: TopicLookup,
    configuration: int,
    profile: HeadProfile,
    heads: Sequence[tuple[str, int, int]],
) -> list[dict[str, Any]]:
    """One example for each (part, layer, head) of the profile that has any, as plain data, in the order of `heads`.

    Keys: part, layer, head; document_id; text; same_topic_share (the share of attention that words give to different
    words of their topic, see `head_profile`, in this unit: the largest of the sample); words with their topics
    (numbers), in the order of the text; pairs: the strongest, each with query, key, attention, and the places of both
    among `words`.
    """
    parts = {part.name: part for part in view.parts}
    # By the unit that shows each head best: the share of the head in it.
    wanted: dict[int, dict[tuple[str, int, int], float]] = {}
    for name, layer, head in heads:
        part = parts[name]
        shares = profile.shares[name][part.layers.index(layer), part.heads.index(head)]
        if not np.isnan(shares).all():
            best = int(np.nanargmax(shares))
            wanted.setdefault(best, {})[name, layer, head] = float(shares[best])
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for best, asked in wanted.items():  # each text is read once for all heads that it is the example of
        unit = units[best]
        [batch] = make_batches([unit])
        text = str(view.tokenizer.decode(list(unit.input_ids), skip_special_tokens=True))
        weights: dict[tuple[str, int, int], torch.Tensor] = {}

        def on_attention(
            name: str,
            number: int,
            attention: torch.Tensor,
            asked: Mapping[tuple[str, int, int], float] = asked,
            weights: dict[tuple[str, int, int], torch.Tensor] = weights,
        ) -> None:
            for part, layer, head in asked:
                if (part, layer) == (name, number):
                    weights[part, layer, head] = attention[0, parts[part].heads.index(head)].cpu().clone()

        view.run(batch, on_attention)
        for (name, layer, head), attention in weights.items():
            found[name, layer, head] = {
                "part": name,
                "layer": layer,
                "head": head,
                "document_id": unit.document_id,
                "text": text,
                "same_topic_share": asked[name, layer, head],
                **_pairs(batch, unit, lookup, configuration, parts[name], attention),
            }
    return [found[key] for key in heads if key in found]


def _pairs(
    batch: Batch,
    unit: AlignedUnit,
    lookup: TopicLookup,
    configuration: int,
    part: PartSpec,
    attention: torch.Tensor,
) -> dict[str, Any]:
    placed = text_positions([unit], batch.attention_mask, lookup)
    query, key = placed.shifted(part.query_shift), placed.shifted(part.key_shift)
    topical = pair_codes(query, key, causal=part.causal)[0, configuration] == PairClass.same_topic
    # To a word of several tokens: summed over them; from it: averaged.
    strength: dict[tuple[int, int], float] = {}
    for q, k in topical.nonzero().tolist():
        places = int(query.place[0, q]), int(key.place[0, k])
        strength[places] = strength.get(places, 0.0) + float(attention[q, k]) / float(query.pieces[0, q])
    membership = lookup.memberships[configuration]
    known = [place for place in range(len(unit.words)) if placed.first[0, place] and placed.words[0, place] >= 0]
    with_topic = [place for place in known if membership[int(placed.words[0, place])].any()]
    number = {place: i for i, place in enumerate(with_topic)}
    words = [str(unit.words[place]) for place in with_topic]
    strongest = sorted(strength.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_PAIRS]
    return {
        "words": [
            {"word": word, "topics": np.flatnonzero(membership[int(placed.words[0, place])]).tolist()}
            for word, place in zip(words, with_topic, strict=True)
        ],
        "pairs": [
            {
                "query": str(unit.words[q]),
                "key": str(unit.words[k]),
                "attention": value,
                "query_place": number[q],
                "key_place": number[k],
            }
            for (q, k), value in strongest
        ],
    }
