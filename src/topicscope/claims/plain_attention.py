"""The attention of trained models on unmasked documents, pair by pair, as it is given to every claim that reads it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from topicscope.lab import HeldOut, Start, TopicTransformer, held_out, make_recipe, topic_model_of
from topicscope.records import RunRecord
from topicscope.topics import NO_PAIR, Positions, classify_pairs


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

    @classmethod
    def joined(cls, tables: "Sequence[PairTable]") -> "PairTable":
        """All pairs of several tables, in order."""
        return cls(**{f.name: np.concatenate([getattr(table, f.name) for table in tables]) for f in fields(cls)})

    def only(self, chosen: np.ndarray) -> "PairTable":
        """Some of the pairs, by a mask or by their places."""
        return PairTable(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def models_of(record: RunRecord) -> list[TopicTransformer]:
    """The trained model of every seed, nothing in it trainable any more."""
    config = make_recipe(record.config).model
    seeds = [
        {name: torch.tensor(stack[seed]) for name, stack in record.weights.items()}
        for seed in range(record.summary["seeds"])
    ]
    return [TopicTransformer(config, Start(weights, frozenset(weights))) for weights in seeds]


def losses_of(record: RunRecord, documents: int = 500) -> list[float]:
    """The data loss of every seed on so many masked documents of the run's law, the same for all."""
    recipe = make_recipe(record.config)
    batch = _held_out(record, documents).batch
    assert batch is not None
    kind = recipe.training.loss, recipe.training.weighting
    with torch.no_grad():
        return [float(model.data_loss(batch, *kind)) for model in models_of(record)]


def attention_of(record: RunRecord, documents: int = 60) -> Iterator[tuple[Documents, np.ndarray]]:
    """For each seed unmasked documents of the run's law, the same for all, and the attention on them.

    Attention: float64 [layer document head query key], rows sum to 1.
    """
    topic_model = topic_model_of(make_recipe(record.config))
    batch = _held_out(record, documents).plain
    assert batch is not None
    V = len(topic_model.vocabulary)
    words = np.where((batch.labels >= 1) & (batch.labels <= V), batch.labels - 1, -1)
    owner = np.append(topic_model.phi.argmax(axis=0), -1)  # index -1: no word, no topic
    place = np.broadcast_to(np.arange(words.shape[1]), words.shape)
    read = Documents(words, classify_pairs(Positions(words, owner[words], place)), batch.attendable.sum(axis=1))
    for model in models_of(record):
        with torch.no_grad():
            patterns = model.attention(batch)
        yield read, np.stack([pattern.double().numpy() for pattern in patterns])


def _held_out(record: RunRecord, documents: int) -> HeldOut:
    recipe = make_recipe(record.config)
    history = recipe.history.model_copy(update={"documents": documents})
    return held_out(recipe.model_copy(update={"history": history}), topic_model_of(recipe), by_query=False)


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
