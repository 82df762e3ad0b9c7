"""Words to topics (Knowl 8 of the paper): the likeliest words of each topic, stop words and ambiguous words out.

For topic t and threshold θ in (0, 1]: sort the n words of the vocabulary that are no stop words by φ_tw in descending
order and keep the first max(1, ⌊θ n⌋). A word kept for several topics belongs to none ("drop", the paper's protocol)
or to all of them ("keep", the paper's multi-topic extension: two words share a topic when their sets intersect).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
from jaxtyping import Bool

from topicscope.errors import InputError
from topicscope.text import normalise_word
from topicscope.topics.files import WordList
from topicscope.topics.lda import Topics
from topicscope.topics.topic_model import TopicModel

Overlap = Literal["drop", "keep"]

# Fewer words a topic than this on average give too few same-topic pairs to say anything.
FEW_WORDS = 5


@dataclass(frozen=True)
class TopicAssignment:
    """Which words belong to which topics.

    | field | content |
    | --- | --- |
    | num_topics | T |
    | threshold | θ, None for a word list |
    | overlap | "drop" or "keep" |
    | words | the words that belong to a topic, in the order of the vocabulary |
    | topics | per word its topics; exactly one each with "drop" |
    | labels | one name a topic, or None |
    | dropped_ambiguous | words that stood in several topics' lists and so belong to none |
    | dropped_stop_words | stop words of the vocabulary (or word list), never part of a list |
    | warnings | sentences for the user |
    """

    num_topics: int
    threshold: float | None
    overlap: Overlap
    words: tuple[str, ...]
    topics: tuple[frozenset[int], ...]
    labels: tuple[str, ...] | None
    dropped_ambiguous: int
    dropped_stop_words: int
    warnings: tuple[str, ...]
    _place: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_place", {word: i for i, word in enumerate(self.words)})

    @property
    def words_per_topic(self) -> float:
        """Mean number of words of a topic."""
        return sum(map(len, self.topics)) / self.num_topics

    def membership(self, words: Sequence[str]) -> Bool[np.ndarray, "word topic"]:
        """[word, topic]: whether each word, compared as `normalise_word` gives it, belongs to each topic."""
        member = np.zeros((len(words), self.num_topics), dtype=np.bool_)
        for row, word in zip(member, words, strict=True):
            place = self._place.get(normalise_word(word))
            if place is not None:
                row[list(self.topics[place])] = True
        return member


def assign_words(
    topics: Topics | TopicModel, threshold: float, *, stop_words: Collection[str], overlap: Overlap = "drop"
) -> TopicAssignment:
    """Words to topics by the ambiguity threshold θ, a share of the n words of the vocabulary that are no stop words.

    Each topic lists its max(1, ⌊θ n⌋) likeliest words; ties go to the word that stands first in the vocabulary. A word
    of likelihood 0 is never listed.

    Raises:
        InputError: a threshold outside (0, 1], or an unknown `overlap`.
    """
    if not 0 < threshold <= 1:
        raise InputError("impossible threshold", received=threshold, expected="0 < threshold <= 1, such as 0.001")
    model = topics.model if isinstance(topics, Topics) else topics
    words = model.vocabulary.words
    allowed = np.flatnonzero(_allowed(words, stop_words))
    # θ is taken as it is written: in floating point, 0.29 · 100 is below 29.
    length = max(1, math.floor(Fraction(repr(float(threshold))) * len(allowed)))
    # Of each topic the places of the positive probabilities in descending order, ties in order of place.
    lists = [np.argsort(-row, kind="stable")[: np.count_nonzero(row)].astype(np.int32) for row in model.phi[:, allowed]]
    listed: dict[int, set[int]] = {}
    for topic, order in enumerate(lists):
        for i in order[:length]:
            listed.setdefault(int(allowed[i]), set()).add(topic)
    return _assignment(
        {words[i]: frozenset(listed[i]) for i in sorted(listed)},
        num_topics=model.num_topics,
        threshold=float(threshold),
        overlap=overlap,
        labels=topics.labels if isinstance(topics, Topics) else None,
        dropped_stop_words=len(words) - len(allowed),
        proposal=_propose_threshold(lists, len(allowed), overlap),
    )


def from_word_list(word_list: WordList, *, stop_words: Collection[str], overlap: Overlap = "drop") -> TopicAssignment:
    """The same from labelled words: the list's labels are the topics.

    Raises:
        InputError: an unknown `overlap`.
    """
    allowed = _allowed(word_list.words, stop_words)
    listed = zip(word_list.words, word_list.topics, allowed, strict=True)
    return _assignment(
        {word: topics for word, topics, keep in listed if keep},
        num_topics=len(word_list.labels),
        threshold=None,
        overlap=overlap,
        labels=word_list.labels,
        dropped_stop_words=sum(not keep for keep in allowed),
        proposal="List more words.",
    )


def _assignment(
    listed: dict[str, frozenset[int]],
    *,
    num_topics: int,
    threshold: float | None,
    overlap: Overlap,
    labels: tuple[str, ...] | None,
    dropped_stop_words: int,
    proposal: str,
) -> TopicAssignment:
    if overlap not in ("drop", "keep"):
        raise InputError("unknown way with ambiguous words", received=overlap, expected='"drop" or "keep"')
    kept = {word: topics for word, topics in listed.items() if overlap == "keep" or len(topics) == 1}
    mean = sum(map(len, kept.values())) / num_topics
    warning = f"Only {mean:.2g} words a topic on average, fewer than {FEW_WORDS}: few pairs to measure. {proposal}"
    return TopicAssignment(
        num_topics=num_topics,
        threshold=threshold,
        overlap=overlap,
        words=tuple(kept),
        topics=tuple(kept.values()),
        labels=labels,
        dropped_ambiguous=len(listed) - len(kept),
        dropped_stop_words=dropped_stop_words,
        warnings=(warning,) if mean < FEW_WORDS else (),
    )


def _allowed(words: Sequence[str], stop_words: Collection[str]) -> list[bool]:
    stops = {normalise_word(word) for word in stop_words}
    return [normalise_word(word) not in stops for word in words]


def _propose_threshold(lists: Sequence[np.ndarray], n: int, overlap: Overlap) -> str:
    """The smallest threshold with enough words a topic on average, or what the best one would give.

    With "drop", lists of length m give a word to one topic exactly when its best rank among the topics is below m and
    its second best is not; so one pass over the ranks counts the words for every m.
    """
    if n == 0:
        return "The vocabulary has stop words only."
    best, second = np.full(n, n), np.full(n, n)
    gained = np.zeros(n + 1, dtype=np.int64)  # by list length m: words listed less words lost
    for order in lists:
        rank = np.full(n, n)
        rank[order] = np.arange(len(order))
        gained[1 : len(order) + 1] += overlap == "keep"
        second = np.minimum(second, np.maximum(best, rank))
        best = np.minimum(best, rank)
    if overlap == "drop":
        gained = np.bincount(best, minlength=n + 1)[: n + 1] - np.bincount(second, minlength=n + 1)[: n + 1]
        gained = np.concatenate([[0], gained[:n]])
    mean = np.cumsum(gained) / len(lists)
    enough = np.flatnonzero(mean >= FEW_WORDS)
    length = int(enough[0]) if len(enough) else int(mean.argmax())
    threshold = _written_threshold(length, n)
    if len(enough):
        return f"A threshold of {threshold} gives {mean[length]:.2g} (--threshold {threshold})."
    return (
        f"No threshold gives so many; {threshold} gives the most, {mean[length]:.2g}. "
        "Fit fewer topics, give more text, or keep ambiguous words (--overlap keep)."
    )


def _written_threshold(length: int, n: int) -> str:
    """The shortest decimal θ with ⌊θ n⌋ = length."""
    for digits in range(1, 18):
        unit = 10**digits
        threshold = Fraction(math.ceil(Fraction(length, n) * unit), unit)
        if math.floor(threshold * n) == length:
            return f"{float(threshold):.{digits}f}"
    return repr(length / n)
