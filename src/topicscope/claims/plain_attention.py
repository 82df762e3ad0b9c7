"""The attention of trained models on unmasked documents, pair by pair, as it is given to every claim that reads it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from topicscope.models import Start, TopicTransformer
from topicscope.records.run_record import RunRecord
from topicscope.topics.pairs import NO_PAIR, Positions, classify_pairs
from topicscope.training.data import held_out, topic_model_of
from topicscope.training.recipe import make_recipe


@dataclass(frozen=True, eq=False)
class Documents:
    """Held-out documents of a run's law, the same for all seeds, and what every pair of their positions is.

    words int64 [document position]: word index, -1 where there is none. classes [document query key]: `PairClass`, or
    -1 where two positions make no pair. length int64 [document].
    """

    words: np.ndarray
    classes: np.ndarray
    length: np.ndarray


@dataclass(frozen=True, eq=False)
class PairTable:
    """Attention of pairs of words, one pair a line.

    query, key: word index. row: the query's own row of attention, within which the pairs compete. pair_class:
    `PairClass`. distance: |i - j| in tokens. cluster: document. attention float64 [pair, map]: one column for every
    head that was read, or for their mean.
    """

    query: np.ndarray
    key: np.ndarray
    row: np.ndarray
    pair_class: np.ndarray
    distance: np.ndarray
    cluster: np.ndarray
    attention: np.ndarray

    def without(self, dropped: np.ndarray) -> "PairTable":
        """The pairs whose place in `dropped` [pair] is False."""
        kept = ~dropped
        return PairTable(
            self.query[kept],
            self.key[kept],
            self.row[kept],
            self.pair_class[kept],
            self.distance[kept],
            self.cluster[kept],
            self.attention[kept],
        )


def attention_of(record: RunRecord) -> Iterator[tuple[Documents, np.ndarray]]:
    """For each seed the documents, and its attention float64 [layer document head query key] on them, rows sum to 1."""
    recipe = make_recipe(record.config)
    topic_model = topic_model_of(recipe)
    batch = held_out(recipe, topic_model, by_query=False).plain
    assert batch is not None
    V = len(topic_model.vocabulary)
    words = np.where((batch.labels >= 1) & (batch.labels <= V), batch.labels - 1, -1)
    owner = np.append(topic_model.phi.argmax(axis=0), -1)  # index -1: no word, no topic
    place = np.broadcast_to(np.arange(words.shape[1]), words.shape)
    documents = Documents(words, classify_pairs(Positions(words, owner[words], place)), batch.attendable.sum(axis=1))
    for seed in range(record.summary["seeds"]):
        parameters = {name: torch.tensor(stack[seed]) for name, stack in record.weights.items()}
        model = TopicTransformer(recipe.model, Start(parameters, frozenset(parameters)))
        with torch.no_grad():
            yield documents, np.stack([pattern.double().numpy() for pattern in model.attention(batch)])


def pair_tables(record: RunRecord) -> Iterator[PairTable]:
    """Every pair of words of the documents, for each seed, with the attention averaged over layers and heads."""
    for documents, attention in attention_of(record):
        document, query, key = np.nonzero(documents.classes != NO_PAIR)
        words, size = documents.words, documents.words.shape[1]
        yield PairTable(
            query=words[document, query],
            key=words[document, key],
            row=document * size + query,
            pair_class=documents.classes[document, query, key],
            distance=np.abs(query - key),
            cluster=document,
            attention=attention.mean(axis=(0, 2))[document, query, key][:, None],
        )
