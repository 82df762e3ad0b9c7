"""Sums of attention over pairs of tokens by word and topic, and what single heads do."""

from topicscope.probing.attention.batch_sums import BINNED, DISTANCE_EDGES, NUM_BAND_PAIRS, NUM_BINS, distance_bin
from topicscope.probing.attention.head_profile import profiled, top_heads
from topicscope.probing.attention.pair_sums import NUM_CLASSES, PartSums, WordPairs, sum_attention
from topicscope.probing.attention.pair_table import PairReader, PairTable
from topicscope.probing.attention.positions import Configuration, TopicLookup

__all__ = [
    "BINNED",
    "DISTANCE_EDGES",
    "NUM_BAND_PAIRS",
    "NUM_BINS",
    "NUM_CLASSES",
    "Configuration",
    "PairReader",
    "PairTable",
    "PartSums",
    "TopicLookup",
    "WordPairs",
    "distance_bin",
    "profiled",
    "sum_attention",
    "top_heads",
]
