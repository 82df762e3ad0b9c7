"""What tokens spell, and what a tokenizer's own normaliser makes of a word."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError

_TEXTS_PER_CALL = 128


class Spelling:
    """Compares what tokens spell with a word as the tokenizer's own normaliser would write it.

    Raises:
        InputError: a slow tokenizer, which knows no character spans.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise InputError(
                "the tokenizer gives no character spans, so words cannot be found in its tokens",
                received=f"the slow {type(tokenizer).__name__}",
                expected="a fast tokenizer",
                advice="load it with AutoTokenizer.from_pretrained(…), or convert it to a tokenizer.json",
            )
        self._tokenizer = tokenizer
        backend = tokenizer.backend_tokenizer
        self.unknown = tokenizer.unk_token_id
        self._normaliser = backend.normalizer
        self.token = lru_cache(maxsize=None)(lambda token_id: backend.decode([token_id], False).strip())
        self.tokens = lru_cache(maxsize=100_000)(lambda ids: backend.decode(list(ids), False).strip())
        self.word = lru_cache(maxsize=100_000)(self._normalised)

    def _normalised(self, word: str) -> str:
        text = word if self._normaliser is None else self._normaliser.normalize_str(word)
        return str(text).replace("▁", " ").strip()

    def single_tokens(self, words: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        """The one token that each word is, with a space in front and bare; None where it is several, or none."""
        # Sets truncation, padding and special tokens of the backend as for one word alone.
        self._tokenizer.encode("", add_special_tokens=False, split_special_tokens=True)
        if self._splits_as_bert():
            # A space in front is dropped, so both forms are the same.
            rows = (words[i : i + _TEXTS_PER_CALL] for i in range(0, len(words), _TEXTS_PER_CALL))
            bare = [token for row in rows for token in self._single_of_bert(row)]
            return bare, bare
        return self._single([f" {word}" for word in words]), self._single(words)

    def _single(self, texts: Sequence[str]) -> list[int | None]:
        """The only token of each text.

        The tokenizer takes some texts in a row as "words" of one, each of which it encodes as if it stood alone; so
        the cost of a call, which is several times that of a word, is paid once for all of them.
        """
        rows = [texts[i : i + _TEXTS_PER_CALL] for i in range(0, len(texts), _TEXTS_PER_CALL)]
        found: list[int | None] = []
        encoded = self._tokenizer.backend_tokenizer.encode_batch(rows, is_pretokenized=True, add_special_tokens=False)
        for row, encoding in zip(rows, encoded, strict=True):
            ids: list[int | None] = [None] * len(row)
            tokens = Counter(encoding.word_ids)
            for text, token in zip(encoding.word_ids, encoding.ids, strict=True):
                if tokens[text] == 1:
                    ids[text] = token
            found += ids
        return found

    def _single_of_bert(self, words: Sequence[str]) -> list[int | None]:
        """`_single`, three times as fast: words are normalised together, and those of letters go to the model alone."""
        backend = self._tokenizer.backend_tokenizer
        normalised = backend.normalizer.normalize_str(" ".join(words)).split(" ")
        if len(normalised) != len(words):  # spaces inside a word, or that BERT puts around Chinese letters
            return self._single(words)
        found: list[int | None] = [None] * len(words)
        others = []
        for i, word in enumerate(normalised):
            if word.isalnum():  # nothing at which BERT splits
                tokens = backend.model.tokenize(word)
                found[i] = tokens[0].id if len(tokens) == 1 else None
            else:
                others.append(i)
        if others:
            for i, token in zip(others, self._single([words[i] for i in others]), strict=True):
                found[i] = token
        return found

    def _splits_as_bert(self) -> bool:
        """Whether text is split at spaces and punctuation alone, as BERT's tokenizer does, and no words were added."""
        backend = self._tokenizer.backend_tokenizer
        return (
            isinstance(backend.pre_tokenizer, BertPreTokenizer)
            and isinstance(backend.normalizer, BertNormalizer)
            and all(token.special for token in backend.get_added_tokens_decoder().values())
        )

    def fault(self, token_id: int, word: str) -> str | None:
        """Why the token is not the word, or None where it is."""
        if token_id == self.unknown:
            return "unknown"
        token = self.token(token_id)
        if token == self.word(word):
            return None
        return "pieces" if token.startswith("##") else "drift"

    def fault_of_several(self, token_ids: tuple[int, ...], word: str) -> str | None:
        """Why the tokens together are not the word, or None where they are."""
        if self.unknown in token_ids:
            return "unknown"
        return None if self.tokens(token_ids) == self.word(word) else "drift"
