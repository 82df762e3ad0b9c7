"""TopicModel: the topic-word distributions, synthetic or fitted, and the vocabulary that they speak of.

Token ids of the laboratory models: [MASK] = 0, words 1..V, START = V+1, END = V+2, PAD = V+3. A word's index, 0..V-1,
is its token id less one; mixing them up is the fault that shifted every topic in the paper's released code.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topicscope.errors import InputError


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of distinct words.

    Raises:
        InputError: no word, an empty word, or a word that stands twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words or "" in self.words:
            raise InputError("a vocabulary needs words", received=self.words[:5], expected="non-empty words")
        if len(set(self.words)) != len(self.words):
            twice = [word for word, times in Counter(self.words).items() if times > 1]
            raise InputError("a word stands twice in the vocabulary", received=twice[:5])

    @classmethod
    def numbered(cls, size: int) -> "Vocabulary":
        """w1 … wV, the words of a synthetic topic model."""
        return cls(tuple(f"w{i}" for i in range(1, size + 1)))

    def __len__(self) -> int:
        return len(self.words)


Alpha = float | Sequence[float]
"""One Dirichlet parameter for all topics, or one for each."""

# Share of a word's largest probability over topics from which on another topic is one of its topics too.
_BELONGS = 0.1


@dataclass(frozen=True, eq=False)
class TopicModel:
    """Topic-word probabilities with the vocabulary they speak of.

    phi: float64 [topic, word], rows sum to 1 (the transpose of the paper's orientation).
    alpha: float64 [topic], the Dirichlet prior of the topic proportions.

    Raises:
        InputError: wrong shapes, NaN, a negative entry, or a row that does not sum to 1 within 1e-6; use
            `TopicModel.normalised` to turn weights into probabilities knowingly.
    """

    phi: np.ndarray
    alpha: np.ndarray
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        phi = np.array(self.phi, dtype=np.float64)
        alpha = np.array(self.alpha, dtype=np.float64)
        if phi.ndim != 2 or phi.shape[1] != len(self.vocabulary) or phi.shape[0] == 0:
            raise InputError(
                "phi has the wrong shape",
                received=phi.shape,
                expected=f"[topic, word] with {len(self.vocabulary)} words",
            )
        bad = ~np.isfinite(phi).all(axis=1) | (phi < 0).any(axis=1)
        if bad.any():
            raise InputError(
                "phi has NaN, infinite or negative entries",
                received=f"topics {np.flatnonzero(bad)[:10].tolist()}",
                expected="finite probabilities",
                advice="fit again with fewer topics or in float64",
            )
        sums = phi.sum(axis=1)
        if (np.abs(sums - 1) > 1e-6).any():
            raise InputError(
                "rows of phi do not sum to 1",
                received=f"topic {int(np.abs(sums - 1).argmax())} sums to {sums[np.abs(sums - 1).argmax()]:.6g}",
                expected="rows that sum to 1",
                advice="use TopicModel.normalised for weights or counts",
            )
        if alpha.shape != (phi.shape[0],) or not (np.isfinite(alpha).all() and (alpha > 0).all()):
            raise InputError("alpha must be positive, one a topic", received=alpha.tolist()[:10])
        # Rows already right stay as they are, so that a saved model comes back bit for bit.
        phi /= np.where(np.abs(sums - 1) > 1e-12, sums, 1.0)[:, None]
        phi.flags.writeable = False
        alpha.flags.writeable = False
        object.__setattr__(self, "phi", phi)
        object.__setattr__(self, "alpha", alpha)

    @classmethod
    def normalised(cls, weights: np.ndarray, vocabulary: Vocabulary, alpha: Alpha = 0.1) -> "TopicModel":
        """From non-negative weights [topic, word] such as counts; each row is divided by its sum."""
        weights = np.asarray(weights, dtype=np.float64)
        sums = weights.sum(axis=1, keepdims=True)
        if not (sums > 0).all():
            raise InputError(
                "a topic has no weight", received=f"topics {np.flatnonzero(sums[:, 0] <= 0)[:10].tolist()}"
            )
        return cls(weights / sums, _spread(alpha, len(weights)), vocabulary)

    @classmethod
    def disjoint(cls, num_topics: int, words_per_topic: int, alpha: Alpha = 0.1) -> "TopicModel":
        """The paper's synthetic model: T topics of v words each, word i in topic ⌈i/v⌉, uniform inside (Knowl 6)."""
        if num_topics < 1 or words_per_topic < 1:
            raise InputError("a topic model needs topics and words", received=(num_topics, words_per_topic))
        phi = np.kron(np.eye(num_topics), np.full((1, words_per_topic), 1 / words_per_topic))
        return cls(phi, _spread(alpha, num_topics), Vocabulary.numbered(num_topics * words_per_topic))

    @classmethod
    def unequal(cls, sizes: Sequence[int], alpha: Alpha = 0.1) -> "TopicModel":
        """Disjoint topics of the given numbers of words, uniform inside."""
        if not sizes or min(sizes) < 1:
            raise InputError("a topic model needs topics and words", received=list(sizes))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        members = (owner == np.arange(len(sizes))[:, None]).astype(np.float64)
        return cls.normalised(members, Vocabulary.numbered(len(owner)), alpha)

    @classmethod
    def overlapping(cls, num_topics: int, words_per_topic: int, shared: int, alpha: Alpha = 0.1) -> "TopicModel":
        """A ring of T topics of v words, uniform inside; each shares its last `shared` words with the next one's first.

        V = T (v - shared). With shared = 0 it is `disjoint`.
        """
        step = words_per_topic - shared
        if num_topics < 2 or shared < 0 or step < shared or step < 1:
            raise InputError(
                "impossible overlap",
                received=(num_topics, words_per_topic, shared),
                expected="at least 2 topics, and shared at most half of words_per_topic",
            )
        members = np.zeros((num_topics, num_topics * step))
        for topic, row in enumerate(members):
            row[(topic * step + np.arange(words_per_topic)) % len(row)] = 1
        return cls.normalised(members, Vocabulary.numbered(num_topics * step), alpha)

    @property
    def members(self) -> np.ndarray:
        """bool [topic word]: the word belongs to the topic.

        It does where it is at least a tenth as probable as in its likeliest topic. So a word may have several topics,
        while the small positive numbers that smoothing leaves everywhere, as in LDA, make none.
        """
        return np.asarray((self.phi > 0) & (self.phi >= _BELONGS * self.phi.max(axis=0)))

    @property
    def num_topics(self) -> int:
        """K (or T), the number of topics."""
        return int(self.phi.shape[0])


def _spread(alpha: Alpha, num_topics: int) -> np.ndarray:
    """float64 [topic]; a sequence of another length goes on to be refused by the constructor."""
    numbers = np.asarray(alpha, dtype=np.float64)
    return numbers if numbers.ndim else np.full(num_topics, numbers)
