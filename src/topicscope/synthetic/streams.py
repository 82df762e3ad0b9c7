"""Where training data come from: fresh, fixed, counted or exact. Each stream resumes to the same numbers."""

from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.synthetic.counts import TokenCounts, count_corrupted, count_tokens, population_counts, sampled_counts
from topicscope.synthetic.documents import DocumentLaw, Documents
from topicscope.synthetic.masking import Corruption, MaskedBatch, Masking
from topicscope.topics import TopicModel

# What a stream draws at once: enough to make numpy's calls cheap, few enough for many seeds and large vocabularies.
_TOKENS_AHEAD = 144_000
_DOCUMENTS_AHEAD = 960
_ENTRIES_AHEAD = 100_000  # of the table [document token]


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
        self._whole: dict[bool, TokenCounts] = {}

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

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """The next documents of the epoch, or all of them, as counts; the counts of all are made once."""
        if self.batch_size is not None:
            return super().next_counts(by_query=by_query)
        if by_query not in self._whole:
            self._whole[by_query] = super().next_counts(by_query=by_query)
        return self._whole[by_query]

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
    """Infinite documents, every τ-subset of topics at every step: no sampling noise."""

    def __init__(self, topic_model: TopicModel, topics_per_document: int, masking: Masking) -> None:
        super().__init__(len(topic_model.vocabulary), masking, 0)
        self.topic_model, self.topics_per_document = topic_model, topics_per_document
        self._counts: dict[bool, TokenCounts] = {}

    def next_counts(self, *, by_query: bool) -> TokenCounts:
        """The same object every time."""
        if by_query not in self._counts:
            self._counts[by_query] = population_counts(
                self.topic_model, self.topics_per_document, self.masking, by_query=by_query
            )
        return self._counts[by_query]


def _positive(batch_size: int) -> int:
    if batch_size < 1:
        raise InputError("impossible batch size", received=batch_size, expected="at least 1")
    return batch_size
