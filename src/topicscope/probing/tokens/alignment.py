"""Which of a model's tokens are whole words of the text, found by the character spans of its fast tokenizer.

A word counts only where one token is the whole word and nothing else, or, where pieces are merged, several tokens are.
Everything that is lost is counted by reason:

- pieces: the tokenizer breaks the word into several tokens (or the token continues a longer one);
- merged: one token holds the word and more;
- unknown: the tokenizer has no token for the word;
- drift: the token at the word's place spells something else (offsets shifted by accents or emoji), so that its
  place cannot be trusted.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Literal, NamedTuple

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.text import Unit, Word, WordSplitter, normalise_word, split_words

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
        normalise = str if backend.normalizer is None else backend.normalizer.normalize_str
        self.unknown = tokenizer.unk_token_id
        self.tokens = lru_cache(maxsize=200_000)(lambda ids: backend.decode(list(ids), False).strip())
        self.word = lru_cache(maxsize=100_000)(lambda word: normalise(word).replace("▁", " ").strip())

    def single_tokens(self, words: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        """The one token that each word is, with a space in front and bare; None where it is several, or none."""
        # Sets truncation, padding and special tokens of the backend as for one word alone.
        self._tokenizer.encode("", add_special_tokens=False, split_special_tokens=True)
        backend = self._tokenizer.backend_tokenizer
        splits_as_bert = (  # at spaces and punctuation alone, and no words were added
            isinstance(backend.pre_tokenizer, BertPreTokenizer)
            and isinstance(backend.normalizer, BertNormalizer)
            and all(token.special for token in backend.get_added_tokens_decoder().values())
        )
        if splits_as_bert:
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

    def fault(self, token_ids: tuple[int, ...], word: str) -> str | None:
        """Why the tokens together are not the word, or None where they are."""
        if self.unknown in token_ids:
            return "unknown"
        spelled = self.tokens(token_ids)
        if spelled == self.word(word):
            return None
        return "pieces" if len(token_ids) == 1 and spelled.startswith("##") else "drift"


LOST_REASONS = ("pieces", "merged", "unknown", "drift")
# Stands in `AlignedUnit.words` at the second and every later token of a word of several tokens.
LATER_PIECE = ""
WORDS_PER_BLOCK = 16_384
_PIECES = [None, None]


@dataclass(frozen=True)
class AlignedUnit:
    """What the model reads of one unit (or of one window of it) and where its words are.

    input_ids [position]: token ids, special tokens included.
    words [position]: the normalised word where the token is exactly one whole word; None at special tokens,
        punctuation, digits and pieces of words. Where pieces are merged, the word stands at its first token and
        `LATER_PIECE` at its others.
    unit: index of the unit in the sequence that was aligned; window: 0, or the number of the window in a long unit.
    """

    document_id: str
    unit: int
    window: int
    input_ids: tuple[int, ...]
    words: tuple[str | None, ...]


@dataclass(frozen=True)
class Coverage:
    """How much of the text the model's tokens cover; `a + b` merges two parts of a corpus.

    units: units given; empty_units: those without a single token, left out; split_units: those longer than the
    window; windows: what the model reads. tokens: tokens read, special tokens included. words: words of the text;
    found: those that are one token; lost: the others by reason, so that words = found + Σ lost.
    """

    units: int = 0
    empty_units: int = 0
    split_units: int = 0
    windows: int = 0
    tokens: int = 0
    words: int = 0
    found: int = 0
    lost: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(LOST_REASONS, 0))

    def __add__(self, other: "Coverage") -> "Coverage":
        numbers = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "lost"}
        return Coverage(**numbers, lost={reason: self.lost[reason] + other.lost[reason] for reason in LOST_REASONS})


class TokenForm(NamedTuple):
    """The row of the embedding matrix that stands for a word; form says whether its token begins with a space."""

    token_id: int
    form: Literal["bare", "spaced"]


@dataclass(frozen=True)
class WordTokens:
    """Words that are one token each, and how many are not, by reason (`pieces`, `unknown`, `drift`, `same_token`).

    `same_token`: another word of the list has that token already (café and cafe where accents are stripped).
    """

    found: Mapping[str, TokenForm]
    lost: Mapping[str, int]


def align_units(
    tokenizer: PreTrainedTokenizerBase,
    units: Sequence[Unit],
    *,
    max_length: int,
    splitter: WordSplitter = split_words,
    pieces: Literal["skip", "merge"] = "skip",
) -> tuple[list[AlignedUnit], Coverage]:
    """Tokenise units and find their words, in the order of the units.

    pieces: what becomes of words of several tokens. They are lost ("skip", the paper's way), or count as one word.

    A unit longer than `max_length` tokens (specials included) becomes several windows, cut between words, and
    through a word only where that word alone is longer than a window. Each window gets the special tokens. Text that
    looks like a special token ("[SEP]") is tokenised as ordinary text.

    Raises:
        InputError: a slow tokenizer, which knows no character spans, or a window that special tokens fill.
    """
    spelling = Spelling(tokenizer)
    aligned: list[AlignedUnit] = []
    if not units:
        return aligned, Coverage()
    encoded = tokenizer(
        [unit.text for unit in units],
        add_special_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_attention_mask=False,
        split_special_tokens=True,
        padding=False,
        truncation=False,
        verbose=False,
    )
    lost: Counter[str] = Counter()
    words = empty = split = 0
    for i, unit in enumerate(units):
        found = splitter(unit.text)
        words += len(found)

        # What special tokens stand around, and the spans of the others without the spaces around them, which byte-level
        # tokenizers count in and others do not.
        ids, offsets, special = (encoded[name][i] for name in ("input_ids", "offset_mapping", "special_tokens_mask"))
        content = [place for place, flag in enumerate(special) if not flag]
        if not content:
            lost["unknown"] += len(found)
            empty += 1
            continue
        first, last = content[0], content[-1] + 1
        before, body, after = ids[:first], ids[first:last], ids[last:]
        room = max_length - len(before) - len(after)
        if room < 1:
            raise InputError(
                "the model's window has no room for a word",
                received=f"a window of {max_length} tokens, {len(before) + len(after)} of them special",
                expected="a window of hundreds of tokens",
                advice="check the tokenizer's model_max_length",
            )
        spans = []
        for start, end in offsets[first:last]:
            piece = unit.text[start:end]
            begin = start + len(piece) - len(piece.lstrip())
            spans.append((begin, begin + len(piece.strip())))

        # The word at each token, and the word that each token touches, so that no window is cut through it.
        at: list[str | None] = [None] * len(body)
        touched: list[int | None] = [None] * len(body)
        for number, (word, tokens) in enumerate(zip(found, _overlapping(found, spans), strict=True)):
            for token in tokens:
                touched[token] = number
            word_ids = tuple(body[token] for token in tokens)
            if not tokens:
                reason: str | None = "unknown"  # the tokenizer's normaliser removed it
            elif len(tokens) > (room if pieces == "merge" else 1):
                reason = "pieces"
            elif word_ids != (spelling.unknown,) and (
                spans[tokens[0]][0] < word.start or spans[tokens[-1]][1] > word.end
            ):
                reason = "merged"
            else:
                # The span may also be shorter, where the normaliser removed a mark at the end; the spelling decides.
                reason = spelling.fault(word_ids, word.text)
            if reason is None:
                at[tokens[0]] = normalise_word(word.text)
                for token in tokens[1:]:
                    at[token] = LATER_PIECE
            else:
                lost[reason] += 1

        # Windows of at most `room` tokens, each as long as it can be without cutting a word.
        start = window = 0
        while start < len(body):
            end = cut = min(start + room, len(body))
            while start < cut < len(body) and touched[cut] is not None and touched[cut] == touched[cut - 1]:
                cut -= 1
            end = cut if cut > start else end
            read = (*before, *body[start:end], *after)
            of_words = (*[None] * len(before), *at[start:end], *[None] * len(after))
            aligned.append(AlignedUnit(unit.document_id, i, window, read, of_words))
            start, window = end, window + 1
        split += window > 1
    return aligned, Coverage(
        units=len(units),
        empty_units=empty,
        split_units=split,
        windows=len(aligned),
        tokens=sum(len(window.input_ids) for window in aligned),
        words=words,
        found=words - lost.total(),
        lost={reason: lost[reason] for reason in LOST_REASONS},
    )


def word_token_ids(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], progress: Progress | None = None
) -> WordTokens:
    """The token of each word, for the comparison of embeddings.

    Where a tokenizer has two rows for a word, one with a leading space ("Ġthe") and one without ("the"), the spaced
    one is taken, since it is the one in running text; the form used is reported. The word passes through the
    tokenizer's own normaliser (case, accents) first. Words that are not exactly one token are counted as lost.

    Raises:
        InputError: a slow tokenizer.
    """
    spelling = Spelling(tokenizer)
    progress = SilentProgress() if progress is None else progress
    found: dict[str, TokenForm] = {}
    lost = dict.fromkeys(("pieces", "unknown", "drift", "same_token"), 0)
    taken: set[int] = set()
    distinct = list(dict.fromkeys(words))
    with tracked(progress, "look up words", len(distinct), "words"):
        for start in range(0, len(distinct), WORDS_PER_BLOCK):
            block = distinct[start : start + WORDS_PER_BLOCK]
            for word, *forms in zip(block, *spelling.single_tokens(block), strict=True):
                if forms == _PIECES:
                    lost["pieces"] += 1
                    continue
                reasons = []
                for token in forms:
                    reason = "pieces" if token is None else spelling.fault((token,), word)
                    if reason is None and token in taken:
                        reason = "same_token"
                    if reason is None:
                        assert token is not None
                        raw = str(tokenizer.convert_ids_to_tokens(token))
                        found[word] = TokenForm(token, "spaced" if raw.startswith(("Ġ", "▁")) else "bare")
                        taken.add(token)
                        break
                    reasons.append(reason)
                else:
                    lost[next((reason for reason in reasons if reason != "pieces"), "pieces")] += 1
            progress.update("look up words", start + len(block))
    return WordTokens(found, lost)


def _overlapping(words: Sequence[Word], spans: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """For each word the tokens that share a character with it; both are in the order of the text."""
    starts = [start for start, _ in spans]
    for word in words:
        # Byte-level tokens of one character share a span, so the first overlap is searched backwards.
        token = bisect_right(starts, word.start)
        while token > 0 and spans[token - 1][1] > word.start:
            token -= 1
        found = []
        while token < len(spans) and starts[token] < word.end:
            if spans[token][1] > word.start and spans[token][1] > starts[token]:
                found.append(token)
            token += 1
        yield found
