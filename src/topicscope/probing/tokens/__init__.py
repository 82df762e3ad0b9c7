"""From words to tokens: alignment of a tokenizer with words, the token cache, batches."""

from topicscope.probing.tokens.alignment import (
    LATER_PIECE,
    AlignedUnit,
    Coverage,
    TokenForm,
    align_units,
    word_token_ids,
)
from topicscope.probing.tokens.batches import (
    CPU_TOKENS,
    LATER,
    Batch,
    TokenWindows,
    make_batches,
    tokens_at_once,
)
from topicscope.probing.tokens.cache import Aligner, TokenCache, build_tokens, cache_key, tokens_of

__all__ = [
    "CPU_TOKENS",
    "LATER",
    "LATER_PIECE",
    "AlignedUnit",
    "Aligner",
    "Batch",
    "Coverage",
    "TokenCache",
    "TokenForm",
    "TokenWindows",
    "align_units",
    "build_tokens",
    "cache_key",
    "make_batches",
    "tokens_at_once",
    "tokens_of",
    "word_token_ids",
]
