"""Attention between pairs of words, as the claims that look at single pairs share it: of trained models on their own
documents, and of MiniLM on Wikipedia, beside embeddings and how often two words meet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse

from topicscope.claims.claim import Context
from topicscope.demo import INSTALL, minilm_folder
from topicscope.errors import InputError
from topicscope.experiments import demo_versions
from topicscope.lab import (
    HeldOut,
    Start,
    TopicTransformer,
    attention_scores,
    held_out,
    law_of,
    make_recipe,
    topic_model_of,
)
from topicscope.probing.attention import Configuration, PairReader, PairTable, TopicLookup
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.tokens import AlignedUnit, align_units, word_token_ids
from topicscope.progress import Progress, tracked
from topicscope.records import RunRecord
from topicscope.text import Corpus, Unit, UnitReader, load_stop_words, normalise_word, split_words, wikipedia_sample
from topicscope.topics import (
    NO_PAIR,
    CorpusPassages,
    Overlap,
    PairClass,
    Positions,
    Topics,
    assign_words,
    classify_pairs,
    fit,
)


def read_pairs(view: ModelView, corpus: Corpus, words: Sequence[str], passages: int, progress: Progress) -> PairTable:
    """Every pair of these words in a sample of passages, whatever topics they have; query and key are indices of them.

    attention: of the first part of the model, A_ij · L/100 (Knowl 8), the mean over all layers and heads.
    """
    units, articles = _aligned(view, UnitReader(corpus, "passage").sample(passages))
    known = frozenset(words)
    units = [replace(unit, words=tuple(word if word in known else None for word in unit.words)) for unit in units]
    reader, part = PairReader(view, units, articles, TopicLookup.without_topics(words)), view.parts[0]
    task, tables = f"reading with {view.name}", []
    with tracked(progress, task, len(reader), "batches"):
        for batch in reader.read(view):
            pairs = batch[part.name]
            attention = sum(pairs.attention.T) / part.num_layers * pairs.length / 100
            tables.append(replace(pairs, attention=attention[:, None]))
            progress.update(task, len(tables))
    return PairTable.joined(tables)


def _aligned(view: ModelView, units: Sequence[Unit]) -> tuple[list[AlignedUnit], np.ndarray]:
    """Units in the model's tokens, and the number of each one's article."""
    aligned, _ = align_units(view.tokenizer, units, max_length=view.max_length)
    articles = {name: i for i, name in enumerate(dict.fromkeys(unit.document_id for unit in aligned))}
    return list(aligned), np.array([articles[unit.document_id] for unit in aligned])


def cooccurrence(passages: Sequence[str], words: Sequence[str]) -> sparse.csr_matrix:
    """[word, word]: passages that hold both words; on the diagonal those that hold the word, once or more."""
    place = {word: i for i, word in enumerate(words)}
    rows = [{place.get(normalise_word(word.text), -1) for word in split_words(text)} - {-1} for text in passages]
    pointers = np.cumsum([0, *map(len, rows)])
    columns = np.fromiter((i for row in rows for i in sorted(row)), dtype=np.int64, count=int(pointers[-1]))
    table = sparse.csr_matrix((np.ones(len(columns)), columns, pointers), shape=(len(rows), len(words)))
    return (table.T @ table).tocsr()


def together(counts: sparse.csr_matrix, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """float64 [pair]: passages that hold both words of each pair."""
    return np.asarray(counts[query, key], dtype=np.float64).ravel()


@dataclass(frozen=True, eq=False)
class Sample:
    """What the claims about real text share.

    topics: one fit a topic seed, all of one vocabulary, `words`. pairs: see `read_pairs`. cooccurrence, half: of
    all passages, and of every second one. vectors [word, d]: rows of the input embedding matrix, NaN where a word is
    not one token of the model.
    """

    view: ModelView
    topics: tuple[Topics, ...]
    words: tuple[str, ...]
    pairs: PairTable
    cooccurrence: sparse.csr_matrix
    half: sparse.csr_matrix
    vectors: np.ndarray

    def membership(self, topics: Topics, threshold: float, overlap: Overlap = "drop") -> np.ndarray:
        """bool [word topic]: the words of each topic's list; "drop" (Knowl 8): words of several lists have no topic."""
        assignment = assign_words(topics, threshold, stop_words=load_stop_words("en"), overlap=overlap)
        return np.asarray(assignment.membership(self.words))


