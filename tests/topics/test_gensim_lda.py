"""Topics by gensim, streamed or not: planted topics, the library's own numbers, nothing hidden, errors that help."""

import json
import random
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import LdaModel

from topics.test_lda import Recorder, planted_passages, purity
from topicscope.errors import InputError, RunError
from topicscope.text import Word
from topicscope.topics import TOP_WORDS, Rate, Topics, coherence, fit, fit_stream, fit_with, gensim_lda

PASSAGES = planted_passages(6, 20, 1024, 20, seed=1)
TEXT = ["the cat and the dog saw zebras", *PASSAGES[:30], "", "12 34"]


def stream(passages: list[str], num_topics: int = 6, *, batch: int | None = 64, **options: Any) -> Topics:
    return fit_stream(passages, num_topics, rate=Rate(batch=batch), **{"min_count": 1, **options})


def reread(passages: list[str], num_topics: int = 6, **options: Any) -> Topics:
    return fit_with("gensim", passages, num_topics, **{"sweeps": 3, "min_count": 1, **options})


BOTH = pytest.mark.parametrize("fit_topics", [stream, reread])


class Passages:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.readings = 0

    def __iter__(self) -> Iterator[str]:
        self.readings += 1
        yield from PASSAGES


@BOTH
def test_planted_topics_are_found(fit_topics: Any) -> None:
    found = [fit_topics(PASSAGES, seed=seed) for seed in range(3)]
    assert max(map(purity, found)) > 0.8  # variational LDA may merge two of six topics from a bad start
    words = " ".join(PASSAGES).split()
    np.random.default_rng(0).shuffle(words)
    shuffled = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    assert purity(fit_topics(shuffled)) < 0.6


