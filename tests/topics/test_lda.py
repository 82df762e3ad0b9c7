"""LDA on text: right topics, right numbers, nothing dropped uncounted, and refusals that say what to do."""

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import tomotopy

from topicscope.errors import InputError
from topicscope.text import Document, corpus_from, load_stop_words
from topicscope.topics import CorpusPassages, TopicModel, Topics, Vocabulary, assign_words, fit, lda

LETTERS = "bcdfghjklmnprstv"


def made_word(topic: int, word: int) -> str:
    return f"{LETTERS[topic]}a{LETTERS[word // len(LETTERS)]}o{LETTERS[word % len(LETTERS)]}u"


def planted_passages(num_topics: int, words_per_topic: int, passages: int, length: int, seed: int) -> list[str]:
    """Passages of one topic each; the words of topic t start with the t-th letter."""
    draw = np.random.default_rng(seed)
    return [
        " ".join(made_word(i % num_topics, int(w)) for w in draw.integers(0, words_per_topic, length))
        for i in range(passages)
    ]


PASSAGES = planted_passages(6, 20, 180, 30, seed=1)


def fit_planted(**options: object) -> Topics:
    return fit(PASSAGES, 6, **{"sweeps": 60, "min_count": 1, **options})  # type: ignore[arg-type]


def purity(topics: Topics) -> float:
    """Share of the 20 top words of a topic that start with its commonest first letter."""
    firsts = [Counter(word[0] for word in words) for words in topics.top_words(20)]
    return float(np.mean([first.most_common(1)[0][1] / 20 for first in firsts]))


class Recorder:
    """Notes every event; may press Ctrl-C."""

    def __init__(self, interrupt_at: float | None = None) -> None:
        self.events: list[tuple[str, str, float | None]] = []
        self.interrupt_at = interrupt_at

    def start(self, task: str, total: float | None, unit: str) -> None:
        self.events.append(("start", task, total))

    def update(self, task: str, done: float) -> None:
        self.events.append(("update", task, done))
        if done == self.interrupt_at:
            raise KeyboardInterrupt

    def finish(self, task: str) -> None:
        self.events.append(("finish", task, None))


def test_planted_topics_are_found() -> None:
    topics = fit_planted()
    assert purity(topics) == 1.0
    assert {words[0][0] for words in topics.top_words(1)} == set(LETTERS[:6])


def test_without_topics_in_the_text_none_are_found() -> None:
    words = " ".join(PASSAGES).split()
    np.random.default_rng(0).shuffle(words)
    shuffled = [" ".join(words[i : i + 30]) for i in range(0, len(words), 30)]
    assert purity(fit(shuffled, 6, sweeps=60, min_count=1)) < 0.6


def test_phi_and_alpha_are_those_of_the_sampler_counted_by_hand() -> None:
    topics = fit_planted(sweeps=25, seed=5)
    sampler = tomotopy.LDAModel(k=6, alpha=0.1, eta=0.01, seed=5)
    for passage in PASSAGES:
        sampler.add_doc(passage.split())
    sampler.train(25, workers=1, parallel=tomotopy.ParallelScheme.NONE)
    counts = np.zeros((6, len(topics.model.vocabulary)), dtype=int)
    for document in sampler.docs:
        for word, topic in zip(document.words, document.topics, strict=True):
            index = topics.model.vocabulary.words.index(sampler.vocabs[word])
            assert index is not None
            counts[topic, index] += 1
    expected = (counts + 0.01) / (counts + 0.01).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(topics.model.phi, expected, rtol=1e-14)
    np.testing.assert_array_equal(topics.model.alpha, sampler.alpha.astype(np.float64))


def test_symptom_20_phi_is_float64_finite_and_distinct_at_120_topics() -> None:
    topics = fit(planted_passages(16, 40, 960, 30, seed=2), 120, sweeps=10, min_count=1)
    phi = topics.model.phi
    assert phi.dtype == np.float64
    assert np.isfinite(phi).all()
    assert (phi > 0).all()
    assert np.abs(phi.sum(axis=1) - 1).max() < 1e-12
    assert len(np.unique(phi, axis=0)) == 120


