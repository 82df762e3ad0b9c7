"""Where training data come from, fresh, fixed, counted or exact, and TokenCounts, the form in which they are counted.

With one layer and no positions an output depends on its own token type and on how often each type is attended in its
document, so a batch is known by counts. The same form holds a sampled batch, very long documents drawn as counts, and
the exact expectation over infinite documents. Each stream resumes to the same numbers.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.synthetic.documents import DocumentLaw, Documents
from topicscope.synthetic.masking import Corruption, MaskedBatch, Masking, first_selected
from topicscope.topics import TopicModel

# float64 entries of `targets`: 400 MB
MAX_ENTRIES = 50_000_000
# What a stream draws at once: enough to make numpy's calls cheap, few enough for many seeds and large vocabularies.
_TOKENS_AHEAD = 144_000
_DOCUMENTS_AHEAD = 960
_ENTRIES_AHEAD = 100_000  # of the table [document token]


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """inputs float64 [document token]: share of each token type among the attended keys; rows sum to 1 (0 if none).

    A group is the selected positions of one document, or of one (document, shown token) where attention is trained:
    document int64 [group], query int64 [group] (the shown token id; 0 where it does not matter), and
    targets float64 [group token]: how much each label weighs there. The weighting of documents is inside: targets sum
    to 1, and the data loss is Σ_g Σ_i targets[g, i] ℓ(z_g, i).
    """

    inputs: np.ndarray
    document: np.ndarray
    query: np.ndarray
    targets: np.ndarray


def count_tokens(batch: MaskedBatch, num_tokens: int, weighting: str, *, by_query: bool) -> TokenCounts:
    """The counts of a token-level batch; the same loss and gradients for a one-layer position-free model."""
    n, D = len(batch), num_tokens
    row = np.arange(n)[:, None]
    # PAD and whatever else is not attended falls into one bin past the end, dropped on purpose.
    cell = np.where(batch.attendable, row * D + batch.input_ids, n * D)
    counts = np.bincount(cell.ravel(), minlength=n * D + 1)[: n * D].reshape(n, D).astype(np.float64)
    counts /= np.maximum(counts.sum(axis=1, keepdims=True), 1)
    at = np.flatnonzero(batch.selected)
    document = at // batch.selected.shape[1]
    labels, shown = batch.labels.ravel()[at], batch.input_ids.ravel()[at]
    return _grouped(counts, document, shown, labels, n, weighting, by_query)[0]


def count_corrupted(
    documents: Documents, corruption: Corruption, masking: Masking, batch_size: int, *, by_query: bool
) -> list[TokenCounts]:
    """Counts without laying the documents out, `batch_size` to a batch: as `count_tokens` of the same tokens."""
    n, D = len(documents), masking.num_tokens(documents.vocabulary_size)
    first = D * np.arange(n)
    cells = np.repeat(first, documents.lengths)
    cells += documents.words
    attended = documents.lengths
    if masking.hide_selected:
        cells = np.delete(cells, corruption.at)
        attended = attended - np.bincount(corruption.document, minlength=n)
    else:
        cells[corruption.at] = first[corruption.document] + corruption.shown
    counts = np.bincount(cells, minlength=n * D).reshape(n, D)
    if masking.specials:
        counts[:, -2:] = 1
        attended = attended + 2
    shares = counts / np.maximum(attended, 1)[:, None]
    c = corruption
    return _grouped(shares, c.document, c.shown, c.labels, batch_size, masking.weighting, by_query)


def _grouped(
    inputs: np.ndarray,
    document: np.ndarray,
    shown: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
    weighting: str,
    by_query: bool,
) -> list[TokenCounts]:
    """Selected positions [selected], gathered by document or by (document, shown token), a batch after another."""
    n, D = inputs.shape
    weight = _weights(document, n, batch_size, weighting)
    cell = D * document
    if by_query:
        key = cell + shown
        present = np.zeros(n * D, dtype=bool)
        present[key] = True
        groups = np.flatnonzero(present)
        owner, query = groups // D, groups % D
        cell = D * (np.cumsum(present)[key] - 1)
    else:
        owner, query = np.arange(n), np.zeros(n, dtype=np.int64)
    targets = np.bincount(cell + labels, weights=weight, minlength=len(owner) * D).reshape(len(owner), D)
    edges = np.arange(0, n + 1, batch_size)
    cuts = np.searchsorted(owner, edges)
    return [
        TokenCounts(inputs[low:high], owner[begin:end] - low, query[begin:end], targets[begin:end])
        for low, high, begin, end in zip(edges[:-1], edges[1:], cuts[:-1], cuts[1:], strict=True)
    ]


def _weights(document: np.ndarray, n: int, batch_size: int, weighting: str) -> np.ndarray:
    """Weight of each selected position, as `MaskedBatch.position_weights` of its batch."""
    selected = np.bincount(document, minlength=n).reshape(-1, batch_size)
    if weighting == "token":
        selected = selected.sum(axis=1, keepdims=True).repeat(batch_size, axis=1)
    else:
        selected = selected * np.count_nonzero(selected, axis=1)[:, None]
    return np.asarray((1.0 / np.maximum(selected, 1)).ravel()[document])


def sampled_counts(
    rng: np.random.Generator, law: DocumentLaw, masking: Masking, count: int, *, by_query: bool
) -> TokenCounts:
    """Fresh documents drawn as counts (multinomial): the same law as drawing and masking tokens, at any length."""
    V, D = law.vocabulary_size, masking.num_tokens(law.vocabulary_size)
    p = law.proportions(rng, count) @ law.topic_model.phi
    p /= p.sum(axis=1, keepdims=True)
    lengths = law.lengths(rng, count)
    k = rng.binomial(lengths, masking.p_mask)
    if masking.weighting == "document":
        empty = np.flatnonzero(k == 0)
        first = first_selected(rng, lengths[empty], masking.p_mask)
        k[empty] = 1 + rng.binomial(lengths[empty] - 1 - first, masking.p_mask)
    fates = [masking.p_correct, masking.p_random, 1.0 - masking.p_correct - masking.p_random]
    kept, random, masked = rng.multinomial(k, fates).T
    plain, kept_words, masked_labels = (rng.multinomial(n, p) for n in (lengths - k, kept, masked))
    random_words = rng.multinomial(random, np.full(V, 1 / V))
    inputs = np.zeros((count, D))
    inputs[:, 1 : V + 1] = plain
    if not masking.hide_selected:
        inputs[:, 0] = masked
        inputs[:, 1 : V + 1] += kept_words + random_words
    if masking.specials:
        inputs[:, V + 1 :] = 1
    inputs /= np.maximum(inputs.sum(axis=1, keepdims=True), 1)
    weight = 1 / max(k.sum(), 1) if masking.weighting == "token" else 1 / (k[:, None] * count)
    if not by_query:
        return _per_document(inputs, weight * (kept_words + rng.multinomial(random, p) + masked_labels))
    random_labels = rng.multinomial(random_words, p[:, None, :])
    scale = np.broadcast_to(weight, (count, 1))
    return _per_query(inputs, scale * kept_words, scale[..., None] * random_labels, scale * masked_labels)


def _per_document(inputs: np.ndarray, labels: np.ndarray) -> TokenCounts:
    """One group a document; labels [document word]."""
    n = len(inputs)
    targets = np.zeros_like(inputs)
    targets[:, 1 : labels.shape[1] + 1] = labels
    return TokenCounts(inputs, np.arange(n), np.zeros(n, dtype=np.int64), targets)


def _per_query(inputs: np.ndarray, kept: np.ndarray, replaced: np.ndarray, masked: np.ndarray) -> TokenCounts:
    """Groups (document, shown token) of positive weight.

    kept [document word]: own word shown; replaced [document shown label]; masked [document label]: [MASK] shown.
    """
    n, V = kept.shape
    targets = np.zeros((n, V + 1, inputs.shape[1]))
    targets[:, 0, 1 : V + 1] = masked
    targets[:, 1:, 1 : V + 1] = replaced
    words = np.arange(1, V + 1)
    targets[:, words, words] += kept
    document, query = np.nonzero(targets.sum(axis=2))
    return TokenCounts(inputs, document, query, targets[document, query])


class BatchStream:
    """One seed's data. `next_counts` takes the next batch as counts, `next_batch` takes it as tokens.

    num_tokens: D, the number of token types. `state` is JSON-able; `restore` continues from it exactly.
    """

    def __init__(self, vocabulary_size: int, masking: Masking, seed: int) -> None:
        self.masking = masking
        self.num_tokens = masking.num_tokens(vocabulary_size)
        self._rng = np.random.default_rng(seed)

    def next_batch(self) -> MaskedBatch:
        """The next batch as tokens; refused where there are none, so that only the reduced model can be trained."""
        raise InputError(
            "these data exist only as counts",
            received=type(self).__name__,
            advice="train the reduced model, or draw documents of a finite length",
        )

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """The next batch as counts."""
        return count_tokens(self.next_batch(), self.num_tokens, self.masking.weighting, by_query=by_query)

    def state(self) -> dict[str, Any]:
        """What `restore` needs: the generator's state."""
        return {"rng": self._rng.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue as the stream that gave `state` would have."""
        self._rng.bit_generator.state = state["rng"]


class FreshDocuments(BatchStream):
    """New documents and new masks every step.

    Small batches are drawn several at a time, since numpy's calls cost more than its numbers. The documents are the
    same whether they are read by `next_batch` or by `next_counts`, and wherever the stream was saved and restored.
    """

    def __init__(self, law: DocumentLaw, masking: Masking, batch_size: int, seed: int = 0) -> None:
        super().__init__(law.vocabulary_size, masking, seed)
        self.law, self.batch_size, self.seed = law, _positive(batch_size), seed
        limits = (_TOKENS_AHEAD // law.length_range[1], _ENTRIES_AHEAD // self.num_tokens, _DOCUMENTS_AHEAD)
        self.ahead = max(1, min(limits) // batch_size)
        self._number: int = 0
        self._read: int = 0
        self._table: MaskedBatch | None = None
        self._counts: dict[bool, list[TokenCounts]] = {}
        self._drawn = self._draw(number=0)

    def next_batch(self) -> MaskedBatch:
        """`batch_size` documents never seen before."""
        part = self._advance()
        if self._table is None:
            # The order of words has its own generator: with it or without it, the same documents follow.
            order = np.random.default_rng([self.seed, 1, self._number])
            self._table = self.masking.lay_out(order, *self._drawn)
        return self._table.rows(slice(part * self.batch_size, (part + 1) * self.batch_size))

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """The same documents as counts, without laying them out."""
        part = self._advance()
        if by_query not in self._counts:
            self._counts[by_query] = count_corrupted(*self._drawn, self.masking, self.batch_size, by_query=by_query)
        return self._counts[by_query][part]

    def state(self) -> dict[str, Any]:
        """The generator before the batches that are drawn, which ones these are, and how many of them were read."""
        return {"seed": self.seed, "rng": self._before, "number": self._number, "read": self._read}

    def restore(self, state: dict[str, Any]) -> None:
        """Draw these batches again."""
        super().restore(state)
        self.seed = state["seed"]
        self._drawn = self._draw(state["number"])
        self._read = state["read"]

    def _draw(self, number: int) -> tuple[Documents, Corruption]:
        self._before = self._rng.bit_generator.state
        self._number, self._read = number, 0
        self._table, self._counts = None, {}
        documents = self.law.draw(self._rng, self.ahead * self.batch_size)
        return documents, self.masking.corrupt(self._rng, documents)

    def _advance(self) -> int:
        """The place of the next batch among those drawn."""
        if self._read == self.ahead:
            self._drawn = self._draw(self._number + 1)
        self._read += 1
        return self._read - 1


class FixedDocuments(BatchStream):
    """A saved set with its masks as they are.

    batch_size None: all documents at every step. Otherwise epochs in a new random order each; the rest of an epoch that
    fills no batch is skipped, and `skipped` counts these documents.
    """

    def __init__(self, batch: MaskedBatch, masking: Masking, batch_size: int | None = None, seed: int = 0) -> None:
        super().__init__(batch.vocabulary_size, masking, seed)
        if len(batch) == 0 or (batch_size is not None and not 1 <= batch_size <= len(batch)):
            raise InputError("impossible batch size", received=batch_size, expected=f"1 to {len(batch)}, or None")
        self.batch, self.batch_size = batch, batch_size
        self.skipped = 0
        self._order = np.arange(len(batch))
        self._at = len(batch)

    def next_batch(self) -> MaskedBatch:
        """The next documents of the epoch, or all of them."""
        if self.batch_size is None:
            return self.batch
        if self._at + self.batch_size > len(self.batch):
            self.skipped += len(self.batch) - self._at
            self._order = self._rng.permutation(len(self.batch))
            self._at = 0
        self._at += self.batch_size
        return self.batch.rows(self._order[self._at - self.batch_size : self._at])

    def state(self) -> dict[str, Any]:
        """Generator, order of the epoch and place in it."""
        order = None if self.batch_size is None else self._order.tolist()
        return {**super().state(), "order": order, "at": self._at, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue in the middle of the epoch."""
        super().restore(state)
        if state["order"] is not None:
            self._order = np.array(state["order"], dtype=np.int64)
        self._at, self.skipped = state["at"], state["skipped"]


class SampledCounts(BatchStream):
    """New long documents every step, drawn as counts."""

    def __init__(self, law: DocumentLaw, masking: Masking, batch_size: int, seed: int = 0) -> None:
        super().__init__(law.vocabulary_size, masking, seed)
        self.law, self.batch_size = law, _positive(batch_size)

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """`batch_size` documents never seen before, as counts."""
        return sampled_counts(self._rng, self.law, self.masking, self.batch_size, by_query=by_query)


class Population(BatchStream):
    """Infinite documents, every τ-subset S of topics with its weight at every step, so the data loss is exact.

    x̄_S = a p_S + r u + m e_0 (with hide_selected: p_S). A query shows word u with probability p_c p_S(u) + p_r/V, its
    label then being u itself or a word of p_S; it shows [MASK] with p_0. START and END have share 0.
    """

    def __init__(self, topic_model: TopicModel, topics_per_document: int, masking: Masking) -> None:
        super().__init__(len(topic_model.vocabulary), masking, 0)
        self.topic_model, self.topics_per_document = topic_model, topics_per_document

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """Every kind of document with its weight.

        Raises:
            InputError: too many subsets to enumerate; the message gives the number.
        """
        topic_model, masking, tau, D = self.topic_model, self.masking, self.topics_per_document, self.num_tokens
        T, V = topic_model.num_topics, len(topic_model.vocabulary)
        if not 1 <= tau <= T:
            raise InputError("impossible topics_per_document", received=tau, expected=f"1 to {T}")
        subsets = comb(T, tau)
        entries = subsets * D * ((V + 1) if by_query else 1)
        if entries > MAX_ENTRIES:
            raise InputError(
                "too many kinds of documents to enumerate",
                received=f"C({T}, {tau}) = {subsets:,} subsets, {entries:,} numbers",
                expected=f"at most {MAX_ENTRIES:,} numbers",
                advice="use sampled documents, or fewer topics",
            )
        active = np.array(list(combinations(range(T), tau)))
        p = topic_model.phi[active].mean(axis=1)
        selected = 0.0 if masking.hide_selected else masking.p_mask
        inputs = np.zeros((subsets, D))
        p_0 = 1.0 - masking.p_correct - masking.p_random
        inputs[:, 0] = selected * p_0
        inputs[:, 1 : V + 1] = (1 - selected * (1 - masking.p_correct)) * p + selected * masking.p_random / V
        weight = 1 / subsets
        if not by_query:
            return _per_document(inputs, weight * p)
        kept = masking.p_correct * p
        replaced = np.broadcast_to(masking.p_random / V * p[:, None, :], (subsets, V, V))
        return _per_query(inputs, weight * kept, weight * replaced, weight * p_0 * p)


def _positive(batch_size: int) -> int:
    if batch_size < 1:
        raise InputError("impossible batch size", received=batch_size, expected="at least 1")
    return batch_size
