"""Similarity of same-topic and different-topic word embeddings, over all pairs, exactly, in O(V d).

No pair is ever visited (see `probing.statistics.mantel`). A pair that shares two topics counts once. `EmbeddingProbe`
takes the similarities of a model's own vectors, its states in context, co-occurrence, and random weights.

The block matrix of similarities is small enough to be kept and shown. With unit vectors e_i, words ordered by topic and
cut into at most 200 bins, the mean cosine of two bins a ≠ b is

    M_ab = (Σ_{i∈a} e_i) · (Σ_{j∈b} e_j) / (|a| |b|),     M_aa = (‖Σ_{i∈a} e_i‖² - |a|) / (|a| (|a| - 1))

exact without a matrix over pairs of words; a word's similarity with itself is left out. Topics that stand in the
vectors show as blocks along the diagonal, as in the paper's theorem on embeddings.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import erfc, isfinite, nan, sqrt
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from topicscope.errors import InputError
from topicscope.probing.attention import Configuration, TopicLookup
from topicscope.probing.config import ProbeConfig
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
    bad = chosen[~np.isfinite(squared)]
    if len(bad):
        raise InputError(
            "embeddings hold NaN or infinite values",
            received=f"{len(bad)} of {len(chosen)} words, the first in rows {bad[:10].tolist()}",
            expected="finite numbers whose squared norm is finite",
            advice="load the model in float32, or check its weights: a broken checkpoint or a half-precision overflow",
        )
    zero_vectors = 0
    if kind == "cosine":
        kept = squared > 0
        zero_vectors = int((~kept).sum())
        chosen, e = chosen[kept], e[kept] / np.sqrt(squared[kept])[:, None]
    topics = membership[chosen]
    bands = None if frequencies is None else frequency_bands(frequencies[chosen].astype(np.float64))
    pairs = WordPairs(topics, bands)
    same_sums, different_sums, z, z_banded = pairs.similarity(e)
    reason = None
    if pairs.num_words < 2:
        reason = f"{pairs.num_words} words have a topic and a vector: there is no pair"
    elif not pairs.same_pairs:
        reason = "no two words share a topic"
    elif not pairs.different_pairs:
        reason = "all words share a topic: there is no different-topic pair"
    same = float(same_sums.sum()) / pairs.same_pairs if pairs.same_pairs else nan
    different = float(different_sums.sum()) / pairs.different_pairs if pairs.different_pairs else nan
    same_without, different_without = pairs.without_each_word(same_sums, different_sums)
    different_se = jackknife(different_without)
    ratio_withheld = reason
    if reason is None and not isfinite(different_se):
        ratio_withheld = "the standard error of the different-topic mean is unknown: one word is in all its pairs"
    elif reason is None and abs(different) <= 2 * different_se:
        near = f"is within two standard errors ({different_se:.2g}) of 0"
        ratio_withheld = f"the different-topic mean {different:.3g} {near}"
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_se = jackknife(same_without / different_without)
    # Fewer words than make two bands are all in one.
    z_banded = nan if frequencies is None else z if bands is None else z_banded
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
        z=z,
        p_value=erfc(abs(z) / sqrt(2)),
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
        occurrences = [chosen.counts.get(word, 0) for word in found.words]
        frequencies = np.array(occurrences, dtype=np.float64) if chosen.counts else None  # None: there is no text
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
    for row in (row for frame in controls for row in frame.to_dict(orient="records")):
        key = row["topic_seed"], threshold_of(row["threshold"]), row["place"], row["kind"]
        drawn.setdefault(key, []).append(float(row["difference"]))
    rows = []
    for row in embeddings.to_dict(orient="records"):
        key = row["topic_seed"], threshold_of(row["threshold"]), row["place"], row["kind"]
        values = np.array(drawn.get(key, [math.nan]))
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


MOST_BINS = 200
SAMPLED_WORDS = 2000
_BOUNDS = np.linspace(-1.0, 1.0, 81)
_BLOCK = 256  # rows of similarities alive at once


def embedding_map(
    words: Sequence[str],
    vectors: Float[np.ndarray, "word d"],
    membership: Bool[np.ndarray, "word topic"],
    *,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The arrays of embedding_map.npz; empty where fewer than two words have a topic and a vector that is not zero.

    A word of several topics stands with the first of them, words of one topic in the order given.

    words [word] (unicode): in the order of the matrix. topics, starts [topic]: the number of each topic that has words,
    and the place of its first. edges [bin + 1]: bounds of the bins. cosine float32 [bin, bin]: M; NaN on the diagonal
    of a bin of one word. bounds [81]: of the cosines' histogram; same, different int64 [80]: pairs of distinct words
    that share a topic, and that do not, over sampled_words words (all, or 2,000 drawn with `seed`).
    left_out: words with a topic whose vector is zero or not finite.
    """
    squared = np.einsum("wd,wd->w", vectors.astype(np.float64), vectors.astype(np.float64))
    having = membership.any(1)
    kept = np.flatnonzero(having & np.isfinite(squared) & (squared > 0))
    if len(kept) < 2:
        return {}
    first = membership[kept].argmax(1)
    order = np.argsort(first, kind="stable")
    kept, first = kept[order], first[order]
    e = vectors[kept].astype(np.float64) / np.sqrt(squared[kept])[:, None]
    topics, starts = np.unique(first, return_index=True)
    edges = np.linspace(0, len(e), min(len(e), MOST_BINS) + 1).round().astype(np.int64)
    # M, from sums alone.
    size = np.diff(edges).astype(np.float64)
    sums = np.add.reduceat(e, edges[:-1], axis=0)
    products, pairs = sums @ sums.T, np.outer(size, size)
    np.fill_diagonal(products, products.diagonal() - size)
    np.fill_diagonal(pairs, size * (size - 1))
    means = np.divide(products, pairs, out=np.full_like(products, nan), where=pairs > 0)
    draw = np.sort(np.random.default_rng(seed).permutation(len(e))[:SAMPLED_WORDS])
    # Numbers of unordered pairs by cosine, of those that share a topic and of the others.
    sampled, shared_by = e[draw], membership[kept[draw]].astype(np.float32)
    same, different = np.zeros((2, len(_BOUNDS) - 1), dtype=np.int64)
    for start in range(0, len(draw), _BLOCK):
        rows = slice(start, start + _BLOCK)
        # Rounding may take a cosine of two equal words past 1.
        cosine = np.clip(sampled[rows] @ sampled.T, -1.0, 1.0)
        later = np.arange(len(draw))[None, :] > np.arange(len(draw))[rows, None]
        shared = shared_by[rows] @ shared_by.T > 0
        same += np.histogram(cosine[later & shared], _BOUNDS)[0]
        different += np.histogram(cosine[later & ~shared], _BOUNDS)[0]
    return {
        "words": np.array([words[i] for i in kept.tolist()]),
        "topics": topics,
        "starts": starts,
        "edges": edges,
        "cosine": means.astype(np.float32),
        "bounds": _BOUNDS,
        "same": same,
        "different": different,
        "sampled_words": np.array(len(draw)),
        "left_out": np.array(int(having.sum()) - len(kept)),
    }


class EmbeddingProbe:
    """Collects the similarities of the model and of each of its random initialisations: `measured` and `controls`.

    Raises:
        InputError: states in context of a model of which only attention is known.
    """

    def __init__(
        self, view: ModelView, tokens: TokenCache, lookup: TopicLookup, options: ProbeConfig, progress: Progress
    ) -> None:
        if options.contextual:
            require_states(view)
        self._tokens, self._options, self._progress = tokens, options, progress
        self._configurations = lookup.configurations
        counts = dict(zip(tokens.words, tokens.word_counts.tolist(), strict=True))
        self._chosen = ComparedWords.of(view, lookup.configurations, counts, seed=options.seed, progress=progress)
        self.measured = pd.DataFrame()
        self.controls: list[pd.DataFrame] = []

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
        self.measured = embedding_rows(view, self._configurations, self._chosen, found)
        return interrupted

    def add_control(self, view: ModelView, task: str) -> None:
        """Take the vectors of one random initialisation."""
        states = self._states(view, f"{task}, states in context")
        self.controls.append(embedding_rows(view, self._configurations, self._chosen, states))

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
