"""Moments over documents: all that the table, the head map and their standard errors need, small and additive.

Documents are the clusters. Two families per part and configuration, each a vector z_d per document of which only
Σ_d z_d and Σ_d z_d z_dᵀ are kept, so that chunks and shards merge by adding:

- pooled (mean over layers and heads): class sums, class counts, corrected class sums, and sums and counts by distance
  and by frequency;
- heads: class sums, class counts and corrected class sums of every layer and head.

Sums over whole documents that shards and chunks add up to: moments of every part, and pairs of words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from topicscope.probing.attention import BINNED, NUM_BAND_PAIRS, NUM_BINS, NUM_CLASSES, PartSums, WordPairs
from topicscope.probing.statistics.ratios import Estimate, Moments, matched_ratio
from topicscope.records import ArrayFields
from topicscope.topics import PairClass

SUMS = slice(0, NUM_CLASSES)
COUNTS = slice(NUM_CLASSES, 2 * NUM_CLASSES)
CORRECTED = slice(2 * NUM_CLASSES, 3 * NUM_CLASSES)
_BINS_START = 3 * NUM_CLASSES
_BANDS_START = _BINS_START + 2 * len(BINNED) * NUM_BINS
PAIRED = (PairClass.same_word, PairClass.same_topic)  # the paper's "same topic", Knowl 8
DISTINCT = (PairClass.same_topic,)
DIFFERENT = (PairClass.different_topic,)
Matching = Literal["distance", "frequency"]


@dataclass(frozen=True, eq=False)
class PartMoments(ArrayFields):
    """Moments of one part of the model for every configuration; `a + b` merges two sets of documents."""

    documents: int
    pooled_total: np.ndarray  # [configuration, feature], features as laid out above
    pooled_outer: np.ndarray  # [configuration, feature, feature]
    heads_total: np.ndarray  # [configuration, layer, head, 3 x class]
    heads_outer: np.ndarray  # [configuration, layer, head, 3 x class, 3 x class]
    rows: np.ndarray  # [3]: queries read, those left out for a NaN, attention that sinks took

    @classmethod
    def of(cls, sums: PartSums) -> "PartMoments":
        """From the sums of whole documents."""
        corrected = np.zeros_like(sums.heads) if sums.corrected is None else sums.corrected
        counts = sums.counts.astype(np.float64)
        pooled = np.concatenate(
            [
                sums.heads.mean((2, 3)),
                counts,
                corrected.mean((2, 3)),
                sums.binned.reshape(*counts.shape[:2], -1),
                sums.binned_counts.reshape(*counts.shape[:2], -1),
                sums.banded.reshape(*counts.shape[:2], -1),
                sums.banded_counts.reshape(*counts.shape[:2], -1),
            ],
            axis=-1,
        )
        wide = np.broadcast_to(counts[:, :, None, None], sums.heads.shape)
        heads = np.concatenate([sums.heads, wide, corrected], axis=-1)
        every = [pooled[:, c] for c in range(pooled.shape[1])]
        return cls(
            documents=len(pooled),
            pooled_total=np.stack([rows.sum(0) for rows in every]),
            pooled_outer=np.stack([rows.T @ rows for rows in every]),
            heads_total=heads.sum(0),
            # In one memory order, fresh or read back: numpy adds up in the order of memory, to the last bit.
            heads_outer=np.ascontiguousarray(np.einsum("dclhi,dclhj->clhij", heads, heads, optimize=True)),
            rows=sums.rows.sum(0),
        )

    def __add__(self, other: "PartMoments") -> "PartMoments":
        return PartMoments(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def ratio(
        self,
        configuration: int,
        same: Sequence[PairClass] = PAIRED,
        *,
        corrected: bool = False,
        matched: Matching | None = None,
    ) -> Estimate:
        """Mean attention of the `same` classes over that of different topics, with its clustered standard error.

        matched: both are reweighted to one distribution of the distance |i-j|, or to one joint distribution of the
        frequencies of both words.
        """
        pooled = Moments(self.documents, self.pooled_total[configuration], self.pooled_outer[configuration])
        index = [i for of in (same, DIFFERENT) for i in pair_features(of, corrected=corrected, matched=matched)]
        return matched_ratio(pooled, *index)

    def head_ratios(
        self, configuration: int, same: Sequence[PairClass] = PAIRED, *, corrected: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ratio and clustered standard error of every layer and head, each [layer, head]; NaN without pairs."""
        total, outer = self.heads_total[configuration], self.heads_outer[configuration]
        index = [i[0] for of in (same, DIFFERENT) for i in pair_features(of, corrected=corrected)]
        gradient = np.zeros_like(total)
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = [total[..., i].sum(-1) for i in index]
            ratio = sums[0] / sums[1] * sums[3] / sums[2]
            # d log R = dx_s/x_s - dn_s/n_s - dx_d/x_d + dn_d/n_d
            for sign, i, value in zip((1, -1, -1, 1), index, sums, strict=True):
                gradient[..., i] += (sign * ratio / value)[..., None]
            variance = np.einsum("lhi,lhij,lhj->lh", gradient, outer, gradient)
            # D* of every head, see `statistics.effective_documents`.
            squares = [outer[..., i, :][..., i].sum((-1, -2)) for i in index]
            effective = np.min([value**2 / of for value, of in zip(sums, squares, strict=True)], axis=0)
            error = np.sqrt(np.maximum(variance, 0) * effective / np.where(effective - 1 < 1e-9, np.nan, effective - 1))
        return ratio, error


