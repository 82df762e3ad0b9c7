"""Ratios with their errors, permutation tests, pooling over topic seeds, and the verdict."""

from topicscope.probing.statistics.attention_ratios import (
    ENDS,
    OF_CONTROLS,
    PLAIN,
    POSITION_CORRECTED,
    RATIOS,
    UNMATCHED,
    WITHOUT_SINKS,
    AttentionRatio,
)
from topicscope.probing.statistics.mantel import PairContrast, WordPairs
from topicscope.probing.statistics.moments import (
    CORRECTED,
    COUNTS,
    DIFFERENT,
    DISTINCT,
    PAIRED,
    SUMS,
    DocumentSums,
    PartMoments,
    distance_features,
    rows_read,
)
from topicscope.probing.statistics.permutation import PermutationTest, frequency_bands, shuffled_topics
from topicscope.probing.statistics.pooling import over_topic_seeds
from topicscope.probing.statistics.ratios import (
    Estimate,
    Moments,
    delta_method,
    effective_documents,
    jackknife,
    ratio_of_means,
)
from topicscope.probing.statistics.verdict import TESTED, attention_verdict, direction, named

__all__ = [
    "CORRECTED",
    "COUNTS",
    "DIFFERENT",
    "DISTINCT",
    "ENDS",
    "OF_CONTROLS",
    "PAIRED",
    "PLAIN",
    "POSITION_CORRECTED",
    "RATIOS",
    "SUMS",
    "TESTED",
    "UNMATCHED",
    "WITHOUT_SINKS",
    "AttentionRatio",
    "DocumentSums",
    "Estimate",
    "Moments",
    "PairContrast",
    "PartMoments",
    "PermutationTest",
    "WordPairs",
    "attention_verdict",
    "delta_method",
    "direction",
    "distance_features",
    "effective_documents",
    "frequency_bands",
    "jackknife",
    "named",
    "over_topic_seeds",
    "ratio_of_means",
    "rows_read",
    "shuffled_topics",
]
