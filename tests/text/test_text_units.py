import inspect
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from text.text_files import sample_units
from topicscope.errors import InputError
from topicscope.text import Document, UnitReader, Word, corpus_from, passages, split_words
from topicscope.text.units import all_units, sentences

TEXT = "Dr. Smith went to Paris. He saw 3.5 km of wall.\nThe wall was old.\n\nA new one stands there. Why?"
CORPUS = corpus_from([(f"d{i}", f"One short sentence here. Number {i} is the next one. Ha.") for i in range(20)])


def test_passages_are_paragraphs() -> None:
    assert list(passages(Document("a", TEXT))) == [
        "Dr. Smith went to Paris. He saw 3.5 km of wall. The wall was old.",
        "A new one stands there. Why?",
    ]
    assert list(passages(Document("a", "one line\ntwo  lines\n"))) == ["one line", "two lines"]
    assert list(passages(Document("a", " \n \n\t\n"))) == []


def test_sentences_know_abbreviations_and_end_with_their_passage() -> None:
    assert list(sentences(Document("a", TEXT))) == [
        "Dr. Smith went to Paris.",
        "He saw 3.5 km of wall.",
        "The wall was old.",
        "A new one stands there.",
        "Why?",
    ]
    assert list(sentences(Document("a", "no full stop\n\nnor here"))) == ["no full stop", "nor here"]


@given(st.text(), st.sampled_from(["sentence", "passage"]))
def test_no_word_is_lost_between_document_and_units(text: str, unit: str) -> None:
    document = Document("a", text)
    units = list(all_units(document, unit))
    assert "".join("".join(u.text for u in units).split()) == "".join(text.split())
    assert [u.index for u in units] == list(range(len(units)))


def test_short_units_are_dropped_and_the_others_keep_their_index() -> None:
    documents = [Document("a", TEXT), Document("b", "One two three. No, no. Four five six.")]
    assert [u.index for u in UnitReader(documents, "sentence").units()] == [0, 1, 2, 3, 0, 2]


def test_all_units_come_with_counts_that_add_up() -> None:
    units, counts = sample_units(CORPUS, "sentence")
    assert (counts.documents, counts.documents_kept, counts.units, counts.units_kept) == (20, 20, 60, 40)
    assert counts.dropped == {"fewer than 3 words": 20}
    assert counts.words == sum(len(split_words(d.text)) for d in CORPUS)
    assert counts.words_kept == sum(len(split_words(u.text)) for u in units)
    assert counts.warnings == ()


def slow_sample(max_units: int, seed: int) -> list[tuple[str, int]]:
    """A twin that holds everything in memory."""
    draw = random.Random(seed)
    everything = [u for d in CORPUS for u in all_units(d, "sentence") if len(split_words(u.text)) >= 3]
    drawn = sorted((draw.random(), i) for i in range(len(everything)))[:max_units]
    return [(everything[i].document_id, everything[i].index) for i in sorted(i for _, i in drawn)]


@pytest.mark.parametrize("max_units", [1, 7, 39, 40, 100])
def test_the_streamed_sample_is_the_slow_one(max_units: int) -> None:
    units, counts = sample_units(CORPUS, "sentence", max_units, seed=3)
    assert [(u.document_id, u.index) for u in units] == slow_sample(max_units, 3)
    assert counts.units_kept + sum(counts.dropped.values()) == counts.units
    assert counts.units_kept == min(max_units, 40)
    assert counts.documents_kept == len({u.document_id for u in units})


def test_a_sample_depends_on_the_seed_alone_and_grows() -> None:
    small, large = (sample_units(CORPUS, "sentence", n, seed=1)[0] for n in (5, 20))
    assert small == sample_units(CORPUS, "sentence", 5, seed=1)[0]
    assert set(small) < set(large)
    assert small != sample_units(CORPUS, "sentence", 5, seed=2)[0]


def test_every_unit_is_as_likely_as_every_other() -> None:
    seen = Counter(u for seed in range(400) for u in sample_units(CORPUS, "sentence", 8, seed=seed)[0])
    assert len(seen) == 40
    # 400 draws of 8 from 40: 80 expected each; the variance of one count is 400 · 1/5 · 4/5 = 64, so χ² needs 80/64.
    statistic = sum((n - 80) ** 2 / 64 for n in seen.values()) * 39 / 40
    assert 0.001 < stats.chi2.sf(statistic, 39) < 0.999


def test_symptom_24_ids_survive_dropped_documents() -> None:
    documents = [
        ("first", "A sentence of five words."),
        ("gone", "  "),
        ("short", "Ha."),
        ("last", "The last one stays."),
    ]
    units, counts = sample_units(corpus_from(documents), "sentence")
    assert [(u.document_id, u.text) for u in units] == [
        ("first", "A sentence of five words."),
        ("last", "The last one stays."),
    ]
    assert counts.skipped == {"empty document": 1}
    assert counts.dropped == {"fewer than 3 words": 1}


def test_symptom_26_a_splitter_can_be_plugged_in() -> None:
    chinese = corpus_from(["变压器语言模型学习主题结构。同一主题的词互相注意。" * 3])
    units, counts = sample_units(chinese, "passage")
    assert len(units) == 1
    assert "word splitter" in counts.warnings[0]
    assert counts.words == 6

    def by_two(text: str) -> list[Word]:
        return [Word(text[i : i + 2], i, i + 2) for i in range(0, len(text) - 1, 2)]

    _, counts = sample_units(chinese, "passage", splitter=by_two)
    assert counts.warnings == ()
    assert counts.words > 30


def test_bad_arguments_are_refused() -> None:
    # Past the test-time type check, where a user without a type checker arrives.
    unchecked = inspect.unwrap(all_units)
    with pytest.raises(InputError, match="unknown unit"):
        next(unchecked(Document("a", TEXT), "paragraph"))


def test_a_corpus_without_a_long_enough_unit_is_refused() -> None:
    with pytest.raises(InputError, match="no sentence of at least 3 words") as error:
        sample_units(corpus_from(["Ha. Ho.", "1 2 3 4 5 6"]), "sentence")
    assert "2 documents, 3 units, 2 words" in str(error.value)
