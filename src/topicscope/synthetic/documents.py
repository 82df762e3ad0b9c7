"""Documents of a topic model: topics per document, then words, vectorised and from one seeded generator.

Independent yes-or-no draws, many at a time: drawing is most of the cost of a training step with stacked seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topicscope.errors import InputError
from topicscope.topics import TopicModel


def bernoulli(rng: np.random.Generator, rows: int, p: np.ndarray) -> np.ndarray:
    """Independent draws, true with the probability of their column: p float64 [column]; bool [row column].

    Exact, at a quarter of the cost of uniform numbers: sixteen bits decide, unless they are the first sixteen of p
    itself; then a uniform number stands for the bits that follow.
    """
    size = rows * len(p)
    bits = rng.integers(0, 2**64, -(-size // 4), dtype=np.uint64).view(np.uint16)[:size].reshape(rows, len(p))
    first = np.minimum(p * 2**16, 2**16 - 1).astype(np.uint16)  # at p = 1 the rest is 1: undecided bits become true
    drawn: np.ndarray = bits < first
    undecided = np.flatnonzero(bits == first)
    drawn.ravel()[undecided] = rng.random(len(undecided)) < (p * 2**16 - first)[undecided % len(p)]
    return drawn


@dataclass(frozen=True, eq=False)
class Documents:
    """words int64 [token]: ids 1..V, document after document. lengths int64 [document].

    Inside a document words stand in no particular order (by topic, in fact), since a document is a set of i.i.d. draws;
    `Masking.apply` puts them into random order.
    """

    words: np.ndarray
    lengths: np.ndarray
    vocabulary_size: int

    @classmethod
    def of(cls, documents: Sequence[Sequence[int]], vocabulary_size: int) -> "Documents":
        """From lists of word ids 1..V, one a document; no document may be empty.

        Raises:
            InputError: no documents, an empty one, or an id that is no word.
        """
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        if len(lengths) == 0 or lengths.min() == 0:
            empty = np.flatnonzero(lengths == 0)[:10].tolist()
            raise InputError("documents need words", received=f"empty: {empty}" if empty else "no documents")
        words = np.concatenate([np.asarray(document) for document in documents])
        if words.dtype.kind not in "iu" or words.min() < 1 or words.max() > vocabulary_size:
            raise InputError(
                "documents hold something that is no word",
                received=f"{words.dtype} from {words.min()} to {words.max()}",
                expected=f"word ids from 1 to {vocabulary_size}",
            )
        return cls(words.astype(np.int64), lengths, vocabulary_size)

    def __len__(self) -> int:
        return len(self.lengths)

    def owner(self) -> np.ndarray:
        """The document of each token, int64 [token]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass(frozen=True, eq=False)
