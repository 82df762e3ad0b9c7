"""Topics by gensim and scikit-learn: planted topics are found, the matrix is that of the library, nothing is hidden."""

import json
from importlib import metadata

import numpy as np
import pytest
from gensim.models import LdaModel

from topics.test_lda import PASSAGES, Recorder, planted_passages, purity
from topicscope.errors import InputError
from topicscope.topics import engines, fit, fit_with

OTHERS = ("gensim", "sklearn")


def fit_planted(engine, **options):
    return fit_with(engine, PASSAGES, 6, **{"sweeps": 8, "min_count": 1, **options})


@pytest.mark.parametrize("engine", OTHERS)
def test_planted_topics_are_found(engine, monkeypatch):
    monkeypatch.setattr(engines, "BATCH", 30)
    found = max(purity(fit_planted(engine, seed=seed)) for seed in range(3))
    assert found > 0.8  # variational LDA may merge two of six topics from a bad start
    words = " ".join(PASSAGES).split()
    np.random.default_rng(0).shuffle(words)
    shuffled = [" ".join(words[i : i + 30]) for i in range(0, len(words), 30)]
    assert purity(fit_with(engine, shuffled, 6, sweeps=8, min_count=1)) < 0.6


@pytest.mark.parametrize("engine", OTHERS)
def test_one_seed_gives_the_same_topics_and_another_gives_others(engine):
    a, b, c = (fit_planted(engine, seed=seed, sweeps=2).model.phi for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3


@pytest.mark.parametrize("engine", OTHERS)
def test_phi_is_float64_positive_and_the_provenance_counts_the_same_text_as_tomotopy(engine):
    text = ["the cat and the dog saw zebras", *PASSAGES[:30], "", "12 34"]
    topics = fit_with(engine, text, 3, sweeps=2, min_count=2)
    assert topics.model.phi.dtype == np.float64
    assert (topics.model.phi > 0).all()
    assert np.abs(topics.model.phi.sum(axis=1) - 1).max() < 1e-12
    np.testing.assert_array_equal(topics.model.alpha, np.full(3, 0.1))
    record, other = topics.provenance, fit(text, 3, sweeps=2, min_count=2).provenance
    shared = ("documents", "tokens", "vocabulary_size", "dropped", "stop_words", "language", "min_count", "splitter")
    assert {name: record[name] for name in shared} == {name: other[name] for name in shared}
    assert record == json.loads(json.dumps(record))
    package = {"gensim": "gensim", "sklearn": "scikit-learn"}[engine]
    assert record["engine_version"] == metadata.version(package)
    assert record["engine"].startswith(engine)


def test_symptom_19_gensims_phi_is_its_topic_word_matrix():
    topics = fit_planted("gensim", seed=3, sweeps=2)
    place = {word: i for i, word in enumerate(topics.model.vocabulary.words)}
    corpus = [sorted({place[w]: p.split().count(w) for w in p.split()}.items()) for p in PASSAGES]
    model = LdaModel(
        corpus, 6, dict(enumerate(place)), chunksize=256, passes=2, alpha=np.full(6, 0.1), eta=0.01, decay=0.7,
        offset=10.0, iterations=100, eval_every=None, random_state=3, dtype=np.float64,
    )  # fmt: skip
    np.testing.assert_allclose(topics.model.phi, model.get_topics(), rtol=1e-12)


def test_gensim_reads_the_text_anew_for_every_pass():
    class Passages:
        readings = 0

        def __iter__(self):
            Passages.readings += 1
            yield from PASSAGES

    fit_with("gensim", Passages(), 3, sweeps=4, min_count=1)
    assert Passages.readings == 2 + 4  # count the words, count the passages, four passes


def test_tomotopy_is_the_same_as_ever():
    options = {"sweeps": 5, "min_count": 1, "seed": 2}
    a, b = fit_with("tomotopy", PASSAGES, 6, **options), fit(PASSAGES, 6, **options)
    np.testing.assert_array_equal(a.model.phi, b.model.phi)


@pytest.mark.parametrize("engine", OTHERS)
def test_bad_input_is_refused_as_by_tomotopy(engine):
    for passages, message in (
        (["word"] * 2, "more topics than documents"),
        (iter(PASSAGES), "only once"),
        ("text", "one text"),
        (["the of and"], "no word is left"),
    ):
        with pytest.raises(InputError, match=message):
            fit_with(engine, passages, 3, min_count=1)
    for option in ({"sweeps": 0}, {"seed": -1}, {"min_count": 0}):
        with pytest.raises(InputError, match="impossible option"):
            fit_with(engine, PASSAGES, 3, **option)
    with pytest.raises(InputError, match="unknown engine"):
        engines.fit_with("mallet", PASSAGES, 3)


def test_an_engine_that_is_not_installed_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(engines.metadata, "version", missing)
    with pytest.raises(InputError, match="not installed") as caught:
        fit_planted("sklearn")
    assert "topicscope[sklearn]" in (caught.value.advice or "")


@pytest.mark.parametrize("engine", OTHERS)
def test_ctrl_c_is_seen_inside_a_fit_and_progress_reaches_the_end(engine):
    recorder = Recorder()
    fit_planted(engine, sweeps=3, progress=recorder)
    fitting = [done for event, task, done in recorder.events if task == "fit topics" and event == "update"]
    assert fitting == sorted(fitting)
    assert fitting[-1] == 3
    with pytest.raises(KeyboardInterrupt):
        fit_planted(engine, sweeps=100, progress=Recorder(interrupt_at=1))


def test_symptom_20_a_hundred_topics_are_distinct_and_finite():
    for engine in OTHERS:
        phi = fit_with(engine, planted_passages(8, 30, 240, 20, seed=2), 100, sweeps=1, min_count=1).model.phi
        assert np.isfinite(phi).all()
        assert len(np.unique(phi, axis=0)) == 100
