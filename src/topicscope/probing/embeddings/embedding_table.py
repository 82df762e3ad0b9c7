"""Similarity of word vectors, wherever they are from, for every configuration of the probe."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import pandas as pd

from topicscope.probing.attention import Configuration
from topicscope.probing.embeddings.similarity import embedding_similarity, mean_similarity
from topicscope.probing.embeddings.vectors import COOCCURRENCE, ComparedWords, WordVectors, static_vectors
from topicscope.probing.hf import ModelView

KINDS: tuple[Literal["cosine", "dot"], ...] = ("cosine", "dot")
HIGHER, LOWER = "same-topic similarity higher", "same-topic similarity lower"
NONE, NOT_TESTED, BASELINE = "no topic structure found", "not tested", "baseline"
_KEY = ["topic_seed", "threshold", "place", "kind"]


def embedding_rows(
    view: ModelView,
    configurations: Sequence[Configuration],
    chosen: ComparedWords | None = None,
    more: Sequence[WordVectors] = (),
) -> pd.DataFrame:
    """One row per configuration, place and kind ("cosine", "dot"): the fields of `EmbeddingSimilarity`, and

    place: "raw", "layer", "layer_first" (see `static_vectors`), then those of `more`: contextual states, co-occurrence.
    anisotropy: mean similarity of two random words of the text at this place, whatever their topics; NaN without text.
    words_without_token: words of the topics that have no vector here; words_spaced_form: whose token starts with a
        space.

    chosen: the words that are compared; None: those with a topic, without frequencies.
    """
    chosen = ComparedWords.of(view, configurations) if chosen is None else chosen
    rows = [row for found in (*static_vectors(view, chosen), *more) for row in _rows(found, configurations, chosen)]
    return pd.DataFrame(rows)


def _rows(found: WordVectors, configurations: Sequence[Configuration], chosen: ComparedWords) -> list[dict[str, Any]]:
    random = np.array([word in chosen.random for word in found.words], dtype=np.bool_)
    anisotropy = {kind: mean_similarity(found.vectors[random], kind=kind) for kind in KINDS}
    frequencies = chosen.frequencies(found.words)
    rows: list[dict[str, Any]] = []
    for configuration in configurations:
        membership = configuration.assignment.membership(found.words)
        used = [found.words[i] for i in np.flatnonzero(membership.any(1)).tolist()]
        spaced = sum(word in chosen.tokens and chosen.tokens[word].form == "spaced" for word in used)
        for kind in KINDS:
            similarity = embedding_similarity(found.vectors, membership, kind=kind, frequencies=frequencies)
            rows.append(
                {
                    "topic_seed": configuration.topic_seed,
                    "threshold": math.nan if configuration.threshold is None else configuration.threshold,
                    "place": found.place,
                    "words_without_token": len(configuration.assignment.words) - len(used),
                    "words_spaced_form": spaced,
                    "anisotropy": anisotropy[kind],
                    **asdict(similarity),
                }
            )
    return rows


def with_controls(embeddings: pd.DataFrame, controls: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The table with what random weights give at the same place: control_difference (mean), _low, _high, and `verdict`.

    control_difference_low, _high: the smallest and the largest S - D of the random initialisations, one frame each.
    verdict: see `embedding_verdict`; "baseline" where the vectors are no model's.
    """
    columns = ("control_difference", "control_difference_low", "control_difference_high")
    values: dict[Any, list[float]] = {}
    for frame in controls:
        for row in frame.to_dict(orient="records"):
            values.setdefault(_key(row), []).append(float(row["difference"]))
    found = embeddings.copy()
    for column in columns:
        found[column] = math.nan
    verdicts = []
    for i, row in enumerate(embeddings.to_dict(orient="records")):
        drawn = np.array(values.get(_key(row), []), dtype=np.float64)
        low, high = (float(drawn.min()), float(drawn.max())) if len(drawn) else (math.nan, math.nan)
        if len(drawn):
            found.loc[found.index[i], list(columns)] = [float(drawn.mean()), low, high]
        baseline = row["place"] == COOCCURRENCE
        found_here = embedding_verdict(row["difference"], row["p_value_banded"], low, high)
        verdicts.append(BASELINE if baseline else found_here)
    found["verdict"] = verdicts
    return found


def embedding_verdict(difference: float, p_value_banded: float, control_low: float, control_high: float) -> str:
    """Two-sided: what S - D says when both the permutation test and the random weights are asked.

    Higher (lower): p < .05 with the topics shuffled within frequency bands, and S - D above the largest (below the
    smallest) of the controls'. Not tested: without the words' frequencies or without controls.
    """
    if math.isnan(p_value_banded) or math.isnan(control_low) or math.isnan(control_high):
        return NOT_TESTED
    if p_value_banded < 0.05 and difference > max(control_high, 0):
        return HIGHER
    return LOWER if p_value_banded < 0.05 and difference < min(control_low, 0) else NONE


def _key(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    """What tells rows apart; NaN, the threshold of a word list, equals nothing."""
    return tuple(-1.0 if isinstance(row[name], float) and math.isnan(row[name]) else row[name] for name in _KEY)
