"""Words found in a model's tokens, against a slow twin that looks at every token for every word."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

import tiny
from topicscope.errors import InputError
from topicscope.probing.tokens import (
    AlignedUnit,
    Coverage,
    TokenForm,
    align_units,
    alignment,
    make_batches,
    word_token_ids,
)
from topicscope.probing.tokens import alignment as spelling_module
from topicscope.probing.tokens.alignment import Spelling, WordTokens
from topicscope.progress import SilentProgress
from topicscope.text import Unit, Word, normalise_word, split_words

TOKENIZERS = {"wordpiece": tiny.wordpiece(), "bytes": tiny.byte_bpe(), "unigram": tiny.unigram()}
GPT2 = tiny.byte_bpe(around=("", ""))
TEXT = "the river bank: the ship, (sails) the castle's king; a café and 3 castles on the moon."


def align(tokenizer: Any, *texts: str, max_length: int = 512) -> tuple[list[AlignedUnit], Coverage]:
    units = [Unit(f"d{i}", i, text) for i, text in enumerate(texts)]
    return align_units(tokenizer, units, max_length=max_length)


def words_of(tokenizer: Any, text: str) -> list[str]:
    (unit,), _ = align(tokenizer, text)
    return [word for word in unit.words if word is not None]


def slow_twin(tokenizer: Any, text: str) -> list[str]:
    """Every word with exactly one token that shares a character with it, if that token spells the word alone."""
    encoded = tokenizer(text, return_offsets_mapping=True, split_special_tokens=True)
    found = []
    for word in split_words(text):
        characters = set(range(word.start, word.end))
        touching = []
        for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            own = {i for i in range(start, end) if not text[i].isspace()}
            if own & characters:
                touching.append((token, own))
        if len(touching) != 1 or not touching[0][1] <= characters or touching[0][0] == tokenizer.unk_token_id:
            continue
        normaliser = tokenizer.backend_tokenizer.normalizer
        expected = normaliser.normalize_str(word.text) if normaliser else word.text
        raw = tokenizer.convert_ids_to_tokens(touching[0][0])
        if style(tokenizer) == "bytes":
            raw = tokenizer.convert_tokens_to_string([raw])
        if raw.replace("▁", "").strip() == expected.strip():
            found.append(normalise_word(word.text))
    return found


def style(tokenizer: Any) -> str:
    return next((name for name, known in TOKENIZERS.items() if known is tokenizer), "bytes")


# Words known and unknown, accents composed and decomposed, emoji, marks, text that looks like special tokens.
PIECES = [
    *("the", "river", "King", "castles", "café", "cafe\u0301", "CAFÉ", "naïve", "don't", "king's", "3rd", "well-snow"),
    *(
        " ",
        "  ",
        "\n",
        ".",
        ",",
        "(",
        ")",
        "'",
        "’",
        "🎹",
        "👩‍🚀",
        "e\u0301",
        "ß",
        "中文",
        "ﬁsh",
        "[SEP]",
        "<s>",
        "<pad>",
        "İ",
        "\u00ad",
    ),
]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
def test_fast_and_slow_alignment_agree_and_every_word_is_accounted_for(tokenizer: Any, pieces: list[str]) -> None:
    text = "".join(pieces)
    units, coverage = align(tokenizer, text)
    found = [word for unit in units for word in unit.words if word is not None]
    assert found == (slow_twin(tokenizer, text) if units else [])
    assert coverage.words == len(split_words(text)) == coverage.found + sum(coverage.lost.values())
    assert coverage.found == len(found)
    assert coverage.tokens == sum(len(unit.input_ids) for unit in units)
    assert coverage.windows == len(units)


def test_symptom_10_specials_and_punctuation_are_never_words() -> None:
    for tokenizer in TOKENIZERS.values():
        (unit,), _ = align(tokenizer, TEXT)
        for token, word in zip(tokenizer.convert_ids_to_tokens(unit.input_ids), unit.words, strict=True):
            if token in tokenizer.all_special_tokens or not any(c.isalpha() for c in token):
                assert word is None
        assert {"the", "river", "bank", "moon"} <= set(unit.words)


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_text_that_looks_like_a_special_token_is_ordinary_text(tokenizer: Any) -> None:
    special = tokenizer.all_special_tokens[0]
    (unit,), _ = align(tokenizer, f"the {special} river")
    ids = [tokenizer.convert_tokens_to_ids(t) for t in tokenizer.all_special_tokens]
    inside = [i for i in unit.input_ids[1:-1] if i in ids and i != tokenizer.unk_token_id]
    assert inside == []


def test_symptom_14_leading_spaces_in_the_offsets_of_byte_level_tokens() -> None:
    encoded = TOKENIZERS["bytes"]("the river", return_offsets_mapping=True)
    assert (3, 9) in encoded["offset_mapping"]  # the space belongs to the token's span
    assert words_of(TOKENIZERS["bytes"], "the river\n bank") == ["the", "river", "bank"]
    assert words_of(GPT2, "river") == ["river"]
    assert words_of(GPT2, "(river)") == ["river"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_symptom_15_accents_and_emoji_in_front_do_not_move_the_words(tokenizer: Any) -> None:
    text = "é 🎹 👩‍🚀 ﬁ e\u0301 the 🎹 river İ bank"
    assert [word for word in words_of(tokenizer, text) if word in tiny.WORDS] == ["the", "river", "bank"]


def test_symptom_15_a_token_that_spells_something_else_is_dropped_and_counted() -> None:
    tokenizer = copy.deepcopy(TOKENIZERS["wordpiece"])
    call = type(tokenizer).__call__

    class Drifting(type(tokenizer)):  # type: ignore[misc]
        """Offsets as a tokenizer gives them that forgot a character somewhere: the spans of two words change places."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            encoded = call(self, *args, **kwargs)
            spans = encoded["offset_mapping"][0]
            spans[2], spans[3] = spans[3], spans[2]
            spans[2:4] = sorted(spans[2:4])
            ids = encoded["input_ids"][0]
            ids[2], ids[3] = ids[3], ids[2]
            return encoded

    tokenizer.__class__ = Drifting
    (unit,), coverage = align(tokenizer, "the king army sword")
    assert [word for word in unit.words if word] == ["the", "sword"]
    assert coverage.lost == {"pieces": 0, "merged": 0, "unknown": 0, "drift": 2}


