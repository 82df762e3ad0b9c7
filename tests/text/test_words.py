import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicscope.text import Word, WordLengths, normalise_word, split_words


def texts(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


def slow_words(text: str) -> list[Word]:
    """A twin, character by character, for text without apostrophes and invisible joiners."""
    found, start = [], None
    for i in range(len(text) + 1):
        kind = unicodedata.category(text[i]) if i < len(text) else "Zs"
        inside = kind[0] in "LM" if start is not None else kind[0] == "L"
        if inside and start is None:
            start = i
        elif not inside and start is not None:
            before = text[start - 1] if start else " "
            touches = [c for c in (before, text[i : i + 1]) if c]
            if not any(c == "_" or unicodedata.category(c)[0] in "NM" for c in touches):
                found.append(Word(text[start:i], start, i))
            start = None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick, brown fox.", ["The", "quick", "brown", "fox"]),
        ("I don't know what they'll do", ["I", "don't", "know", "what", "they'll", "do"]),
        ("the king's men and the kings' horses", ["the", "king", "men", "and", "the", "kings", "horses"]),
        ("the king’s crown; don’t", ["the", "king", "crown", "don’t"]),
        ("L'homme qu'il a vu aujourd'hui", ["L", "homme", "qu", "il", "a", "vu", "aujourd'hui"]),
        ("a well-known state-of-the-art", ["a", "well", "known", "state", "of", "the", "art"]),
        ("H2O in the 1990s, 3rd of 42 COVID-19 cases", ["in", "the", "of", "COVID", "cases"]),
        ("snake_case __init__ café cafe\u0301", ["café", "cafe\u0301"]),
        ("Ελλάδα Россия हिन्दी", ["Ελλάδα", "Россия", "हिन्दी"]),
        ("می\u200cخواهم soft\u00adhyphen", ["می\u200cخواهم", "soft\u00adhyphen"]),
        ("O'Brien 'quoted' rock'n'roll", ["O", "Brien", "quoted", "rock'n", "roll"]),
        ("", []),
        ("1234 --- ''", []),
    ],
)
def test_words_of_many_kinds(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@given(st.text())
def test_spans_index_the_text_and_do_not_overlap(text: str) -> None:
    end = 0
    for word in split_words(text):
        assert end <= word.start < word.end
        assert text[word.start : word.end] == word.text
        end = word.end


ALPHABET = "abzÉß_19-., \n²Ⅷ语ก\u0301あ🙂"


@given(st.text(alphabet=ALPHABET, max_size=40))
def test_the_regular_expression_is_the_slow_scanner(text: str) -> None:
    assert split_words(text) == slow_words(text)


@given(st.text())
def test_normalising_is_the_same_for_plain_letters(text: str) -> None:
    """The short way for ASCII against the long one, which a letter beyond ASCII forces."""
    assert normalise_word(f"{text}ж") == f"{normalise_word(text)}ж" or not text.isascii()


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_word(text)
    assert normalise_word(once) == once


def test_spellings_of_one_word_are_one() -> None:
    assert normalise_word("Cafe\u0301") == normalise_word("CAFÉ") == "café"
    assert normalise_word("Don’t") == "don't"
    assert normalise_word("soft\u00adhyphen") == "softhyphen"
    assert normalise_word("Straße") != normalise_word("Strasse")


CHINESE = "变压器语言模型学习主题结构，同一主题的词互相注意。这是维基百科的一个条目，讲述注意力机制的历史。"


def long_words_warning(words: list[Word]) -> str | None:
    lengths = WordLengths()
    lengths.add(words)
    return lengths.warning()


def by_two(text: str) -> list[Word]:
    """A stand-in for a segmenter of Chinese."""
    return [Word(text[i : i + 2], i, i + 2) for i in range(0, len(text) - 1, 2)]


def test_symptom_26_text_without_spaces_is_warned_about() -> None:
    warning = long_words_warning(split_words(CHINESE))
    assert warning is not None
    assert "word splitter" in warning
    assert long_words_warning(by_two(CHINESE)) is None


@pytest.mark.parametrize(
    "text",
    [
        "The transformer learns which words belong to one topic.",
        "Donaudampfschifffahrtsgesellschaft ist ein langes Wort in einem sonst gewöhnlichen deutschen Satz.",
        "",
    ],
)
def test_ordinary_text_is_not_warned_about(text: str) -> None:
    assert long_words_warning(split_words(text)) is None


def test_joined_words_are_warned_about() -> None:
    assert long_words_warning(split_words("thisisawholesentence withoutproperspaces")) is not None