def test_symptom_20_nan_and_duplicate_topics_are_errors() -> None:
    vocabulary = Vocabulary(("a", "b"))
    twins = TopicModel(np.array([[0.2, 0.8], [0.5, 0.5], [0.2, 0.8]]), np.ones(3), vocabulary)
    with pytest.raises(InputError, match="topics 0 and 2") as caught:
        Topics(twins, {})
    assert caught.value.advice is not None
    with pytest.raises(InputError, match="NaN") as caught:
        TopicModel(np.array([[0.2, 0.8], [np.nan, 0.5]]), np.ones(2), vocabulary)
    assert caught.value.advice is not None


def test_symptom_20_topics_that_stay_empty_are_an_error_not_a_result() -> None:
    # 30 one-word passages cannot fill 30 topics: those left empty all have the prior's uniform row.
    with pytest.raises(InputError, match="two topics are identical"):
        fit(["bako"] * 30, 30, sweeps=5, min_count=1)


def test_symptom_22_one_seed_gives_identical_topics_and_says_where() -> None:
    first, again, other = fit_planted(seed=3), fit_planted(seed=3), fit_planted(seed=4)
    np.testing.assert_array_equal(first.model.phi, again.model.phi)
    np.testing.assert_array_equal(first.model.alpha, again.model.alpha)
    assert first.model.vocabulary == again.model.vocabulary
    assert not np.array_equal(first.model.phi, other.model.phi)
    assert first.provenance["workers"] == 1
    assert first.provenance["instruction_set"] == tomotopy.isa
    assert first.provenance["environment"]["processor"]
    assert first.provenance["environment"]["libraries"]["tomotopy"] == tomotopy.__version__


class Exhausted:
    """Pretends to start afresh, but has nothing left the second time."""

    def __init__(self) -> None:
        self.source = iter(PASSAGES)

    def __iter__(self) -> Iterator[str]:
        yield from self.source


def test_symptom_23_what_can_be_read_once_is_refused_with_advice() -> None:
    for passages in ((p for p in PASSAGES), iter(PASSAGES), map(str, PASSAGES)):
        with pytest.raises(InputError, match="read only once") as caught:
            fit(passages, 6)
        assert "list(passages)" in str(caught.value.advice)
    with pytest.raises(InputError, match="changed between two readings"):
        fit(Exhausted(), 6, min_count=1)
    with pytest.raises(InputError, match="one text instead of passages"):
        fit(PASSAGES[0], 6)


def test_symptom_19_every_known_word_is_served_by_the_topic_word_matrix() -> None:
    topics = fit_planted()
    known = sorted(set(" ".join(PASSAGES).split()))
    assert sorted(topics.model.vocabulary.words) == known
    assert (topics.model.phi > 0).all(), "a known word without a likelihood in some topic"
    every = assign_words(topics, 1.0, stop_words=(), overlap="keep")
    assert every.membership(known).all()
    for k, words in enumerate(topics.top_words(20)):
        columns = [topics.model.vocabulary.words.index(word) for word in words]
        assert list(topics.model.phi[k, columns]) == sorted(topics.model.phi[k], reverse=True)[:20]


def test_vocabulary_stop_words_and_rare_words_against_a_count_by_hand() -> None:
    text = ["The Cat cat dog, THE the the", "Dog cat bird bird 123", "the the and", "fish"]
    topics = fit(text, 1, sweeps=5, min_count=2)
    assert topics.model.vocabulary.words == ("cat", "bird", "dog")
    record = topics.provenance
    assert record["documents"] == 2
    assert record["tokens"] == 7
    assert record["vocabulary_size"] == 3
    assert record["dropped"] == {
        "passages_without_a_word": 2,
        "tokens_of_stop_words": 7,
        "tokens_of_rare_words": 1,
        "rare_words": 1,
    }