def test_symptom_17_words_go_through_the_tokenizers_normaliser_and_keep_their_own_name() -> None:
    assert words_of(TOKENIZERS["wordpiece"], "Café KING") == ["café", "king"]
    assert words_of(TOKENIZERS["unigram"], "Café KING") == ["café", "king"]
    _, coverage = align(TOKENIZERS["bytes"], "Café KING the")  # cased, accents kept: both are lost, and counted
    assert (coverage.words, coverage.found, coverage.lost["pieces"]) == (3, 1, 2)
    _, coverage = align(TOKENIZERS["wordpiece"], "the жук")
    assert coverage.lost["unknown"] == 1


def test_pieces_and_merged_words_are_counted_apart() -> None:
    def whole(text: str) -> list[Word]:
        return [Word(text[i:j], i, j) for i, j in ((0, 3), (3, 5), (6, 9))]

    units, coverage = align_units(TOKENIZERS["wordpiece"], [Unit("d", 0, "castle the")], max_length=9, splitter=whole)
    # "cas" and "tle" share one token; " th" is no word of the model's.
    assert coverage.lost["merged"] == 3
    assert [word for word in units[0].words if word] == []
    _, coverage = align(TOKENIZERS["wordpiece"], "castles kings river")
    assert (coverage.lost["pieces"], coverage.found) == (2, 1)
    # The end of "3rd" has the characters of a word of its own, but continues a token.
    tokenizer = tiny.wordpiece((*tiny.WORDS, "##bird"))
    _, coverage = align_units(tokenizer, [Unit("d", 0, "3bird")], max_length=9, splitter=lambda _: [Word("bird", 1, 5)])
    assert coverage.lost["pieces"] == 1


