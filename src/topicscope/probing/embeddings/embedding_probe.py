"""The embeddings of a probe: the model's own vectors, its states in context, co-occurrence, and random weights."""

import math

import numpy as np
import pandas as pd

from topicscope.probing.attention import TopicLookup
from topicscope.probing.config import ProbeOptions
from topicscope.probing.embeddings.block_map import embedding_map
from topicscope.probing.embeddings.contextual import contextual_vectors, require_states
from topicscope.probing.embeddings.cooccurrence_baseline import cooccurrence_vectors
from topicscope.probing.embeddings.embedding_table import embedding_rows, with_controls
from topicscope.probing.embeddings.vectors import ComparedWords, WordVectors, static_vectors
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import TokenCache
from topicscope.progress import Progress


class EmbeddingProbe:
    """Collects the similarities of the model and of each of its random initialisations.

    Raises:
        InputError: states in context of a model of which only attention is known.
    """

    def __init__(
        self, view: ModelView, tokens: TokenCache, lookup: TopicLookup, options: ProbeOptions, progress: Progress
    ) -> None:
        if options.contextual:
            require_states(view)
        self._tokens, self._options, self._progress = tokens, options, progress
        self._configurations = lookup.configurations
        counts = dict(zip(tokens.words, tokens.word_counts().tolist(), strict=True))
        self._chosen = ComparedWords.of(view, lookup.configurations, counts, seed=options.seed, progress=progress)
        self._measured = pd.DataFrame()
        self._controls: list[pd.DataFrame] = []

    def measure(self, view: ModelView, *, interrupted: bool) -> bool:
        """Take the model's vectors and those of co-occurrence; returns whether Ctrl-C was pressed, now or before.

        After Ctrl-C what needs the text is left out.
        """
        found: list[WordVectors] = []
        if not interrupted:
            try:
                baseline = cooccurrence_vectors(self._tokens, self._chosen.counts)
                found = [*self._states(view, "states in context"), *([] if baseline is None else [baseline])]
            except KeyboardInterrupt:
                interrupted = True
        self._measured = embedding_rows(view, self._configurations, self._chosen, found)
        return interrupted

    def add_control(self, view: ModelView, task: str, *, interrupted: bool) -> None:
        """Take the vectors of one random initialisation, unless Ctrl-C was pressed; here it is raised."""
        if interrupted:
            return
        states = self._states(view, f"{task}, states in context")
        self._controls.append(embedding_rows(view, self._configurations, self._chosen, states))

    def table(self) -> pd.DataFrame:
        """See `embedding_rows` and `with_controls`."""
        return with_controls(self._measured, self._controls)

    def block_map(self, view: ModelView, threshold: float) -> dict[str, np.ndarray]:
        """`embedding_map` of the input embedding matrix, for the first topic model at a threshold (NaN: a word list).

        Empty where no two words with a topic are one token each.
        """
        wanted = None if math.isnan(threshold) else threshold
        assignment = next(c for c in self._configurations if c.threshold == wanted).assignment
        vectors = static_vectors(view, self._chosen)
        if not vectors:
            return {}
        raw = vectors[0]
        return embedding_map(raw.words, raw.vectors, assignment.membership(raw.words), seed=self._options.seed)

    def _states(self, view: ModelView, task: str) -> list[WordVectors]:
        if not self._options.contextual:
            return []
        return contextual_vectors(
            view,
            self._tokens,
            self._chosen.words,
            layers=self._options.layers,
            batch_tokens=self._options.batch_tokens,
            task=task,
            progress=self._progress,
        )
