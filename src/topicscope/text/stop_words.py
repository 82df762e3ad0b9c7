"""Stop words of a language, in the form in which words are compared."""

import stopwordsiso

from topicscope.errors import InputError
from topicscope.text.words import normalise_word


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
