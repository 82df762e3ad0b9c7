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
from typing import Any, Literal, NamedTuple

from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.tokens.spelling import Spelling
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.text import Unit, WordSplitter, normalise_word, split_words

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

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, as they are stored."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"lost": dict(self.lost)}


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
    coverage = Coverage()
    if not units:
        return aligned, coverage
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
    for i, unit in enumerate(units):
        windows, counts = _align(
            unit,
            i,
            encoded["input_ids"][i],
            encoded["offset_mapping"][i],
            encoded["special_tokens_mask"][i],
            spelling,
            splitter,
            max_length,
            merge=pieces == "merge",
        )
        aligned += windows
        coverage += counts
    return aligned, coverage


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
                    reason = "pieces" if token is None else spelling.fault(token, word)
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


def _align(
    unit: Unit,
    index: int,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    special: Sequence[int],
    spelling: Spelling,
    splitter: WordSplitter,
    max_length: int,
    *,
    merge: bool,
) -> tuple[list[AlignedUnit], Coverage]:
    content = [i for i, flag in enumerate(special) if not flag]
    words = splitter(unit.text)
    lost: Counter[str] = Counter()
    if not content:
        lost["unknown"] += len(words)
        return [], Coverage(units=1, empty_units=1, words=len(words), lost=_by_reason(lost))
    first, last = content[0], content[-1] + 1
    before, after = tuple(ids[:first]), tuple(ids[last:])
    body, spans = ids[first:last], [_trimmed(unit.text, *span) for span in offsets[first:last]]
    room = max_length - len(before) - len(after)
    if room < 1:
        raise InputError(
            "the model's window has no room for a word",
            received=f"a window of {max_length} tokens, {len(before) + len(after)} of them special",
            expected="a window of hundreds of tokens",
            advice="check the tokenizer's model_max_length",
        )
    at: list[str | None] = [None] * len(body)
    # The word that each token touches, so that no window is cut through it.
    touched: list[int | None] = [None] * len(body)
    for number, (word, tokens) in enumerate(zip(words, _overlapping(words, spans), strict=True)):
        for token in tokens:
            touched[token] = number
        reason = _fault(word, tokens, body, spans, spelling, most=room if merge else 1)
        if reason is None:
            at[tokens[0]] = normalise_word(word.text)
            for token in tokens[1:]:
                at[token] = LATER_PIECE
        else:
            lost[reason] += 1
    windows = [
        AlignedUnit(
            document_id=unit.document_id,
            unit=index,
            window=number,
            input_ids=(*before, *body[start:end], *after),
            words=(*[None] * len(before), *at[start:end], *[None] * len(after)),
        )
        for number, (start, end) in enumerate(_windows(touched, room))
    ]
    counts = Coverage(
        units=1,
        split_units=int(len(windows) > 1),
        windows=len(windows),
        tokens=sum(len(window.input_ids) for window in windows),
        words=len(words),
        found=len(words) - sum(lost.values()),
        lost=_by_reason(lost),
    )
    return windows, counts


def _fault(
    word: Any,
    tokens: Sequence[int],
    body: Sequence[int],
    spans: Sequence[tuple[int, int]],
    spelling: Spelling,
    *,
    most: int,
) -> str | None:
    """Why the tokens that touch a word are not the word, or None; most: of how many tokens a word may be."""
    if not tokens:
        return "unknown"  # the tokenizer's normaliser removed it
    if len(tokens) > most:
        return "pieces"
    ids = tuple(body[token] for token in tokens)
    inside = spans[tokens[0]][0] >= word.start and spans[tokens[-1]][1] <= word.end
    if not inside and ids != (spelling.unknown,):
        return "merged"
    # The span may also be shorter, where the normaliser removed a mark at the end; the spelling decides.
    return spelling.fault(ids[0], word.text) if len(ids) == 1 else spelling.fault_of_several(ids, word.text)


def _overlapping(words: Sequence[Any], spans: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
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


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A token's span without the space in front, which byte-level tokenizers count in and others do not."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _windows(touched: Sequence[int | None], room: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `room` tokens that cover all, each as long as it can be without cutting a word."""
    start = 0
    while start < len(touched):
        end = min(start + room, len(touched))
        cut = end
        while start < cut < len(touched) and touched[cut] is not None and touched[cut] == touched[cut - 1]:
            cut -= 1
        end = cut if cut > start else end
        yield start, end
        start = end


def _by_reason(lost: Mapping[str, int]) -> dict[str, int]:
    return {reason: lost.get(reason, 0) for reason in LOST_REASONS}