def unit_vectors(vectors: np.ndarray, membership: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words [word] that have a topic and a vector, and these vectors at length 1."""
    words = np.flatnonzero(membership.any(axis=1) & np.isfinite(vectors).all(axis=1))
    return words, vectors[words] / np.linalg.norm(vectors[words], axis=1, keepdims=True)


# What claims that call `wikipedia` say they share.
WIKIPEDIA = "wikipedia"
NOT_HERE = f"not installed: {INSTALL}"
# The paper's number of topics.
TOPICS = 100
# Gibbs sweeps, and passages that the model reads, in full and quick. Topics of 50 sweeps differ so much from fit to fit
# that the quick interval of `co-occurrence` for text is as wide as the effect, whatever the number of passages.
FULL, QUICK = (300, 1500), (50, 300)


def demo_inputs(_context: Context) -> str:
    """For `Claim.inputs`: which packages bring MiniLM and its text; what was missing may be here next time."""
    return demo_versions()


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
    counts, half = (cooccurrence(read, words) for read in (passages, passages[::2]))
    return Sample(view, topics, words, pairs, counts, half, vectors)


@dataclass(frozen=True, eq=False)
class Documents:
    """Held-out documents of a run's law, the same for all seeds, and what every pair of their positions is.

    words int64 [document position]: word index, -1 where there is none. classes [document query key]: `PairClass`, or
    -1 where two positions make no pair. length int64 [document].
    """

    words: np.ndarray
    classes: np.ndarray
    length: np.ndarray


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


PLAIN_DOCUMENTS = 1000  # on which the attention of a trained model is read, from its scores


def word_scores(record: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Attention scores [seed query key] between words, and how often plain documents of the run's law hold each word.

    counts: float64 [document word], the same documents for all seeds.
    """
    recipe = make_recipe(record.config)
    topic_model = topic_model_of(recipe)
    words = len(topic_model.vocabulary)
    drawn = law_of(recipe, topic_model).draw(np.random.default_rng(0), PLAIN_DOCUMENTS)
    counts = np.zeros((PLAIN_DOCUMENTS, words))
    np.add.at(counts, (drawn.owner(), drawn.words - 1), 1)
    return attention_scores(record.weights)[:, 1 : words + 1, 1 : words + 1], counts


def pair_tables(record: RunRecord) -> Iterator[PairTable]:
    """Every pair of words of the documents, for each seed, with the attention averaged over layers and heads."""
    for documents, attention in attention_of(record):
        document, query, key = np.nonzero(documents.classes != NO_PAIR)
        words, size = documents.words, documents.words.shape[1]
        yield PairTable(
            document=document,
            row=document * size + query,
            query=words[document, query],
            key=words[document, key],
            pair_class=documents.classes[document, query, key],
            distance=np.abs(query - key),
            length=documents.length[document],
            rank=query + 1,
            attention=attention.mean(axis=(0, 2))[document, query, key][:, None],
        )


_CLASSES = (PairClass.same_word, PairClass.same_topic, PairClass.different_topic)


def pretrained_pairs(
    view: ModelView, corpus: Corpus, progress: Progress, *, read: int, fitted: int = 1000, threshold: float = 0.01
) -> PairTable:
    """Every pair of words that have a topic, read within passages by the first part of the model.

    read: how many passages the model reads, of `fitted`, drawn at random, that 20 topics are fitted to; threshold: θ of
    Knowl 8. `attention` has one map a layer and head, and a last one for their mean. Documents are articles.
    """
    units = UnitReader(corpus, "passage").sample(fitted)
    topics = fit([unit.text for unit in units], 20, sweeps=100, progress=progress)
    assignment = assign_words(topics, threshold, stop_words=load_stop_words("en"))
    aligned, articles = _aligned(view, units[:: max(1, len(units) // read)][:read])
    lookup = TopicLookup(
        [Configuration(threshold, 0, assignment)],
        [word for unit in aligned for word in unit.words if word is not None],
    )
    reader = PairReader(view, aligned, articles, lookup, _CLASSES)
    pairs = PairTable.joined([batch[view.parts[0].name] for batch in reader.read(view, heads=True)])
    mean = pairs.attention.mean(axis=1, keepdims=True)
    return replace(pairs, attention=np.concatenate([pairs.attention, mean], axis=1))