class DocumentLaw:
    """How a document is drawn (Knowl 6): topic proportions θ, a length N, then N words i.i.d. from θ Φ.

    topic_model: Φ as `phi` [topic word]; with topics_per_document None its alpha is the Dirichlet prior of θ.
    topics_per_document: τ; θ = 1/τ on τ distinct topics drawn uniformly. None: θ ~ Dirichlet(alpha).
    length: N, or (shortest, longest), both included and equally likely (the paper's experiments: 100 to 150).
    linked: share of documents in which topics 1 and 2, 3 and 4, … divide their part equally: correlated topics.

    Raises:
        InputError: τ outside 1..T, an impossible length, or a share outside [0, 1].
    """

    topic_model: TopicModel
    topics_per_document: int | None = None
    length: int | tuple[int, int] = (100, 150)
    linked: float = 0.0

    def __post_init__(self) -> None:
        tau, T = self.topics_per_document, self.topic_model.num_topics
        if tau is not None and not 1 <= tau <= T:
            raise InputError("impossible topics_per_document", received=tau, expected=f"1 to {T}, or None (Dirichlet)")
        if not 0 <= self.linked <= 1:
            raise InputError("impossible share of linked documents", received=self.linked, expected="0 to 1")
        shortest, longest = self.length_range
        if not 1 <= shortest <= longest:
            raise InputError("impossible document length", received=self.length, expected="1 <= shortest <= longest")

    @cached_property
    def _table(self) -> "_WordTable":
        return _WordTable(self.topic_model.phi)

    @property
    def length_range(self) -> tuple[int, int]:
        """(shortest, longest)."""
        return self.length if isinstance(self.length, tuple) else (self.length, self.length)

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.topic_model.vocabulary)

    def lengths(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """int64 [document]."""
        shortest, longest = self.length_range
        return np.full(count, shortest) if shortest == longest else rng.integers(shortest, longest + 1, count)

    def proportions(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """θ, float64 [document topic], rows sum to 1."""
        tau, T = self.topics_per_document, self.topic_model.num_topics
        if tau is None:
            theta = rng.dirichlet(self.topic_model.alpha, count)
        else:
            theta = np.zeros((count, T))
            chosen = rng.random((count, T)).argpartition(tau - 1, axis=1)[:, :tau]
            np.put_along_axis(theta, chosen, 1 / tau, axis=1)
        if self.linked:
            together = np.flatnonzero(rng.random(count) < self.linked)
            theta[together] = theta[together] @ self._partners()
        return theta

    def second_moment(self, second: np.ndarray) -> np.ndarray:
        """E θθᵀ [topic topic] of the linked law from that of the law without links: (1 - ℓ) M + ℓ P M P."""
        P = self._partners()
        return np.asarray((1 - self.linked) * second + self.linked * (P @ second @ P))

    def _partners(self) -> np.ndarray:
        """P [topic topic]: the mean over a topic and its partner; an odd last topic has none."""
        T = self.topic_model.num_topics
        pair = np.arange(T) // 2
        together = (pair[:, None] == pair).astype(np.float64)
        return np.asarray(together / together.sum(axis=1))

    def draw(self, rng: np.random.Generator, count: int) -> Documents:
        """`count` fresh documents."""
        lengths = self.lengths(rng, count)
        if self.topics_per_document is None and not self.linked:
            topics, times = self._dirichlet_runs(rng, lengths)
        else:
            # How often each topic occurs, then that many words of it: far fewer draws than a topic for every token.
            times = rng.multinomial(lengths, self.proportions(rng, count)).ravel()
            topics = np.tile(np.arange(self.topic_model.num_topics), count)
        return Documents(self._table.draw(rng, topics, times), lengths, self.vocabulary_size)

    def _dirichlet_runs(self, rng: np.random.Generator, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Topics of a Dirichlet law, θ integrated out: runs of tokens that share one, document after document.

        In the Chinese restaurant process with concentration c = Σ α a document of N tokens splits into tables, each
        with its own topic drawn from α/c. Their sizes have the law of the spacings of ones in a row of N independent
        draws, true with probability c/(c + i) at i = 0, …, N - 1 (Feller's coupling; Arratia, Barbour and Tavaré 1992).
        Nothing but yes-or-no draws is needed. Topic and length of each run, int64 [run].
        """
        alpha, longest = self.topic_model.alpha, self.length_range[1]
        opens = bernoulli(rng, len(lengths), alpha.sum() / (alpha.sum() + np.arange(longest)))
        document, place = np.divmod(np.flatnonzero(opens), longest)
        inside = place < lengths[document]
        at = (np.cumsum(lengths) - lengths)[document[inside]] + place[inside]
        times = np.diff(at, append=lengths.sum())
        if (alpha == alpha[0]).all():
            return rng.integers(0, len(alpha), len(times)), times
        return rng.choice(len(alpha), len(times), p=alpha / alpha.sum()), times


class _WordTable:
    """Walker's alias tables: a token id of topic t in O(1), whatever Φ.

    No alias step where topics are uniform on their words, and no table at all where these are also equally many and
    consecutive, as in the paper's model.
    """

    def __init__(self, phi: np.ndarray) -> None:
        self.sizes = (phi > 0).sum(axis=1)
        width = self.width = int(self.sizes.max())
        self.words = np.zeros((len(phi), width), dtype=np.int64)
        self.alias = np.zeros((len(phi), width), dtype=np.int64)
        self.keep = np.ones((len(phi), width))
        for topic, row in enumerate(phi):
            support = np.flatnonzero(row)
            self.words[topic, : len(support)] = support + 1
            keep, alias = _alias(row[support] * len(support))
            self.keep[topic, : len(support)] = keep
            self.alias[topic, : len(support)] = support[alias] + 1
        self.flat = bool((self.keep > 1 - 1e-12).all())
        regular = self.flat and width < 2**16 and (self.words == self.words[:, :1] + np.arange(width)).all()
        self.first_words = self.words[:, 0] if regular else None

    def draw(self, rng: np.random.Generator, topics: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Token ids: times[run] of topics[run], in that order, int64 [token]."""
        if self.first_words is not None:
            words = np.repeat(self.first_words[topics], times)
            words += rng.integers(0, self.width, len(words), dtype=np.uint16)
            return words
        topics = np.repeat(topics, times)
        uniform = rng.random(len(topics))
        uniform *= self.sizes[topics]
        cell = topics * self.width
        column = uniform.astype(np.int64)
        cell += column
        words = self.words.take(cell)
        if self.flat:
            return words
        return np.where(uniform - column < self.keep.take(cell), words, self.alias.take(cell))


def _alias(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep probabilities and alias columns of one distribution, given probabilities × number of columns."""
    keep, alias = np.ones(len(scaled)), np.arange(len(scaled))
    left = scaled.copy()
    small = [i for i, value in enumerate(left) if value < 1]
    large = [i for i, value in enumerate(left) if value >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], alias[low] = left[low], high
        left[high] -= 1 - left[low]
        if left[high] < 1:
            small.append(large.pop())
    return keep, alias
