"""Which words' vectors are compared, and the vectors of a model at the places that need no text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32

from topicscope.probing.attention import Configuration
from topicscope.probing.hf import ModelView
from topicscope.probing.tokens import TokenForm, word_token_ids
from topicscope.progress import Progress

RANDOM_WORDS = 1000
FIRST_POSITION = 0
COOCCURRENCE = "cooccurrence"  # the place of vectors that are no model's


@dataclass(frozen=True, eq=False)
class WordVectors:
    """One vector for each of some words; `place` says whence. vectors: any float dtype."""

    place: str
    words: tuple[str, ...]
    vectors: Float[np.ndarray, "word d"]


@dataclass(frozen=True, eq=False)
class ComparedWords:
    """The words whose vectors are made, once for a model and all its random controls.

    words: those that have a topic under any configuration, then those of `random` that have none.
    random: words taken at random from the text, each as likely, whatever their topic: the baseline of anisotropy.
    tokens: the token of each word that is one token of the model.
    counts: occurrences in the text; empty where there is no text, and then there are no frequency bands.
    """

    words: tuple[str, ...]
    random: frozenset[str]
    tokens: Mapping[str, TokenForm]
    counts: Mapping[str, int]

    @classmethod
    def of(
        cls,
        view: ModelView,
        configurations: Sequence[Configuration],
        counts: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "ComparedWords":
        """Every word with a topic, and at most `RANDOM_WORDS` words of the text drawn with `seed`."""
        counts = {} if counts is None else counts
        in_text = sorted(word for word, count in counts.items() if count and word)
        draw = np.random.default_rng(seed).permutation(len(in_text))[:RANDOM_WORDS]
        random = [in_text[i] for i in draw.tolist()]
        words = tuple(dict.fromkeys([*(w for c in configurations for w in c.assignment.words), *random]))
        return cls(words, frozenset(random), word_token_ids(view.tokenizer, words, progress).found, counts)

    def frequencies(self, words: Sequence[str]) -> Float[np.ndarray, "word"] | None:
        """Occurrences of these words, 0 for one that the text does not have; None where there is no text."""
        return np.array([self.counts.get(word, 0) for word in words], dtype=np.float64) if self.counts else None


def static_vectors(view: ModelView, chosen: ComparedWords) -> list[WordVectors]:
    """The vectors of the words that are one token, at three places.

    raw: the row of the input embedding matrix.
    layer: the output of the embedding layer with every word at position 1, the first place that is a word's.
    layer_first: the same at position 0, where a special token stands in running text: a model gives that position a
        vector of its own, which can outweigh the words' (in MiniLM it is five times as long as the others).
    """
    words = tuple(word for word in chosen.words if word in chosen.tokens)
    if not words:
        return []
    ids = torch.tensor([chosen.tokens[word].token_id for word in words])
    places = {
        "raw": view.embedding_matrix()[ids],
        "layer": view.embedding_output(ids),
        "layer_first": view.embedding_output(ids, FIRST_POSITION),
    }
    return [WordVectors(place, words, _array(tensor)) for place, tensor in places.items()]


def _array(tensor: Float32[torch.Tensor, "word d"]) -> Float[np.ndarray, "word d"]:
    return np.asarray(tensor.detach().double().cpu().numpy())
