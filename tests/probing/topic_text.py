"""Text drawn from a topic model whose topics are known: T topics of v words, τ topics in a document of N words.

A word's place says nothing (every order is as likely), so that only topics can be learned from it.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

import tiny


def words_of(num_topics: int, words_per_topic: int) -> list[list[str]]:
    """Made-up words [topic][word] such as "badu", which no stop list knows."""
    made = ("".join(syllables) for syllables in product(("ba", "de", "fi", "go", "ku", "lo", "mi"), repeat=3))
    return [[next(made) for _ in range(words_per_topic)] for _ in range(num_topics)]


def documents(
    number: int, length: int, *, topics: Sequence[Sequence[str]], per_document: int, seed: int
) -> list[list[str]]:
    """Words of each document: every word from one of `per_document` topics, drawn evenly."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        chosen = rng.choice(len(topics), per_document, replace=False)
        picks = zip(rng.choice(chosen, length), rng.integers(len(topics[0]), size=length), strict=True)
        found.append([topics[t][w] for t, w in picks])
    return found


def word_list(topics: Sequence[Sequence[str]], path: Path) -> Path:
    """The labelled word list of the topics, as `--topics` reads it."""
    rows = [f"{word},topic-{t}" for t, words in enumerate(topics) for word in words]
    path.write_text("\n".join(["word,topic", *rows]) + "\n", encoding="utf-8")
    return path


def tokenizer(family: str, topics: Sequence[Sequence[str]], window: int) -> PreTrainedTokenizerFast:
    """The family's tokenizer, which knows every word as one token."""
    found = tiny.tokenizer_for(family, [word for words in topics for word in words])
    found.model_max_length = window
    return found
