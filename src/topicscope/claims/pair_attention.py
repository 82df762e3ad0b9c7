"""Pairs of words of the Wikipedia sample: MiniLM's attention and embeddings, and how often the words meet.

One pass of the model serves all topics: every pair of words of the topic models' vocabulary is kept.

The attention of trained models on unmasked documents, pair by pair, as it is given to every claim that reads it.

The attention of a pretrained model between words of a topic, pair by pair: real text, topics fitted to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy import sparse

from topicscope.claims.context import Context
from topicscope.demo import INSTALL, minilm_folder
from topicscope.errors import InputError
from topicscope.lab import HeldOut, Start, TopicTransformer, held_out, make_recipe, topic_model_of
from topicscope.probing.attention import Configuration, TopicLookup
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.tokens import AlignedUnit, Batch, align_units, make_batches, word_token_ids
from topicscope.progress import Progress, tracked
from topicscope.records import RunRecord
from topicscope.text import Corpus, load_stop_words, normalise_word, sample_units, split_words, wikipedia_sample
from topicscope.topics import (
    NO_PAIR,
    NOT_A_WORD,
    CorpusPassages,
    PairClass,
    Positions,
    Topics,
    assign_words,
    classify_pairs,
    fit,
)


@dataclass(frozen=True, eq=False)
class WordPairs:
    """Ordered pairs of positions i ≠ j of one passage that both hold a word of the vocabulary, one pair a line.

    query, key: int64 [pair], places in `words`. document: int64 [pair], source article.
    attention: float64 [pair], A_ij · L/100 (Knowl 8), the mean over all layers and heads. distance: |i - j| in tokens.
    """

    words: tuple[str, ...]
    query: np.ndarray
    key: np.ndarray
    document: np.ndarray
    attention: np.ndarray
    distance: np.ndarray


def read_pairs(
    view: ModelView, corpus: Corpus, words: Sequence[str], passages: int, progress: Progress, seed: int = 0
) -> WordPairs:
    """The attention of the first part of a model on a sample of passages."""
    units, _ = sample_units(corpus, "passage", passages, seed)
    aligned, _ = align_units(view.tokenizer, units, max_length=view.max_length)
    place = {word: i for i, word in enumerate(words)}
    articles = {name: i for i, name in enumerate(dict.fromkeys(unit.document_id for unit in aligned))}
    task, tables, done = f"reading with {view.name}", [], 0
    with tracked(progress, task, len(aligned), "passages"):
        for batch in make_batches(aligned):
            tables.append(_read(view, batch, aligned, place, articles))
            done += len(batch.unit_index)
            progress.update(task, done)
    columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
    return WordPairs(tuple(words), *columns)


def _read(
    view: ModelView, batch: Batch, units: list[AlignedUnit], place: dict[str, int], articles: dict[str, int]
) -> tuple[np.ndarray, ...]:
    words = np.full(tuple(batch.input_ids.shape), -1, dtype=np.int64)
    for line, unit in enumerate(batch.unit_index):
        found = [-1 if word is None else place.get(word, -1) for word in units[unit].words]
        words[line][batch.attention_mask[line].numpy().astype(bool)] = found
    known = words >= 0
    row, query, key = np.nonzero(known[:, :, None] & known[:, None, :] & ~np.eye(words.shape[1], dtype=bool))
    part = view.parts[0]
    total = np.zeros(len(query))

    def on_attention(name: str, _layer: int, attention: torch.Tensor) -> None:
        if name == part.name:
            total[:] += attention.mean(1).cpu().numpy()[row, query, key]

    view.run(batch, on_attention)
    length = batch.attention_mask.sum(1).numpy()
    article = np.array([articles[units[i].document_id] for i in batch.unit_index])
    attention = total / part.num_layers * length[row] / 100
    return words[row, query], words[row, key], article[row], attention, np.abs(query - key)


@dataclass(frozen=True, eq=False)
class Meetings:
    """counts [word, word]: passages that hold both words; on the diagonal those that hold the word."""

    counts: sparse.csr_matrix

    @classmethod
    def of(cls, passages: Sequence[str], words: Sequence[str]) -> "Meetings":
        """Count over passages, each word once a passage."""
        place = {word: i for i, word in enumerate(words)}
        rows = [{place.get(normalise_word(word.text), -1) for word in split_words(text)} - {-1} for text in passages]
        pointers = np.cumsum([0, *map(len, rows)])
        columns = np.fromiter((i for row in rows for i in sorted(row)), dtype=np.int64, count=int(pointers[-1]))
        table = sparse.csr_matrix((np.ones(len(columns)), columns, pointers), shape=(len(rows), len(words)))
        return cls((table.T @ table).tocsr())

    def together(self, query: np.ndarray, key: np.ndarray) -> np.ndarray:
        """float64 [pair]: passages that hold both words of each pair."""
        return np.asarray(self.counts[query, key], dtype=np.float64).ravel()


@dataclass(frozen=True, eq=False)
class Sample:
    """What the claims about real text share.

    topics: one fit a topic seed, all of one vocabulary. meetings, half: in all passages, and in every second one.
    vectors [word, d]: rows of the input embedding matrix, NaN where a word is not one token of the model.
    """

    view: ModelView
    topics: tuple[Topics, ...]
    pairs: WordPairs
    meetings: Meetings
    half: Meetings
    vectors: np.ndarray


# What claims that call `wikipedia` say they share.
WIKIPEDIA = "wikipedia"
NOT_HERE = f"not installed: {INSTALL}"
# The paper's number of topics.
TOPICS = 100
# Gibbs sweeps, and passages that the model reads, in full and quick. Topics of 50 sweeps differ so much from fit to fit
# that the quick interval of `co-occurrence` for text is as wide as the effect, whatever the number of passages.
FULL, QUICK = (300, 1500), (50, 300)


def wikipedia(context: Context) -> Sample | None:
    """MiniLM on the Wikipedia sample, topics fitted once a seed; None where they are not installed."""
    return context.once(WIKIPEDIA, lambda: _wikipedia(context))


def _wikipedia(context: Context) -> Sample | None:
    try:
        folder, corpus = minilm_folder(), wikipedia_sample()
    except InputError:
        return None
    sweeps, sample = QUICK if context.quick else FULL
    view = load_model(str(folder))
    passages = list(CorpusPassages(corpus))
    topics = tuple(
        fit(passages, TOPICS, sweeps=sweeps, seed=seed, progress=context.progress) for seed in range(context.seeds)
    )
    words = topics[0].model.vocabulary.words
    found = word_token_ids(view.tokenizer, words).found
    table = view.embedding_matrix().double().numpy()
    vectors = np.full((len(words), table.shape[1]), np.nan)
    for i, word in enumerate(words):
        if word in found:
            vectors[i] = table[found[word].token_id]
    pairs = read_pairs(view, corpus, words, sample, context.progress)
    return Sample(view, topics, pairs, Meetings.of(passages, words), Meetings.of(passages[::2], words), vectors)


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
        tables.append(_read_pairs(view, batch, aligned, article_of, lookup, rows))
        rows += batch.input_ids.numel()
    return PairTable.joined(tables)


def _read_pairs(
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
