"""The attention ratios that a probe measures. One is added here, and its label in `report.labels`; the rest follows.

Each is the mean attention of same-topic pairs over that of different-topic pairs, and a column of every table of
ratios, with `_se`, `_low` and `_high` beside it.
"""

from dataclasses import dataclass

from topicscope.probing.statistics.moments import DISTINCT, PAIRED, Matching
from topicscope.topics import PairClass

ENDS = ("", "_se", "_low", "_high")
# The ratio whose interval the verdict compares with that of the random controls.
TESTED = "attention_ratio_distinct_distance_matched"


@dataclass(frozen=True)
class AttentionRatio:
    """How one ratio is computed.

    same: the classes of pairs that count as same-topic.
    corrected: with (i+1)/100 for L/100, in causal parts only.
    matched: what both classes are reweighted to one distribution of. Only pooled sums are kept by it, so that such a
        ratio is known neither of single heads nor of single documents.
    """

    name: str
    same: tuple[PairClass, ...]
    corrected: bool = False
    matched: Matching | None = None


PLAIN = AttentionRatio("attention_ratio", PAIRED)
POSITION_CORRECTED = AttentionRatio("attention_ratio_position_corrected", PAIRED, corrected=True)
RATIOS = (
    PLAIN,
    AttentionRatio("attention_ratio_distinct", DISTINCT),
    AttentionRatio("attention_ratio_distance_matched", PAIRED, matched="distance"),
    AttentionRatio(TESTED, DISTINCT, matched="distance"),
    AttentionRatio("attention_ratio_distinct_frequency_matched", DISTINCT, matched="frequency"),
    POSITION_CORRECTED,
)
# Those of single heads and of single documents.
UNMATCHED = tuple(ratio for ratio in RATIOS if ratio.matched is None)
# Those that are shown of random weights as well, and those that are measured again with `--exclude-sinks`.
OF_CONTROLS = (PLAIN.name, POSITION_CORRECTED.name, TESTED)
WITHOUT_SINKS = (PLAIN.name, TESTED)
