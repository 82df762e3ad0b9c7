"""Ratios with their errors, permutation tests, pooling over topic seeds, and the verdict with its sentence."""

from topicscope.probing.statistics.attention_ratios import (
    ENDS,
    OF_CONTROLS,
    PLAIN,
    RATIOS,
    TESTED,
    UNMATCHED,
    WITHOUT_SINKS,
)
from topicscope.probing.statistics.mantel import WordPairs
from topicscope.probing.statistics.moments import (
    CORRECTED,
    COUNTS,
    DIFFERENT,
    DISTINCT,
    PAIRED,
    SUMS,
    DocumentSums,
    PartMoments,
    pair_features,
    rows_read,
)
from topicscope.probing.statistics.permutation import PermutationTest, frequency_bands, shuffled_topics
from topicscope.probing.statistics.ratios import (
    Estimate,
    Moments,
    delta_method,
    effective_documents,
    jackknife,
    over_topic_seeds,
    ratio_of_means,
)
from topicscope.probing.statistics.verdict import attention_verdict, headline_of_parts

__all__ = [
    "CORRECTED",
    "COUNTS",
    "DIFFERENT",
    "DISTINCT",
    "ENDS",
    "OF_CONTROLS",
    "PAIRED",
    "PLAIN",
    "RATIOS",
    "SUMS",
    "TESTED",
    "UNMATCHED",
    "WITHOUT_SINKS",
    "DocumentSums",
    "Estimate",
    "Moments",
    "PartMoments",
    "PermutationTest",
    "WordPairs",
    "attention_verdict",
    "delta_method",
    "effective_documents",
    "frequency_bands",
    "headline_of_parts",
    "jackknife",
    "over_topic_seeds",
    "pair_features",
    "ratio_of_means",
    "rows_read",
    "shuffled_topics",
]
