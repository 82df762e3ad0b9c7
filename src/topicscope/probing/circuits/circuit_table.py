"""OV and QK circuits by topic, for every configuration of topics, as a table."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import erfc, sqrt
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from topicscope.lab import TopicTransformer, layer_name
from topicscope.probing.attention import Configuration
from topicscope.probing.circuits.factors import CircuitFactors, circuit_factors
from topicscope.probing.hf import ModelView
from topicscope.probing.statistics import PairContrast, WordPairs, frequency_bands
from topicscope.probing.tokens import word_token_ids

ALL_HEADS = -1
_LEADING = ("part", "threshold", "topic_seed", "place", "circuit", "layer", "head")


def circuit_rows(
    view: ModelView,
    configurations: Sequence[Configuration],
    *,
    frequencies: Mapping[str, float] | None = None,
    output_embeddings: Float[torch.Tensor, "token d"] | None = None,
) -> pd.DataFrame:
    """One row per part, configuration, place ("raw", "layer"), circuit ("OV", "QK"), layer and head.

    head -1 (`ALL_HEADS`) stands for all heads of the layer that are read: the sum of their OV, the mean of their QK.
    same, different, difference, difference_se, sd, diagonal, z, z_banded, z_turned: see `PairContrast`; p_value,
        p_value_banded, p_value_turned: two-sided normal probabilities of the z. Far out an order of magnitude, not a p.
    words: distinct words that have a topic and are one token; words_without_token: words of the topics that are not.
    frequencies: how often each word occurs, in any unit (also a rank, negated); words are cut into at most 10 bands of
        at least 20 words. None, or fewer than 40 words: no bands, and z_banded is NaN.
    output_embeddings: see `circuit_factors`.

    Raises:
        UnsupportedModelError: a type of model whose matrices are not known.
    """
    words = list(dict.fromkeys(word for c in configurations for word in c.assignment.words))
    found = word_token_ids(view.tokenizer, words).found
    known = [word for word in words if word in found]
    chosen = []
    for configuration in configurations:
        membership = configuration.assignment.membership(known)
        used = np.flatnonzero(membership.any(1))
        counts = None if frequencies is None else np.array([frequencies.get(known[i], 0.0) for i in used], dtype=float)
        lost = len(configuration.assignment.words) - len(used)
        chosen.append(_Chosen(configuration.threshold, configuration.topic_seed, membership, counts, lost))
    if not known:
        return pd.DataFrame()
    ids = torch.tensor([found[word].token_id for word in known])
    key_value = {part.name: [part.key_value_head(head) for head in part.heads] for part in view.parts}
    heads = {part.name: part.heads for part in view.parts}
    return _rows(circuit_factors(view, ids, output_embeddings), chosen, heads, key_value)


def laboratory_rows(model: TopicTransformer, membership: Bool[np.ndarray, "word topic"]) -> pd.DataFrame:
    """The same for the paper's transformer, whose words are the tokens 1 … V: OV = W_pred W_O W_V W_E, and QK.

    With one-hot embeddings and one head, OV is W_V[written, attended] itself, whose blocks Theorem 2 gives. Positions,
    layer norms and the feed-forward sub-layer are not in it.
    """
    heads = tuple(range(model.config.heads))
    chosen = [_Chosen(None, 0, membership, None, 0)]
    return _rows(_laboratory_factors(model, len(membership)), chosen, {"layer": heads}, {"layer": list(heads)})


class _Chosen:
    """The words of one configuration that are measured."""

    def __init__(
        self,
        threshold: float | None,
        topic_seed: int,
        membership: Bool[np.ndarray, "word topic"],
        counts: Float[np.ndarray, " used"] | None,
        lost: int,
    ) -> None:
        self.used = np.flatnonzero(membership.any(1))
        bands = None if counts is None else frequency_bands(counts)
        self.pairs = WordPairs(membership[self.used], bands)
        self.constant = {
            "threshold": math.nan if threshold is None else threshold,
            "topic_seed": topic_seed,
            "words": len(self.used),
            "topics": int(membership.any(0).sum()),
            "bands": 0 if bands is None else len(np.unique(bands)),
            "words_without_token": lost,
            "pairs_same": self.pairs.same_pairs,
            "pairs_different": self.pairs.different_pairs,
        }


def _rows(
    factors: Iterable[CircuitFactors],
    chosen: Sequence[_Chosen],
    heads: Mapping[str, Sequence[int]],
    key_value: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for found in factors:
        for words in chosen:
            if len(words.used) < 2:
                continue
            left, right = found.left[:, words.used], found.right[:, words.used]
            each = words.pairs.contrast(left, right)
            scale = len(left) if found.circuit == "QK" else 1
            every = words.pairs.contrast(_side_by_side(left) / scale, _side_by_side(right))
            where = {"part": found.part, "place": found.place, "circuit": found.circuit, "layer": found.layer}
            numbers = zip((*heads[found.part], ALL_HEADS), (*key_value[found.part], ALL_HEADS), strict=True)
            for (head, shared), values in zip(numbers, (*_values(each), *_values(every)), strict=True):
                rows.append(words.constant | where | {"head": head, "kv_head": shared} | values)
    frame = pd.DataFrame(rows)
    return frame[[*_LEADING, *(c for c in frame if c not in _LEADING)]] if rows else frame


def _side_by_side(x: Float[np.ndarray, "head word k"]) -> Float[np.ndarray, "one word all"]:
    """Factors of the sum over heads."""
    return np.asarray(x.swapaxes(0, 1).reshape(1, x.shape[1], -1))


def _values(contrast: PairContrast) -> Iterator[dict[str, float]]:
    """The fields of each head with the p-values of its z."""
    columns = {field.name: getattr(contrast, field.name).tolist() for field in fields(contrast)}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        yield row | {
            name.replace("z", "p_value"): erfc(abs(row[name]) / sqrt(2)) for name in ("z", "z_banded", "z_turned")
        }


def _laboratory_factors(model: TopicTransformer, num_words: int) -> Iterator[CircuitFactors]:
    weights, config = {name: value.double().cpu() for name, value in model.weights().items()}, model.config
    x = weights["W_E"].T[1 : num_words + 1]  # [word d]
    u = weights["W_pred"][1 : num_words + 1] if config.head == "trained" else x
    for layer in range(config.layers):
        W_Q, W_K, W_V = (
            weights[layer_name(name, layer)].reshape(config.heads, -1, x.shape[1]) for name in ("W_Q", "W_K", "W_V")
        )
        queries, keys, values = (torch.einsum("wd,hkd->hwk", x, W) for W in (W_Q, W_K, W_V))
        if config.output_projection:
            W_O = weights[layer_name("W_O", layer)].reshape(x.shape[1], config.heads, -1)  # [d head value]
            written = torch.einsum("wd,dhv->hwv", u, W_O)
        else:
            written = u.expand(config.heads, -1, -1)
        for circuit, left, right in (("QK", queries / queries.shape[-1] ** 0.5, keys), ("OV", written, values)):
            yield CircuitFactors("layer", layer, "raw", circuit, left.numpy(), right.numpy())
