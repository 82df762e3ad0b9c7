"""Vocabulary: the only converter between words, word indices and token ids of the laboratory models.

Token ids: [MASK] = 0, words 1..V, START = V+1, END = V+2, PAD = V+3. Word indices: 0..V-1 = token id - 1.
The two are distinct types, since mixing them up is the fault that shifted every topic in the paper's released code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NewType

from topicscope.errors import InputError

TokenId = NewType("TokenId", int)
WordIndex = NewType("WordIndex", int)

MASK = TokenId(0)


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of distinct words.

    Raises:
        InputError: no word, an empty word, or a word that stands twice.
    """

    words: tuple[str, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {word: i for i, word in enumerate(self.words)}
        if not self.words or "" in index:
            raise InputError("a vocabulary needs words", received=self.words[:5], expected="non-empty words")
        if len(index) != len(self.words):
            seen: set[str] = set()
            twice = [word for word in self.words if word in seen or seen.add(word)]  # type: ignore[func-returns-value]
            raise InputError("a word stands twice in the vocabulary", received=twice[:5])
        object.__setattr__(self, "_index", index)

    @classmethod
    def numbered(cls, size: int) -> "Vocabulary":
        """w1 … wV, the words of a synthetic topic model."""
        return cls(tuple(f"w{i}" for i in range(1, size + 1)))

    @classmethod
    def of(cls, words: Sequence[str]) -> "Vocabulary":
        """From any sequence of words."""
        return cls(tuple(words))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def index(self, word: str) -> WordIndex | None:
        """The word's index, or None for an unknown word."""
        found = self._index.get(word)
        return None if found is None else WordIndex(found)

    def token_id(self, index: WordIndex) -> TokenId:
        """Word index to token id."""
        return TokenId(index + 1)

    def word_index(self, token: TokenId) -> WordIndex | None:
        """Token id to word index; None for the special tokens."""
        return WordIndex(token - 1) if 1 <= token <= len(self.words) else None

    @property
    def start(self) -> TokenId:
        """START."""
        return TokenId(len(self.words) + 1)

    @property
    def end(self) -> TokenId:
        """END."""
        return TokenId(len(self.words) + 2)

    @property
    def pad(self) -> TokenId:
        """PAD."""
        return TokenId(len(self.words) + 3)

    @property
    def num_tokens(self) -> int:
        """Words plus the four special tokens."""
        return len(self.words) + 4
