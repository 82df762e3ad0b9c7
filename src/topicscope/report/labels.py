"""What every quantity is called, its color and its marker: tables, pages, figures and the terminal take them from here.

A new attention ratio gets one line in `RATIOS`; every table and figure that shows ratios goes through that mapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Okabe-Ito colors: told apart with every common color blindness, readable on white and on dark.
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
GREY = "#888888"
MEASURED, THEORY, PAPER = BLUE, ORANGE, "#000000"
RANDOM, RANDOM_MEAN = "#777777", "#222222"  # random weights: each of them and their interval, their mean


@dataclass(frozen=True)
class Quantity:
    """label: of columns, legends and axes; about: one sentence for readers who meet it for the first time."""

    label: str
    about: str = ""
    color: str = BLUE
    marker: str = "o"


RATIOS: Mapping[str, Quantity] = {
    "attention_ratio": Quantity(
        "all pairs",
        "Mean attention of same-topic pairs divided by that of different-topic pairs, as in the paper. Each attention "
        "weight is multiplied by L/100, where L is the number of tokens in the sentence, because weights are smaller "
        "in longer sentences. It counts the same word at two places as same-topic.",
        BLUE,
        "o",
    ),
    "attention_ratio_distinct": Quantity(
        "distinct words",
        "The same without pairs of a word with itself: models look at repetitions whatever their topic.",
        ORANGE,
        "s",
    ),
    "attention_ratio_distance_matched": Quantity(
        "distance-matched",
        "Same-topic words often stand close together, and models look at what is close. Here both kinds of pairs are "
        "weighted to the same distances.",
        GREEN,
        "^",
    ),
    "attention_ratio_distinct_distance_matched": Quantity(
        "distinct, distance-matched",
        "The ratio of distinct words with both kinds of pairs weighted to the same distances.",
        YELLOW,
        "v",
    ),
    "attention_ratio_distinct_frequency_matched": Quantity(
        "distinct, frequency-matched",
        "The ratio of distinct words with both kinds of pairs weighted to the same frequencies of their words.",
        SKY,
        "P",
    ),
    "attention_ratio_position_corrected": Quantity(
        "position-corrected",
        "A causal model sees only earlier words, so attention weights shrink along the text. Here each is multiplied "
        "by the number of tokens it could see, instead of the sentence's length.",
        PINK,
        "D",
    ),
    "attention_ratio_sinks_excluded": Quantity(
        "without sinks",
        "The ratio of all pairs when no attention goes to the first token, separators and punctuation.",
        GREY,
        "X",
    ),
    "attention_ratio_distinct_distance_matched_sinks_excluded": Quantity(
        "distinct, distance-matched, without sinks",
        "The ratio of distinct words at matched distances when no attention goes to sinks.",
        "#444444",
        "*",
    ),
}
"""Columns of a probe's table that hold an attention ratio, in the order in which they are shown."""

PAIRS: Mapping[str, str] = {
    "same_word": "same word",
    "same_topic": "same topic",
    "different_topic": "different topics",
}
PROFILE: Mapping[str, str] = {
    "same_topic_share": "attention to other words of the same topic",
    "first_token": "attention to the first token (sink)",
    "separators": "attention to other special tokens",
    "punctuation": "attention to punctuation",
    "itself": "attention to the word itself",
    "previous": "attention to the previous token",
    "next": "attention to the next token",
    "entropy_share": "entropy / its largest value",
    "entropy": "entropy of its attention (nats)",
    "distance": "mean distance (tokens)",
}
"""Columns of heads.csv that say where a head's attention goes; all but the last two are shares from 0 to 1."""

EMBEDDINGS: Mapping[str, str] = {
    "raw": "word vectors",
    "layer": "embedding layer",
    "layer_first": "layer, position 0",
    "cooccurrence": "co-occurrence",
}
"""Where similarities of words are measured; places in context name themselves."""

PART, THETA, VERDICT = "part", "θ", "verdict"
CONTROL, CONTROL_CI = "random weights", "random weights (95% CI)"
PERMUTATION_P, PERMUTATION_Z = "permutation p", "permutation z"
TOPIC_SD = "sd over topic seeds"
SAME_PAIRS, DIFFERENT_PAIRS = "same-topic pairs", "different-topic pairs"
EMBEDDING, KIND, Z = "embedding", "kind", "z"
SAME, DIFFERENT, DIFFERENCE, QUOTIENT = "S (same topic)", "D (different topics)", "S − D", "S/D"

EMBEDDING_COLUMNS = (EMBEDDING, KIND, THETA, SAME, DIFFERENT, DIFFERENCE, Z, VERDICT)
"""Of the table of embeddings, those for which a terminal has room."""


def ratio_label(column: str) -> str:
    """What a ratio's column is called; a column without a label, such as that of an older result, by its own name."""
    if column in RATIOS:
        return RATIOS[column].label
    return column.removeprefix("attention_ratio").strip("_").replace("_", " ")
