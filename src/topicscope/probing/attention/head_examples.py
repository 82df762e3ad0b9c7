"""For single heads the sampled unit in which they attend most to words of the same topic, with the pairs of words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from topicscope.probing.attention.head_profile import HeadProfile, profile_heads, sampled
from topicscope.probing.attention.positions import pair_codes, text_side
from topicscope.probing.attention.topic_lookup import TopicLookup
from topicscope.probing.config import ProbeOptions
from topicscope.probing.hf import ModelView, PartSpec
from topicscope.probing.tokens import AlignedUnit, Batch, make_batches
from topicscope.topics import PairClass

MOST_PAIRS = 5
# Each further sentence costs one more forward pass, at most as many as the sample has.
MOST_EXAMPLES = 200


def profiled(
    view: ModelView,
    units: Sequence[AlignedUnit],
    lookup: TopicLookup,
    head_table: pd.DataFrame,
    headline: Mapping[str, Any],
    options: ProbeOptions,
) -> tuple[pd.DataFrame, tuple[dict[str, Any], ...]]:
    """The head table with the profile of every head beside it, and examples for the 200 best (`top_heads`).

    Read from a seeded sample of `options.profile` units; shares and examples are for the topics of the headline's
    threshold, in the first topic model. Without units to read the table is left as it is.

    Raises:
        RunError: as `ModelView.run`.
    """
    if options.profile == 0:
        return head_table, ()
    part, threshold = str(headline["part"]), float(headline["threshold"])
    wanted = None if math.isnan(threshold) else threshold
    configuration = next(i for i, c in enumerate(lookup.configurations) if c.threshold == wanted)
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


def top_heads(head_table: pd.DataFrame, number: int, *, part: str, threshold: float) -> pd.DataFrame:
    """The heads with the largest ratio of distinct words, largest first."""
    at = head_table["threshold"].isna() if math.isnan(threshold) else head_table["threshold"] == threshold
    chosen = head_table[(head_table["part"] == part) & at & head_table["attention_ratio_distinct"].notna()]
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
    wanted: dict[int, list[tuple[str, int, int]]] = {}
    for name, layer, head in heads:
        shares = _shares(view, profile, name, layer, head)
        if not np.isnan(shares).all():
            wanted.setdefault(int(np.nanargmax(shares)), []).append((name, layer, head))
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for best, asked in wanted.items():  # each text is read once for all heads that it is the example of
        unit = units[best]
        [batch] = make_batches([unit])
        text = str(view.tokenizer.decode(list(unit.input_ids), skip_special_tokens=True))
        for (name, layer, head), attention in _attention(view, batch, asked).items():
            part = next(p for p in view.parts if p.name == name)
            found[name, layer, head] = {
                "part": name,
                "layer": layer,
                "head": head,
                "document_id": unit.document_id,
                "text": text,
                "same_topic_share": float(_shares(view, profile, name, layer, head)[best]),
                **_pairs(batch, unit, lookup, configuration, part, attention),
            }
    return [found[key] for key in heads if key in found]


def _shares(view: ModelView, profile: HeadProfile, name: str, layer: int, head: int) -> np.ndarray:
    part = next(p for p in view.parts if p.name == name)
    return np.asarray(profile.shares[name][part.layers.index(layer), part.heads.index(head)])


def _attention(
    view: ModelView, batch: Batch, wanted: Sequence[tuple[str, int, int]]
) -> dict[tuple[str, int, int], torch.Tensor]:
    """The weights [query, key] of each (part, layer, head), from one reading of a batch of one unit."""
    places = {part.name: part.heads for part in view.parts}
    weights: dict[tuple[str, int, int], torch.Tensor] = {}

    def hear(name: str, number: int, attention: torch.Tensor) -> None:
        for part, layer, head in wanted:
            if (part, layer) == (name, number):
                weights[part, layer, head] = attention[0, places[part].index(head)].cpu().clone()

    view.run(batch, hear)
    return weights


def _pairs(
    batch: Batch,
    unit: AlignedUnit,
    lookup: TopicLookup,
    configuration: int,
    part: PartSpec,
    attention: torch.Tensor,
) -> dict[str, Any]:
    side = text_side([unit], batch.attention_mask, lookup)
    query, key = side.shifted(part.query_shift), side.shifted(part.key_shift)
    topical = pair_codes(query, key, causal=part.causal)[0, configuration] == PairClass.same_topic
    # To a word of several tokens: summed over them; from it: averaged.
    strength: dict[tuple[int, int], float] = {}
    for q, k in topical.nonzero().tolist():
        places = int(query.place[0, q]), int(key.place[0, k])
        strength[places] = strength.get(places, 0.0) + float(attention[q, k]) / float(query.pieces[0, q])
    membership = lookup.membership(configuration)
    known = [place for place in range(len(unit.words)) if side.first[0, place] and side.words[0, place] >= 0]
    with_topic = [place for place in known if membership[int(side.words[0, place])].any()]
    number = {place: i for i, place in enumerate(with_topic)}
    words = [str(unit.words[place]) for place in with_topic]
    strongest = sorted(strength.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_PAIRS]
    return {
        "words": [
            {"word": word, "topics": np.flatnonzero(membership[int(side.words[0, place])]).tolist()}
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