@pytest.mark.parametrize("tokenizer", [*TOKENIZERS.values(), GPT2], ids=[*TOKENIZERS, "gpt2"])
@pytest.mark.parametrize("max_length", [5, 6, 7, 11])
def test_long_units_become_windows_that_cut_no_word_and_lose_nothing(tokenizer: Any, max_length: int) -> None:
    text = "the river castles flows under the old stone bridge of kings toward the sea " * 3
    (whole,), one = align(tokenizer, text)
    windows, many = align(tokenizer, "the sea", text, max_length=max_length)
    before = next(i for i, word in enumerate(whole.words) if word)
    after = 1 if before else 0
    cut = [w for w in windows if w.document_id == "d1"]
    assert [w.window for w in cut] == list(range(len(cut)))
    assert all(len(w.input_ids) <= max_length and w.unit == 1 for w in cut)
    assert all(w.input_ids[:before] == whole.input_ids[:before] for w in cut)

    def inner(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values[before : len(values) - after]

    assert sum((inner(w.input_ids) for w in cut), ()) == inner(whole.input_ids)
    assert sum((inner(w.words) for w in cut), ()) == inner(whole.words)
    assert (many.split_units, many.windows, many.units) == (1, len(windows), 2)
    assert many.found == one.found + 2
    if max_length == 11:  # wide enough for every word here
        starts = [tokenizer.decode(inner(w.input_ids)).strip().split(" ")[0] for w in cut]
        assert set(starts) <= set(text.split())


def test_a_word_longer_than_the_window_is_cut_since_it_must_be() -> None:
    windows, coverage = align(TOKENIZERS["wordpiece"], "the qqqqqqqqqqqq river", max_length=6)
    assert all(len(w.input_ids) <= 6 for w in windows)
    assert (coverage.found, coverage.lost["pieces"]) == (2, 1)


def test_units_without_tokens_are_left_out_and_counted() -> None:
    units, coverage = align(GPT2, "", "the river", "   ")
    assert [unit.unit for unit in units] == [1, 2]  # byte-level tokenizers have tokens for spaces
    assert (coverage.units, coverage.empty_units) == (3, 1)
    units, coverage = align(TOKENIZERS["wordpiece"], "\u00ad", "the")
    assert coverage.empty_units == 1
    assert align(GPT2) == ([], Coverage())


def test_coverage_adds_up_over_parts_of_a_corpus() -> None:
    texts = [TEXT, "the café", "", "castles"]
    _, whole = align(TOKENIZERS["wordpiece"], *texts)
    parts = [align(TOKENIZERS["wordpiece"], text)[1] for text in texts]
    assert sum(parts, Coverage()) == whole
    assert whole.lost["pieces"] > 0


def test_a_slow_tokenizer_is_refused() -> None:
    tokenizer = copy.deepcopy(TOKENIZERS["wordpiece"])

    class Slow(type(tokenizer)):  # type: ignore[misc]
        is_fast = False

    tokenizer.__class__ = Slow
    for call in (lambda: align(tokenizer, "the"), lambda: word_token_ids(tokenizer, ["the"])):
        with pytest.raises(InputError, match="no character spans"):
            call()


def test_symptom_16_of_two_rows_for_a_word_the_spaced_one_is_taken_and_named() -> None:
    tokenizer = tiny.byte_bpe()
    both = {form: tokenizer.convert_tokens_to_ids(form) for form in ("the", "Ġthe")}
    assert tokenizer.unk_token_id not in both.values()
    assert len(set(both.values())) == 2
    assert word_token_ids(tokenizer, ["the"]).found == {"the": (both["Ġthe"], "spaced")}
    # The row the text uses is the row of the embeddings.
    (unit,), _ = align(tokenizer, "on the")
    assert unit.input_ids[unit.words.index("the")] == both["Ġthe"]


def test_a_word_with_only_one_form_is_found_under_it() -> None:
    tokenizer = tiny.byte_bpe()
    only_bare = tiny.byte_bpe(())
    assert word_token_ids(only_bare, ["a", "river"]).found["a"].form == "bare"
    assert word_token_ids(only_bare, ["a", "river"]).lost["pieces"] == 1
    assert word_token_ids(TOKENIZERS["wordpiece"], ["the"]).found["the"].form == "bare"
    assert word_token_ids(TOKENIZERS["unigram"], ["the"]).found["the"].form == "spaced"
    assert tokenizer.decode([word_token_ids(tokenizer, ["moon"]).found["moon"].token_id]) == " moon"


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_every_word_looked_up_is_found_or_counted(tokenizer: Any) -> None:
    words = [*tiny.WORDS, "castles", "жук", "café", "🎹", "moon"]
    result = word_token_ids(tokenizer, words)
    assert set(tiny.WORDS) <= set(result.found)
    assert len(result.found) + sum(result.lost.values()) == len(set(words))
    assert len({form.token_id for form in result.found.values()}) == len(result.found)
    assert result.lost["same_token"] == (style(tokenizer) != "bytes")  # café beside cafe


def looked_up_one_by_one(tokenizer: Any, words: list[str]) -> WordTokens:
    """Slow twin of `word_token_ids`: a call of the tokenizer for each form of each word."""
    spelling = Spelling(tokenizer)
    found: dict[str, TokenForm] = {}
    lost = dict.fromkeys(("pieces", "unknown", "drift", "same_token"), 0)
    for word in dict.fromkeys(words):
        reasons = []
        for text in (f" {word}", word):
            ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            reason = spelling.fault(tuple(ids), word) if len(ids) == 1 else "pieces"
            if reason is None and ids[0] in {form.token_id for form in found.values()}:
                reason = "same_token"
            if reason is None:
                raw = str(tokenizer.convert_ids_to_tokens(ids[0]))
                found[word] = TokenForm(ids[0], "spaced" if raw.startswith(("Ġ", "▁")) else "bare")
                break
            reasons.append(reason)
        else:
            lost[next((reason for reason in reasons if reason != "pieces"), "pieces")] += 1
    return WordTokens(found, lost)


ODD_WORDS = [
    *PIECES,
    *("##ing", "▁the", "Ġthe", " river", "river ", "river bank", "the river", "", "\u00ad", "\u0301x", "x\u0301"),
    *("[UNK]", "[MASK] river", "🎹🎹", "жук", "𝒳", "\x00", "river\tbank", "a" * 300, "moon", "Moon", "CAFE", "10"),
]


def lookup_tokenizers() -> dict[str, Any]:
    """All styles, one that pads and cuts, and one to which ordinary words were added."""
    found = {name: copy.deepcopy(tokenizer) for name, tokenizer in TOKENIZERS.items()} | {"gpt2": copy.deepcopy(GPT2)}
    found |= {"set up": copy.deepcopy(TOKENIZERS["wordpiece"]), "added": copy.deepcopy(TOKENIZERS["wordpiece"])}
    found["set up"].backend_tokenizer.enable_padding(length=9)
    found["set up"].backend_tokenizer.enable_truncation(3)
    found["added"].add_tokens(["riverbank", "castles", AddedToken("jazz", lstrip=True, single_word=True)])
    found["no normaliser"] = copy.deepcopy(TOKENIZERS["wordpiece"])
    found["no normaliser"].backend_tokenizer.normalizer = None  # type: ignore[assignment]
    return found


LOOKUP_TOKENIZERS = lookup_tokenizers()


@pytest.mark.parametrize("tokenizer", LOOKUP_TOKENIZERS.values(), ids=LOOKUP_TOKENIZERS)
def test_words_looked_up_together_are_those_looked_up_one_by_one(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*tiny.WORDS, *ODD_WORDS, "riverbank", "jazz", "jazzy", "riverbanks", *tiny.WORDS[:5]]
    expected = looked_up_one_by_one(copy.deepcopy(tokenizer), words)
    for at_once, block in ((128, 16_384), (3, 7), (1, 1)):
        monkeypatch.setattr(spelling_module, "_TEXTS_PER_CALL", at_once)
        monkeypatch.setattr(alignment, "WORDS_PER_BLOCK", block)
        assert word_token_ids(tokenizer, words) == expected
        assert list(word_token_ids(tokenizer, words).found) == list(expected.found)


def test_many_words_take_few_calls_of_the_tokenizer_and_show_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = TOKENIZERS["wordpiece"]
    words = [f"w{'abcdefghij'[i % 10]}{'abcdefghij'[i // 10 % 10]}{'x' * (i // 100)}" for i in range(1000)]
    calls: list[str] = []
    encode = type(tokenizer)._encode_plus

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append("call")
        return encode(self, *arguments, **options)

    monkeypatch.setattr(type(tokenizer), "_encode_plus", counted)
    monkeypatch.setattr(alignment, "WORDS_PER_BLOCK", 400)
    seen: list[float] = []

    class Watching(SilentProgress):
        def update(self, task: str, done: float) -> None:
            seen.append(done)

    word_token_ids(tokenizer, words, Watching())
    assert len(calls) <= 3
    assert seen == [400, 800, 1000]


@given(lengths=st.lists(st.integers(1, 30), max_size=20), batch_size=st.integers(1, 7), max_tokens=st.integers(1, 90))
def test_batches_hold_every_unit_once_within_their_limits(lengths: list[int], batch_size: int, max_tokens: int) -> None:
    units = [AlignedUnit("d", i, 0, tuple(range(1, n + 1)), (None,) * n) for i, n in enumerate(lengths)]
    for side in ("right", "left"):
        batches = make_batches(units, batch_size=batch_size, max_tokens=max_tokens, pad_side=side)
        assert sorted(i for batch in batches for i in batch.unit_index) == list(range(len(units)))
        for batch in batches:
            assert len(batch.unit_index) <= batch_size
            assert len(batch.unit_index) == 1 or batch.input_ids.numel() <= max_tokens
            for row, i in enumerate(batch.unit_index):
                kept = batch.attention_mask[row].bool()
                assert tuple(batch.input_ids[row][kept].tolist()) == units[i].input_ids
                assert bool(kept[0 if side == "right" else -1])
