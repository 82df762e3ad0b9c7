"""NPMI against gensim's and a loop over the definition; what is undefined is counted and explained."""

from itertools import combinations
from math import isnan, log

import numpy as np
import pytest
from gensim.corpora import Dictionary
from gensim.models.coherencemodel import CoherenceModel

from topics.test_lda import PASSAGES, fit_planted
from topicscope.topics import coherence


def words_of(text):
    return text.split()


def random_passages(seed=0, words=12, passages=60, share=0.45):
    rng = np.random.default_rng(seed)
    names = [f"w{chr(97 + i)}" for i in range(words)]
    return names, [" ".join(n for n in names if rng.random() < share) for _ in range(passages)]


def test_equal_to_gensims_where_all_words_meet():
    """gensim's c_npmi with a window longer than any passage counts passages."""
    names, passages = random_passages()
    lists = [names[:6], names[6:], names[3:9]]
    texts = [text.split() for text in passages if text]
    theirs = CoherenceModel(
        topics=lists, texts=texts, dictionary=Dictionary(texts), coherence="c_npmi", window_size=100, processes=1
    ).get_coherence_per_topic()
    found = coherence(lists, [text for text in passages if text])
    np.testing.assert_allclose([topic.npmi for topic in found.topics], theirs, atol=1e-9)
    assert found.mean == pytest.approx(np.mean(theirs))
    assert (found.nan_topics, found.passages) == (0, len(texts))


def test_equal_to_the_definition_pair_by_pair():
    names, passages = random_passages(3, share=0.15)
    found = coherence([names], passages)
    sets = [set(text.split()) for text in passages]
    n = len(sets)
    values = []
    for a, b in combinations(names, 2):
        pa, pb, pab = (sum(wanted <= s for s in sets) / n for wanted in ({a}, {b}, {a, b}))
        values.append(log(pab / (pa * pb)) / -log(pab) if pab else -1.0)
    assert -1.0 in values
    assert found.topics[0].npmi == pytest.approx(np.mean(values))
    assert found.topics[0].undefined_pairs == 0


def test_fitted_topics_cohere_and_mixed_ones_do_not():
    good = fit_planted().top_words(10)
    mixed = [[topic[i] for topic in good] for i in range(6)]
    assert coherence(good, PASSAGES).mean > 0.2
    assert coherence(mixed, PASSAGES).mean < -0.9  # words of six topics never meet: passages have one topic


def test_symptom_21_what_is_undefined_is_counted_and_explained():
    passages = ["the cat sat", "the cat and the dog", "the ship"]
    found = coherence([["cat", "dog", "unicorn"], ["unicorn", "griffin"], ["the"], ["the", "cat"], []], passages)
    one, two, three, four, five = found.topics
    assert (one.pairs, one.undefined_pairs) == (3, 2)
    assert one.npmi == pytest.approx(log((1 / 3) / (2 / 3 * 1 / 3)) / log(3))
    assert one.reason == "in no passage: unicorn"
    assert (isnan(two.npmi), two.reason) == (True, "in no passage: unicorn, griffin")
    assert (isnan(three.npmi), three.pairs, three.reason) == (True, 0, "the topic has fewer than two words")
    assert four.npmi == pytest.approx(0)  # "the" is everywhere, so that it says nothing of the cat
    assert isnan(five.npmi)
    assert found.nan_topics == 3
    assert found.mean == pytest.approx((one.npmi + four.npmi) / 2)
    record = found.to_dict()
    assert [topic["npmi"] is None for topic in record["topics"]] == [False, True, True, False, True]
    everywhere = coherence([["a", "b"]], ["a b", "a b c"])
    assert everywhere.topics[0].reason == "1 pairs of words stand in every passage"
    assert coherence([["a", "b"]], ["a b", "a b c"]).to_dict()["mean"] is None


def test_no_passage_leaves_every_topic_without_coherence():
    found = coherence([["a", "b"]], [])
    assert (found.nan_topics, found.passages, isnan(found.mean)) == (1, 0, True)
