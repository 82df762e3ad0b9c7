"""Words of a text with their places, and the warning when a text has no words that spaces could show.

Stop words of a language, in the form in which words are compared.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import regex
import stopwordsiso

from topicscope.errors import InputError


def load_stop_words(language: str) -> frozenset[str]:
    """The stop words of `language` (ISO 639-1 code, such as "en"), from the stopwords-iso lists, normalised.

    Raises:
        InputError: no list for this language; the message names those there are.
    """
    known = stopwordsiso.langs()
    if language not in known:
        raise InputError(
            "no stop words for this language",
            received=language,
            expected=f"one of {', '.join(sorted(known))}",
            advice="give the code of a listed language, or your own collection of stop words (Python: stop_words=...)",
        )
    return frozenset(normalise_word(word) for word in stopwordsiso.stopwords(language))


class Word(NamedTuple):
    """One word: `text[start:end]` of the text it was found in, unchanged."""

    text: str
    start: int
    end: int


WordSplitter = Callable[[str], list[Word]]

# A run of letters, marks and the invisible joiners that some scripts and typesetters put inside a word.
_RUN = r"\p{L}[\p{L}\p{M}\u200c\u200d\u00ad]*+"
_LETTER = r"[\p{L}\p{M}]"
_WORD = regex.compile(
    rf"""
    (?<![\p{{L}}\p{{M}}\p{{N}}_])                    # starts where no letter or digit stands before it
    (?!(?<={_LETTER}['’])[sS](?!{_LETTER}))          # the s of king's is no word
    {_RUN}
    (?:                                              # don't is one word; but
        (?<={_LETTER}{{2}}) (?<![qQ][uU])            # the elisions l'homme and qu'il are two
        ['’] (?![sS](?!{_LETTER})) {_RUN}            # and king's is king
    )*+
    (?![\p{{N}}_])                                   # H2O, 3rd and 1990s are codes, not words
    """,
    regex.VERBOSE,
)
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]",
)
LONG_WORD = 15.0
# Words cut by a segmenter of Chinese, Japanese or Thai are two to four characters long.
UNSPACED_WORD = 5.0


def split_words(text: str) -> list[Word]:
    """The words of a text: maximal runs of letters (and their marks) that touch no digit.

    An inner apostrophe joins (don't), unless it marks an elision (l'homme is l, homme) or a possessive (king's is
    king, so that the word is the one a tokenizer and a topic model know). A hyphen separates (well-known is well,
    known), as it does in every tokenizer of the BERT family. Spans index `text` as given.
    """
    return [Word(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]


def normalise_word(text: str) -> str:
    """The form under which words are compared: lower case, composed (NFC), plain apostrophe, no soft hyphen."""
    if text.isascii():  # nothing to compose or to replace; a word list may have a million
        return text.lower()
    plain = text.replace("’", "'").replace("\u00ad", "")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", plain).lower())


@dataclass
class WordLengths:
    """Watches the lengths of words as they stream by, for the warning of a text that spaces do not split."""

    words: int = 0
    characters: int = 0
    unspaced: int = 0

    def add(self, words: Iterable[Word]) -> None:
        """Count some words."""
        for word in words:
            self.words += 1
            self.characters += word.end - word.start
            self.unspaced += not word.text.isascii() and _UNSPACED.search(word.text) is not None

    def warning(self) -> str | None:
        """What to tell the user, or None when the words look like words.

        Said when the mean length is above 15 characters, or when a tenth of the words is in a script written
        without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) and longer than such words are.
        """
        if not self.words:
            return None
        mean = self.characters / self.words
        if mean > LONG_WORD:
            found = f"words are {mean:.1f} characters long on average"
        elif self.unspaced > 0.1 * self.words and mean > UNSPACED_WORD:
            found = f"{self.unspaced} of {self.words} words are in a script written without spaces"
        else:
            return None
        return (
            f"{found}: spaces do not seem to separate the words of this text, so topics and pairs of words would mean "
            "little. Pass a word splitter for the language, a function text -> list[Word] "
            "(for example around jieba, fugashi or pythainlp)."
        )
