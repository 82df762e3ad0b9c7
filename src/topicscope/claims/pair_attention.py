"""Pairs of words of the Wikipedia sample: MiniLM's attention and embeddings, and how often the words meet.

One pass of the model serves all topics: every pair of words of the topic models' vocabulary is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from topicscope.claims.context import Context
from topicscope.demo import INSTALL, minilm_folder
from topicscope.errors import InputError
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.tokens import AlignedUnit, Batch, align_units, make_batches, word_token_ids
from topicscope.progress import Progress, tracked
from topicscope.text import Corpus, normalise_word, sample_units, split_words, wikipedia_sample
from topicscope.topics import CorpusPassages, Topics, fit


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
