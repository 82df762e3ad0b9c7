"""Similarity of same-topic and different-topic word embeddings, over all pairs, exactly, in O(V d).

No pair is ever visited (see `probing.statistics.mantel`). A pair that shares two topics counts once.

Similarity of word vectors, wherever they are from, for every configuration of the probe.

The embeddings of a probe: the model's own vectors, its states in context, co-occurrence, and random weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import erfc, isfinite, nan, sqrt
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from topicscope.errors import InputError
from topicscope.probing.attention import Configuration, TopicLookup
from topicscope.probing.config import ProbeOptions
from topicscope.probing.embeddings.block_map import embedding_map
from topicscope.probing.embeddings.vectors import (
    COOCCURRENCE,
    ComparedWords,
    WordVectors,
    contextual_vectors,
    cooccurrence_vectors,
    require_states,
    static_vectors,
)
from topicscope.probing.hf import ModelView
from topicscope.probing.statistics import WordPairs, frequency_bands, jackknife
from topicscope.probing.tokens import TokenCache
from topicscope.progress import Progress
from topicscope.records import threshold_cell, threshold_of


@dataclass(frozen=True)
class EmbeddingSimilarity:
    """S and D, the mean similarity of same-topic and different-topic pairs of distinct words, with their errors.

    kind: "cosine" or "dot" (in squared units of the embedding).
    same (S), different (D), difference (S - D), ratio (S/D) and `*_se`: leave-one-word-out jackknife errors. They speak
        of other words of these topics, not of other topics. NaN where a class has no pair (`reason` says which).
    ratio_withheld: why `ratio` and `ratio_se` are NaN; a ratio whose denominator is within 2 standard errors of 0 (or
        whose error is unknown) means nothing.
    pairs_same, pairs_different: unordered pairs. num_words: words that took part, num_topics: topics that they have.
    zero_vectors: words with a topic that were left out because the cosine of a zero vector is undefined.
    z, p_value: S - D in standard deviations of its permutation distribution (the topics shuffled among the words), and
        its two-sided normal probability. An order of magnitude, not an exact p: the distribution is right-skewed.
    z_banded, p_value_banded: the same with the topics shuffled only among words of one frequency band (Mantel's moments
        by strata, `WordPairs`), of which there are `bands`: one where there are fewer than 40 words, so that the
        tests are one; NaN and 0 where frequencies are unknown.
    """

    kind: Literal["cosine", "dot"]
    same: float
    different: float
    difference: float
    ratio: float
    same_se: float
    different_se: float
    difference_se: float
    ratio_se: float
    ratio_withheld: str | None
    pairs_same: int
    pairs_different: int
    num_words: int
    num_topics: int
    zero_vectors: int
    z: float
    p_value: float
    z_banded: float
    p_value_banded: float
    bands: int
    reason: str | None


def embedding_similarity(
    vectors: Float[np.ndarray, "word d"],
    membership: Bool[np.ndarray, "row topic"],
    *,
    kind: Literal["cosine", "dot"],
    frequencies: Float[np.ndarray, "row"] | None = None,
) -> EmbeddingSimilarity:
    """Mean cosine or dot product of same-topic and of different-topic pairs of distinct words (Knowl 8's Table).

        S = Σ_{i<j, same} e_i·e_j / P_s,   D = Σ_{i<j, different} e_i·e_j / P_d,   cosine: e_i of norm 1

    vectors [word, d]: one row for each distinct word, any float type (computed in float64).
    membership [word, topic]: two words are same-topic when their sets of topics intersect. Words without a topic are
        left out of every pair.
    frequencies [word]: how often each word occurs, for the permutation test within bands (see `frequency_bands`).

    Raises:
        InputError: rows do not match, or a word that has a topic has a NaN or infinite vector.
    """
    if len(vectors) != len(membership):
        raise InputError(
            "vectors and membership speak of different words",
            received=f"{len(vectors)} vectors, {len(membership)} rows of membership",
            expected="one row each for every word",
        )
    chosen = np.flatnonzero(membership.any(1))
    e = vectors[chosen].astype(np.float64, copy=False)
    squared = np.einsum("wd,wd->w", e, e)
    _require_finite(squared, chosen)
    zero_vectors = 0
    if kind == "cosine":
        kept = squared > 0
        zero_vectors = int((~kept).sum())
        chosen, e = chosen[kept], e[kept] / np.sqrt(squared[kept])[:, None]
    topics = membership[chosen]
    bands = None if frequencies is None else frequency_bands(frequencies[chosen].astype(np.float64))
    pairs = WordPairs(topics, bands)
    similarity = pairs.similarity(e)
    reason = _why_undefined(pairs)
    same = float(similarity.same.sum()) / pairs.same_pairs if pairs.same_pairs else nan
    different = float(similarity.different.sum()) / pairs.different_pairs if pairs.different_pairs else nan
    same_without, different_without = pairs.without_each_word(similarity.same, similarity.different)
    different_se = jackknife(different_without)
    ratio_withheld = reason or _why_no_ratio(different, different_se)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_se = jackknife(same_without / different_without)
    # Fewer words than make two bands are all in one.
    z_banded = nan if frequencies is None else similarity.z if bands is None else similarity.z_banded
    return EmbeddingSimilarity(
        kind=kind,
        same=same,
        different=different,
        difference=same - different,
        ratio=nan if ratio_withheld else same / different,
        same_se=jackknife(same_without),
        different_se=different_se,
        difference_se=jackknife(same_without - different_without),
        ratio_se=nan if ratio_withheld else ratio_se,
        ratio_withheld=ratio_withheld,
        pairs_same=pairs.same_pairs // 2,
        pairs_different=pairs.different_pairs // 2,
        num_words=len(e),
        num_topics=int(topics.any(0).sum()),
        zero_vectors=zero_vectors,
        z=similarity.z,
        p_value=erfc(abs(similarity.z) / sqrt(2)),
        z_banded=z_banded,
        p_value_banded=erfc(abs(z_banded) / sqrt(2)),
        bands=0 if frequencies is None else 1 if bands is None else int(bands.max()) + 1,
        reason=reason,
    )


def mean_similarity(vectors: Float[np.ndarray, "word d"], *, kind: Literal["cosine", "dot"]) -> float:
    """Mean similarity of all pairs of distinct rows, exactly: (‖Σ e_i‖² - Σ ‖e_i‖²) / (n (n-1)).

    Over words taken at random it is the baseline of anisotropy (Ethayarajh 2019): the similarity that any two words
    have. Rows that are zero or not finite are left out, as the cosine of one is undefined; NaN with fewer than 2 rows.
    """
    e = vectors.astype(np.float64, copy=False)
    squared = np.einsum("wd,wd->w", e, e)
    kept = np.isfinite(squared) & (squared > 0)
    e, squared = e[kept], squared[kept]
    if len(e) < 2:
        return nan
    if kind == "cosine":
        e, squared = e / np.sqrt(squared)[:, None], np.ones(len(e))
    total = e.sum(0)
    return float(total @ total - squared.sum()) / (len(e) * (len(e) - 1))


def _require_finite(squared: Float[np.ndarray, "word"], word: Int[np.ndarray, "word"]) -> None:
    bad = word[~np.isfinite(squared)]
    if len(bad):
        raise InputError(
            "embeddings hold NaN or infinite values",
            received=f"{len(bad)} of {len(word)} words, the first in rows {bad[:10].tolist()}",
            expected="finite numbers whose squared norm is finite",
            advice="load the model in float32, or check its weights: a broken checkpoint or a half-precision overflow",
        )


def _why_undefined(pairs: WordPairs) -> str | None:
    if pairs.num_words < 2:
        return f"{pairs.num_words} words have a topic and a vector: there is no pair"
    if not pairs.same_pairs:
        return "no two words share a topic"
    if not pairs.different_pairs:
        return "all words share a topic: there is no different-topic pair"
    return None


def _why_no_ratio(different: float, different_se: float) -> str | None:
    if not isfinite(different_se):
        return "the standard error of the different-topic mean is unknown: one word is in all its pairs"
    if abs(different) <= 2 * different_se:
        return f"the different-topic mean {different:.3g} is within two standard errors ({different_se:.2g}) of 0"
    return None


KINDS: tuple[Literal["cosine", "dot"], ...] = ("cosine", "dot")
HIGHER, LOWER = "same-topic similarity higher", "same-topic similarity lower"
NONE, NOT_TESTED, BASELINE = "no topic structure found", "not tested", "baseline"


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
    rows: list[dict[str, Any]] = []
    for found in (*static_vectors(view, chosen), *more):
        random = np.array([word in chosen.random for word in found.words], dtype=np.bool_)
        anisotropy = {kind: mean_similarity(found.vectors[random], kind=kind) for kind in KINDS}
        frequencies = chosen.frequencies(found.words)
        for configuration in configurations:
            membership = configuration.assignment.membership(found.words)
            used = [found.words[i] for i in np.flatnonzero(membership.any(1)).tolist()]
            spaced = sum(word in chosen.tokens and chosen.tokens[word].form == "spaced" for word in used)
            about = {
                "topic_seed": configuration.topic_seed,
                "threshold": threshold_cell(configuration.threshold),
                "place": found.place,
                "words_without_token": len(configuration.assignment.words) - len(used),
                "words_spaced_form": spaced,
            }
            for kind in KINDS:
                similarity = embedding_similarity(found.vectors, membership, kind=kind, frequencies=frequencies)
                rows.append(about | {"anisotropy": anisotropy[kind], **asdict(similarity)})
    return pd.DataFrame(rows)


def with_controls(embeddings: pd.DataFrame, controls: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The table with what random weights give at the same place: control_difference (mean), _low, _high, and `verdict`.

    control_difference_low, _high: the smallest and the largest S - D of the random initialisations, one frame each.
    verdict: see `embedding_verdict`; "baseline" where the vectors are no model's.
    """
    drawn: dict[Any, list[float]] = {}
    for frame in controls:
        for row in frame.to_dict(orient="records"):
            drawn.setdefault(_key(row), []).append(float(row["difference"]))
    rows = []
    for row in embeddings.to_dict(orient="records"):
        values = np.array(drawn.get(_key(row), [math.nan]))
        low, high = float(values.min()), float(values.max())
        row |= {
            "control_difference": float(values.mean()),
            "control_difference_low": low,
            "control_difference_high": high,
            "verdict": embedding_verdict(row["difference"], row["p_value_banded"], low, high),
        }
        rows.append(row | {"verdict": BASELINE} if row["place"] == COOCCURRENCE else row)
    return pd.DataFrame(rows)


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
    """What tells rows apart."""
    return row["topic_seed"], threshold_of(row["threshold"]), row["place"], row["kind"]


class EmbeddingProbe:
    """Collects the similarities of the model and of each of its random initialisations.

    Raises:
        InputError: states in context of a model of which only attention is known.
    """

    def __init__(
        self, view: ModelView, tokens: TokenCache, lookup: TopicLookup, options: ProbeOptions, progress: Progress
    ) -> None:
        if options.contextual:
            require_states(view)
        self._tokens, self._options, self._progress = tokens, options, progress
        self._configurations = lookup.configurations
        counts = dict(zip(tokens.words, tokens.word_counts.tolist(), strict=True))
        self._chosen = ComparedWords.of(view, lookup.configurations, counts, seed=options.seed, progress=progress)
        self._measured = pd.DataFrame()
        self._controls: list[pd.DataFrame] = []

    def measure(self, view: ModelView, *, interrupted: bool) -> bool:
        """Take the model's vectors and those of co-occurrence; returns whether Ctrl-C was pressed, now or before.

        After Ctrl-C what needs the text is left out.
        """
        found: list[WordVectors] = []
        if not interrupted:
            try:
                baseline = cooccurrence_vectors(self._tokens, self._chosen.counts)
                found = [*self._states(view, "states in context"), *([] if baseline is None else [baseline])]
            except KeyboardInterrupt:
                interrupted = True
        self._measured = embedding_rows(view, self._configurations, self._chosen, found)
        return interrupted

    def add_control(self, view: ModelView, task: str) -> None:
        """Take the vectors of one random initialisation."""
        states = self._states(view, f"{task}, states in context")
        self._controls.append(embedding_rows(view, self._configurations, self._chosen, states))

    def table(self) -> pd.DataFrame:
        """See `embedding_rows` and `with_controls`."""
        return with_controls(self._measured, self._controls)

    def block_map(self, view: ModelView, threshold: float | None) -> dict[str, np.ndarray]:
        """`embedding_map` of the input embedding matrix, for the first topic model at a threshold.

        Empty where no two words with a topic are one token each.
        """
        assignment = next(c for c in self._configurations if c.threshold == threshold).assignment
        vectors = static_vectors(view, self._chosen)
        if not vectors:
            return {}
        raw = vectors[0]
        return embedding_map(raw.words, raw.vectors, assignment.membership(raw.words), seed=self._options.seed)

    def _states(self, view: ModelView, task: str) -> list[WordVectors]:
        if not self._options.contextual:
            return []
        return contextual_vectors(
            view,
            self._tokens,
            self._chosen.words,
            layers=self._options.layers,
            batch_tokens=self._options.batch_tokens,
            task=task,
            progress=self._progress,
        )