def test_own_stop_words_and_splitter_replace_the_defaults() -> None:
    topics = fit(["the cat the cat", "the cat"], 1, sweeps=5, min_count=1, stop_words=["CAT"])
    assert topics.model.vocabulary.words == ("the",)
    assert topics.provenance["language"] is None
    assert fit(["the cat"], 1, sweeps=5, min_count=1, stop_words=()).model.vocabulary.words == ("cat", "the")


def test_stop_words_are_those_of_the_language() -> None:
    assert {"the", "don't"} <= load_stop_words("en")
    assert "und" in load_stop_words("de")
    assert "und" not in load_stop_words("en")
    with pytest.raises(InputError, match="one of af, ar"):
        load_stop_words("xx")


def test_the_provenance_is_json_and_complete() -> None:
    topics = fit_planted(source={"name": "made"})
    record = json.loads(json.dumps(topics.provenance))
    assert record == topics.provenance
    assert record["corpus"] == {"name": "made"}
    assert (record["sweeps"], record["seed"], record["min_count"], record["language"]) == (60, 0, 1, "en")
    assert record["tokens"] == 180 * 30
    assert record["warnings"] == []


def test_symptom_26_words_that_spaces_do_not_separate_are_warned_of() -> None:
    topics = fit(["每个词都连在一起写成一个很长的句子"] * 4, 1, sweeps=2, min_count=1, stop_words=())
    assert "splitter" in topics.provenance["warnings"][0]


def test_passages_of_a_corpus_can_be_read_again() -> None:
    passages = CorpusPassages(corpus_from([Document("x", "one cat\n\ntwo dogs"), Document("y", "three birds")]))
    assert list(passages) == list(passages) == ["one cat", "two dogs", "three birds"]


@pytest.mark.parametrize(
    ("passages", "options", "message"),
    [
        (PASSAGES[:5], {"num_topics": 6, "min_count": 1}, "more topics than documents"),
        ([], {}, "no word is left"),
        (["the and of"], {"min_count": 1}, "no word is left"),
        (["rare words only"], {}, "no word is left"),
        (PASSAGES, {"num_topics": 0}, "number of topics"),
        (PASSAGES, {"num_topics": 40_000}, "number of topics"),
        (PASSAGES, {"sweeps": 0}, "sweeps"),
        (PASSAGES, {"seed": -1}, "seed"),
        (PASSAGES, {"min_count": 0}, "min_count"),
        (PASSAGES, {"language": "klingon"}, "no stop words for this language"),
    ],
)
def test_bad_input(passages: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(passages, **{"num_topics": 2, **options})  # type: ignore[arg-type]


def test_progress_every_tenth_sweep_and_a_clean_end() -> None:
    seen = Recorder()
    fit_planted(sweeps=25, progress=seen)
    assert seen.events == [
        ("start", "count words", None),
        ("finish", "count words", None),
        ("start", "fit topics", 25),
        ("update", "fit topics", 10),
        ("update", "fit topics", 20),
        ("update", "fit topics", 25),
        ("finish", "fit topics", None),
    ]


def test_an_interrupt_closes_the_task_and_leaves() -> None:
    seen = Recorder(interrupt_at=10)
    with pytest.raises(KeyboardInterrupt):
        fit_planted(progress=seen)
    assert seen.events[-1] == ("finish", "fit topics", None)


def test_one_label_a_topic() -> None:
    model = TopicModel.disjoint(3, 2)
    assert Topics(model, {}, ("a", "b", "c")).labels == ("a", "b", "c")
    with pytest.raises(InputError, match="label"):
        Topics(model, {}, ("a", "b"))


def test_defaults_are_the_documented_ones() -> None:
    assert (lda.SWEEPS, lda.MIN_COUNT, lda.ALPHA, lda.ETA) == (300, 5, 0.1, 0.01)