@BOTH
def test_one_seed_gives_the_same_topics_and_another_gives_others(fit_topics: Any) -> None:
    a, b, c = (fit_topics(PASSAGES[:200], 4, seed=seed).model.phi for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3


@BOTH
def test_symptom_20_a_hundred_topics_are_distinct_and_finite(fit_topics: Any) -> None:
    phi = fit_topics(planted_passages(8, 30, 240, 20, seed=2), 100).model.phi
    assert phi.dtype == np.float64
    assert np.isfinite(phi).all()
    assert (phi > 0).all()
    assert np.abs(phi.sum(axis=1) - 1).max() < 1e-12
    assert len(np.unique(phi, axis=0)) == 100


def test_symptom_19_phi_is_gensims_topic_word_matrix() -> None:
    topics = reread(PASSAGES, seed=3, sweeps=2)
    np.testing.assert_array_equal(topics.model.alpha, np.full(6, 0.1))
    place = {word: i for i, word in enumerate(topics.model.vocabulary.words)}
    corpus = [sorted({place[w]: p.split().count(w) for w in p.split()}.items()) for p in PASSAGES]
    model = LdaModel(
        corpus, 6, dict(enumerate(place)), chunksize=256, passes=2, alpha=np.full(6, 0.1), eta=0.01, decay=0.7,
        offset=10.0, iterations=100, eval_every=None, random_state=3, dtype=np.float64,
    )  # fmt: skip
    np.testing.assert_allclose(topics.model.phi, model.get_topics(), rtol=1e-12)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_stream_has_the_topics_of_the_passages_that_are_read_again(passes: int) -> None:
    rate = Rate(passes=passes, batch=256, offset=10.0)
    streamed = fit_stream(PASSAGES, 6, rate=rate, min_count=1)
    draw = random.Random(0)
    files: list[list[str]] = [[] for _ in range(64)]
    for passage in PASSAGES:
        draw.choice(files).append(passage)
    dealt = [passage for file in files for passage in file]
    twin = reread(dealt, sweeps=passes)
    assert streamed.model.vocabulary == twin.model.vocabulary
    np.testing.assert_array_equal(streamed.model.phi, twin.model.phi)
    assert np.abs(streamed.model.phi - reread(PASSAGES, sweeps=passes).model.phi).max() > 1e-6


@pytest.mark.parametrize("period", [None, 2, 64])
def test_every_batch_of_a_stream_is_spread_over_the_text(period: int | None, tmp_path: Path) -> None:
    """Texts sorted by subject, and texts whose subjects take turns: each batch has its share of each."""
    count = 6400
    subjects = [2 * i // count if period is None else i % period * 2 // period for i in range(count)]
    stored = gensim_lda._StoredWords(tmp_path)
    stored.write([[str(subject)] for subject in subjects])
    read = [int(words[0]) for words in stored]
    assert sorted(read) == sorted(subjects)
    shares = np.array(read).reshape(16, -1).mean(axis=1)  # batches of 400; a share of a half has an error of 0.025
    assert np.abs(shares - 0.5).max() < 0.1


def test_a_stream_is_read_once_and_other_fits_once_a_pass() -> None:
    streamed, again = Passages(), Passages()
    fit_stream(streamed, 3, rate=Rate(passes=3), min_count=1)
    assert streamed.readings == 1
    fit_with("gensim", again, 3, sweeps=4, min_count=1)
    assert again.readings == 2 + 4  # count the words, count the passages, four passes


def test_batches_are_nearly_equal_so_that_a_small_last_one_does_not_count_as_much_as_the_others() -> None:
    for documents in (1, 100, 257, 1001, 1027, 65_537, 1_000_003):
        batch = Rate().even_batch(documents)
        batches = -(-documents // batch)
        last = documents - (batches - 1) * batch
        assert batch <= max(256, min(16384, documents // 4))
        assert batch - batches < last <= batch
    assert Rate(batch=300).even_batch(1000) == 250


@BOTH
def test_the_provenance_counts_the_same_text_as_tomotopy(fit_topics: Any) -> None:
    record, other = fit_topics(TEXT, 3, min_count=2).provenance, fit(TEXT, 3, sweeps=1, min_count=2).provenance
    shared = ("documents", "tokens", "vocabulary_size", "stop_words", "language", "min_count", "splitter", "warnings")
    assert {name: record[name] for name in shared} == {name: other[name] for name in shared}
    assert other["dropped"].items() <= record["dropped"].items()
    assert {record["dropped"][name] for name in record["dropped"].keys() - other["dropped"].keys()} <= {0}
    assert record == json.loads(json.dumps(record))
    assert record["engine"].startswith("gensim")
    assert record["engine_version"] == metadata.version("gensim")


def test_the_coherence_of_a_stream_is_that_of_the_text() -> None:
    topics = stream(TEXT, 3, min_count=2)
    assert topics.provenance["coherence"] == coherence(topics.top_words(TOP_WORDS), TEXT).to_dict()


def test_a_vocabulary_that_is_capped_keeps_the_most_frequent_and_counts_the_rest() -> None:
    whole, cut = (stream(TEXT, 3, max_words=most) for most in (1000, 5))
    assert cut.model.vocabulary.words == whole.model.vocabulary.words[:5]
    dropped = cut.provenance["dropped"]
    assert dropped["words_beyond_the_vocabulary"] == len(whole.model.vocabulary) - 5
    assert dropped["tokens_beyond_the_vocabulary"] == whole.provenance["tokens"] - cut.provenance["tokens"] > 0
    assert whole.provenance["dropped"]["words_beyond_the_vocabulary"] == 0


def letters(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in f"{number:05}")


def test_words_that_were_forgotten_are_counted_and_said() -> None:
    """Every occurrence is in one account: the vocabulary, stop words, rare, beyond the vocabulary, or forgotten."""
    text = [f"the common common usual {letters(number)}" for number in range(10_002)]
    text[0] = text[-1] = f"the common common usual {letters(99_999)}"  # comes again after it was forgotten, or not
    exact, bounded = (stream(text, 2, batch=None, words_held=held, min_count=2) for held in (100_000, 100))
    assert exact.provenance["warnings"] == []
    assert exact.model.vocabulary.words == ("common", "usual", letters(99_999))
    assert exact.provenance["dropped"]["tokens_of_forgotten_words"] == 0
    dropped = bounded.provenance["dropped"]
    assert dropped["tokens_of_forgotten_words"] > 9_000
    for topics in (exact, bounded):
        known = topics.provenance
        left_out = sum(count for name, count in known["dropped"].items() if name.startswith("tokens_"))
        assert known["tokens"] + left_out == 5 * len(text)
    (warning,) = bounded.provenance["warnings"]
    assert "occurrences of rare words were forgotten, since the text has more than 100 distinct words" in warning
    assert "--min-count" in warning


def test_words_of_any_splitter_are_kept_as_they_are() -> None:
    odd = ["two words", "a\nbreak", 'a "quote"', "lone \ud800", "line\u2028separator"]

    def split(text: str) -> list[Word]:
        return [Word(odd[int(digit)], i, i + 1) for i, digit in enumerate(text)]

    topics = fit_stream(["0123", "1234", "0124"], 2, min_count=1, splitter=split, stop_words=[])
    assert set(topics.model.vocabulary.words) == set(odd)


def test_tomotopy_is_the_same_as_ever() -> None:
    options: dict[str, Any] = {"sweeps": 5, "min_count": 1, "seed": 2}
    a, b = fit_with("tomotopy", PASSAGES[:180], 6, **options), fit(PASSAGES[:180], 6, **options)
    np.testing.assert_array_equal(a.model.phi, b.model.phi)


@BOTH
def test_bad_input_is_refused_as_by_tomotopy_and_nothing_stays_on_disk(
    fit_topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for passages, message in (
        (["word"] * 2, "more topics than documents"),
        (iter(PASSAGES), "only once"),
        ("text", "one text"),
        (["the of and"], "no word is left"),
    ):
        with pytest.raises(InputError, match=message):
            fit_topics(passages, 3)
    for option in ({"seed": -1}, {"min_count": 0}):
        with pytest.raises(InputError, match="impossible option"):
            fit_topics(PASSAGES, 3, **option)
    assert list(tmp_path.iterdir()) == []


def test_impossible_options_are_refused() -> None:
    for option in ({"rate": Rate(passes=0)}, {"rate": Rate(batch=0)}, {"max_words": 0}, {"words_held": 0}):
        with pytest.raises(InputError, match="impossible option"):
            fit_stream(PASSAGES, 3, **option)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="impossible option"):
        reread(PASSAGES, sweeps=0)
    with pytest.raises(InputError, match="unknown engine"):
        fit_with("sklearn", PASSAGES, 3)


@BOTH
def test_without_gensim_the_error_says_how_to_get_it(fit_topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(gensim_lda.metadata, "version", missing)
    with pytest.raises(InputError, match="not installed") as caught:
        fit_topics(PASSAGES)
    assert "topicscope[gensim]" in (caught.value.advice or "")


@BOTH
@pytest.mark.parametrize("interrupt_at", [0.0, 1])
def test_ctrl_c_is_seen_inside_a_fit_and_progress_reaches_the_end(
    fit_topics: Any, interrupt_at: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recorder = Recorder()
    passes = fit_topics(PASSAGES, progress=recorder).provenance["sweeps"]
    fitting = [done for event, task, done in recorder.events if task == "fit topics" and event == "update"]
    assert fitting == sorted(fitting)
    assert fitting[-1] == passes
    assert ("start", "fit topics", passes) in recorder.events
    with pytest.raises(KeyboardInterrupt):
        fit_topics(PASSAGES, progress=Recorder(interrupt_at=interrupt_at))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be kept on disk") as caught:
        gensim_lda._StoredWords(tmp_path / "missing").write(map(str.split, PASSAGES))
    assert "TMPDIR" in (caught.value.advice or "")


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match="cannot be kept on disk"):
        gensim_lda._StoredWords(tmp_path).write(map(str.split, PASSAGES))


def test_an_error_of_the_text_itself_is_left_as_it_is(tmp_path: Path) -> None:
    def broken() -> Iterator[list[str]]:
        yield ["word"]
        raise OSError(5, "broken", str(tmp_path / "elsewhere" / "text"))

    with pytest.raises(OSError, match="broken"):
        gensim_lda._StoredWords(tmp_path).write(broken())
