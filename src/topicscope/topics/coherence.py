"""Coherence of topics: do the likeliest words of a topic stand in the same passages?

Normalised pointwise mutual information (Bouma, 2009; Lau, Newman and Baldwin, 2014) over pairs of a topic's likeliest
words, with p the share of passages that hold a word, or both words:

    NPMI_ij = log( p_ij / (p_i p_j) ) / -log p_ij   in [-1, 1];  -1 where i and j never meet

A topic's coherence is the mean over its pairs. A pair is undefined where a word stands in no passage, or both stand in
all of them; such pairs are left out and counted, and a topic without a defined pair has no coherence (NaN).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import isnan, log, nan
from statistics import fmean
from typing import Any

from topicscope.text import WordSplitter, normalise_word, split_words

TOP_WORDS = 10


@dataclass(frozen=True)
class TopicCoherence:
    """npmi: mean over the pairs that are defined, NaN if none is; reason: why pairs are undefined, None if all are."""

    npmi: float
    pairs: int
    undefined_pairs: int
    reason: str | None


@dataclass(frozen=True)
class Coherence:
    """One `TopicCoherence` a topic, over `passages` passages and the first `top_words` words of each topic."""

    topics: tuple[TopicCoherence, ...]
    passages: int
    top_words: int

    @property
    def nan_topics(self) -> int:
        """How many topics have no coherence."""
        return sum(isnan(topic.npmi) for topic in self.topics)

    @property
    def mean(self) -> float:
        """Mean over the topics that have a coherence; NaN if none has."""
        known = [topic.npmi for topic in self.topics if not isnan(topic.npmi)]
        return fmean(known) if known else nan

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; None for NaN."""
        return {
            "measure": "NPMI of words in one passage",
            "mean": None if isnan(self.mean) else self.mean,
            "nan_topics": self.nan_topics,
            "passages": self.passages,
            "top_words": self.top_words,
            "topics": [asdict(topic) | {"npmi": None if isnan(topic.npmi) else topic.npmi} for topic in self.topics],
        }


def coherence(
    top_words: Sequence[Sequence[str]], passages: Iterable[str], *, splitter: WordSplitter = split_words
) -> Coherence:
    """Coherence of topics given by their likeliest words, in one reading of the passages."""
    return coherence_in(top_words, ([normalise_word(word.text) for word in splitter(text)] for text in passages))


def coherence_in(top_words: Sequence[Sequence[str]], passages: Iterable[Iterable[str]]) -> Coherence:
    """`coherence` in passages that are split already, into words as `normalise_word` gives them."""
    lists = [list(dict.fromkeys(map(normalise_word, words))) for words in top_words]
    number = {word: i for i, word in enumerate(dict.fromkeys(word for words in lists for word in words))}
    wanted = {tuple(sorted((number[a], number[b]))) for words in lists for a, b in combinations(words, 2)}
    partners: list[set[int]] = [set() for _ in number]
    for i, j in wanted:
        partners[i].add(j)
    singles = [0] * len(number)
    pairs = dict.fromkeys(wanted, 0)
    read = 0
    for passage in passages:
        read += 1
        present = {number[word] for word in passage if word in number}
        for i in present:
            singles[i] += 1
            for j in partners[i] & present:
                pairs[i, j] += 1
    topics = [_of_topic([number[w] for w in words], words, singles, pairs, read) for words in lists]
    return Coherence(tuple(topics), read, max(map(len, lists), default=0))


def _of_topic(
    numbers: Sequence[int],
    words: Sequence[str],
    singles: Sequence[int],
    pairs: dict[tuple[int, ...], int],
    passages: int,
) -> TopicCoherence:
    values, everywhere = [], 0
    for a, b in combinations(numbers, 2):
        together = pairs[tuple(sorted((a, b)))]
        if not singles[a] or not singles[b]:
            continue
        if together == passages:
            everywhere += 1
        elif together == 0:
            values.append(-1.0)
        else:
            values.append(log(together * passages / (singles[a] * singles[b])) / -log(together / passages))
    count = len(numbers) * (len(numbers) - 1) // 2
    missing = [word for number, word in zip(numbers, words, strict=True) if not singles[number]]
    reasons = [f"in no passage: {', '.join(missing)}"] if missing and count else []
    reasons += [f"{everywhere} pairs of words stand in every passage"] if everywhere else []
    reasons += ["the topic has fewer than two words"] if not count else []
    return TopicCoherence(
        npmi=fmean(values) if values else nan,
        pairs=count,
        undefined_pairs=count - len(values),
        reason="; ".join(reasons) or None,
    )
