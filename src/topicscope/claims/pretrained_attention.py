"""The attention of a pretrained model between words of a topic, pair by pair: real text, topics fitted to it."""

from dataclasses import dataclass

import numpy as np
import torch

from topicscope.claims.plain_attention import PairTable
from topicscope.probing.attention import Configuration, TopicLookup
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import AlignedUnit, Batch, align_units, make_batches
from topicscope.progress import Progress
from topicscope.text import Corpus, load_stop_words, sample_units
from topicscope.topics import NOT_A_WORD, PairClass, Positions, assign_words, classify_pairs, fit

_CLASSES = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)


@dataclass(frozen=True)
class Reading:
    """What is read and how topics come to it.

    | field | meaning |
    | --- | --- |
    | topics, sweeps | of the LDA fit |
    | threshold | θ of Knowl 8 |
    | fitted | passages, drawn at random, that the topics are fitted to |
    | read | how many of these the model reads |
    | seed | of the sample and the fit |
    """

    topics: int = 20
    sweeps: int = 100
    threshold: float = 0.01
    fitted: int = 1000
    read: int = 300
    seed: int = 0


def pretrained_pairs(view: ModelView, corpus: Corpus, reading: Reading, progress: Progress) -> PairTable:
    """Every pair of words that have a topic, read within passages by the first part of the model.

    `attention` has one map a layer and head, and a last one for their mean. `cluster` numbers the articles.
    """
    units, _ = sample_units(corpus, "passage", reading.fitted, reading.seed)
    texts = [unit.text for unit in units]
    topics = fit(texts, reading.topics, sweeps=reading.sweeps, seed=reading.seed, progress=progress)
    assignment = assign_words(topics, reading.threshold, stop_words=load_stop_words("en"))
    units = units[:: max(1, len(units) // reading.read)][: reading.read]
    aligned, _ = align_units(view.tokenizer, units, max_length=view.max_length)
    lookup = TopicLookup(
        [Configuration(reading.threshold, 0, assignment)],
        [word for unit in aligned for word in unit.words if word is not None],
    )
    articles = {name: i for i, name in enumerate(dict.fromkeys(unit.document_id for unit in aligned))}
    article_of = np.array([articles[unit.document_id] for unit in aligned])
    tables: list[PairTable] = []
    rows = 0
    for batch in make_batches(aligned):
        tables.append(_read(view, batch, aligned, article_of, lookup, rows))
        rows += batch.input_ids.numel()
    return PairTable.joined(tables)


def _read(
    view: ModelView,
    batch: Batch,
    aligned: list[AlignedUnit],
    article_of: np.ndarray,
    lookup: TopicLookup,
    first_row: int,
) -> PairTable:
    words = np.full(tuple(batch.input_ids.shape), NOT_A_WORD, dtype=np.int64)
    for line, number in enumerate(batch.unit_index):
        words[line][batch.attention_mask[line].numpy().astype(bool)] = lookup.encode(aligned[number].words)
    place = np.broadcast_to(np.arange(words.shape[1]), words.shape)
    classes = classify_pairs(Positions(words, lookup.topics(0, words), place))
    unit, query, key = np.nonzero(np.isin(classes, _CLASSES))
    part = view.parts[0].name
    maps: list[np.ndarray] = []

    def on_attention(name: str, _layer: int, attention: torch.Tensor) -> None:
        if name == part:
            maps.append(attention.cpu().numpy()[unit, :, query, key].astype(np.float64))

    view.run(batch, on_attention)
    heads = np.concatenate(maps, axis=1)
    return PairTable(
        query=words[unit, query],
        key=words[unit, key],
        row=first_row + unit * words.shape[1] + query,
        pair_class=classes[unit, query, key],
        distance=np.abs(query - key),
        cluster=article_of[np.asarray(batch.unit_index)][unit],
        attention=np.concatenate([heads, heads.mean(axis=1, keepdims=True)], axis=1),
    )
