"""What tokens spell, and what a tokenizer's own normaliser makes of a word."""

from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError


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
        backend = tokenizer.backend_tokenizer
        self.unknown = tokenizer.unk_token_id
        self._normaliser = backend.normalizer
        self.token = lru_cache(maxsize=None)(lambda token_id: backend.decode([token_id], False).strip())
        self.tokens = lru_cache(maxsize=100_000)(lambda ids: backend.decode(list(ids), False).strip())
        self.word = lru_cache(maxsize=100_000)(self._normalised)

    def _normalised(self, word: str) -> str:
        text = word if self._normaliser is None else self._normaliser.normalize_str(word)
        return str(text).replace("▁", " ").strip()

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