def rows_read(moments: Mapping[str, PartMoments]) -> tuple[dict[str, dict[str, int | float]], list[str]]:
    """Per part how many queries were read, how many left out since a row held a NaN, and the share that sinks took.

    With warnings where something was left out or is missing.
    """
    counts: dict[str, dict[str, int | float]] = {}
    warnings = []
    for name, part in moments.items():
        read, left_out, missing = part.rows.tolist()
        share = missing / (read - left_out) if read > left_out else 0.0
        counts[name] = {"read": int(read), "not_a_number": int(left_out), "missing_mass": share}
        if left_out:
            warnings.append(
                f"{name}: {int(left_out)} of {int(read)} rows of attention were not a number in some layer and are "
                "left out; half precision overflows there: use --dtype float32"
            )
        if share:
            warnings.append(f"{name}: learned sinks take {share:.1%} of the attention; the sums are of what words get")
    return counts, warnings


def pair_features(
    classes: Sequence[PairClass], *, corrected: bool = False, matched: Matching | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices [bin, class] of the features that hold the sums, and the counts, of some classes; one bin unless matched.

    Those of one bin are in the same place in the pooled features and in those of a head.
    """
    if matched is None:
        pairs = np.array([classes])
        return (CORRECTED if corrected else SUMS).start + pairs, COUNTS.start + pairs
    start, size = {"distance": (_BINS_START, NUM_BINS), "frequency": (_BANDS_START, NUM_BAND_PAIRS)}[matched]
    sums = start + np.array([BINNED.index(k) for k in classes]) * size + np.arange(size)[:, None]
    return sums, sums + len(BINNED) * size


@dataclass(eq=False)
class DocumentSums(ArrayFields):
    """Moments and word pairs per part of the model over `documents` documents.

    They are additive, but not to the last bit: equal bits need equal documents added in one order.
    """

    documents: int = 0
    moments: dict[str, PartMoments] = field(default_factory=dict)
    word_pairs: dict[str, WordPairs] = field(default_factory=dict)

    def add(self, sums: Sequence[PartSums], documents: int) -> None:
        """Count so many whole documents in."""
        if not documents:
            return
        self.merge(DocumentSums(documents, {part.part.name: PartMoments.of(part) for part in sums}))

    def add_word_pairs(self, sums: Iterable[PartSums]) -> None:
        """Count their word pairs in; these do not tell documents apart, so that any part of one may be added."""
        for part in sums:
            self.word_pairs.setdefault(part.part.name, WordPairs()).merge(part.word_pairs)

    def merge(self, other: "DocumentSums") -> None:
        """Count in all that another has."""
        for name, moments in other.moments.items():
            self.moments[name] = self.moments[name] + moments if name in self.moments else moments
        for name, pairs in other.word_pairs.items():
            self.word_pairs.setdefault(name, WordPairs()).merge(pairs)
        self.documents += other.documents
