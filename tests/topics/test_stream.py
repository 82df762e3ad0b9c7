"""Topics of text that is read once: gensim's own numbers, planted topics, nothing hidden, errors that help."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gensim.models import LdaModel

from topics.test_lda import Recorder, planted_passages, purity
from topicscope.errors import InputError, RunError
from topicscope.progress import SilentProgress
from topicscope.runner import Here
from topicscope.text import split_words
from topicscope.topics import TOP_WORDS, Rate, coherence, expectation, fit_stream, fit_with
from topicscope.topics.expectation import expected
from topicscope.topics.lda import count_text
from topicscope.topics.stored_text import Bags, StoredText, store_text

PASSAGES = planted_passages(6, 20, 1024, 20, seed=1)
LIKE_GENSIM = Rate(batch=256, decay=0.7, offset=10.0, strips=1)


def stored(passages: list[str], folder: Path, **options: object) -> StoredText:
    given = {"min_count": 1, "max_words": 1000, "words_held": 1000, "language": "en", "stop_words": ["the"]}
    folder.mkdir()
    return store_text(passages, folder, splitter=split_words, progress=SilentProgress(), **{**given, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("passes", [1, 2])
def test_with_gensims_settings_the_topics_are_gensims_to_the_last_bit(
    passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gensim draws random numbers when it writes topics to its log, which changes those after them.
    monkeypatch.setattr(LdaModel, "print_topics", lambda *_: None)
    ours = fit_stream(PASSAGES, 6, rate=Rate(**{**LIKE_GENSIM.__dict__, "passes": passes}), min_count=1)
    theirs = fit_with("gensim", PASSAGES, 6, sweeps=passes, min_count=1)
    assert ours.model.vocabulary == theirs.model.vocabulary
    np.testing.assert_array_equal(ours.model.phi, theirs.model.phi)
    other = fit_stream(PASSAGES, 6, rate=Rate(passes=passes), min_count=1)
    assert np.abs(ours.model.phi - other.model.phi).max() > 1e-6


def test_planted_topics_are_found_in_one_pass_and_one_reading() -> None:
    class Passages:
        readings = 0

        def __iter__(self) -> Iterator[str]:
            Passages.readings += 1
            yield from PASSAGES

    found = [fit_stream(Passages(), 6, rate=Rate(batch=64), min_count=1, seed=seed) for seed in range(3)]
    assert max(map(purity, found)) > 0.8  # variational LDA may merge two of six topics from a bad start
    assert Passages.readings == 3
    words = " ".join(PASSAGES).split()
    np.random.default_rng(0).shuffle(words)
    shuffled = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    assert purity(fit_stream(shuffled, 6, rate=Rate(batch=64), min_count=1)) < 0.6


def test_the_same_text_and_seed_give_the_same_topics_and_another_seed_others() -> None:
    a, b, c = (fit_stream(PASSAGES[:200], 4, min_count=1, seed=seed).model.phi for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3


TEXT = ["the cat and the dog saw zebras", *PASSAGES[:30], "", "12 34"]


def test_the_provenance_counts_the_same_text_as_other_engines_and_the_coherence_is_that_of_the_text() -> None:
    record = fit_stream(TEXT, 3, min_count=2).provenance
    other = fit_with("sklearn", TEXT, 3, sweeps=1, min_count=2).provenance
    shared = ("documents", "tokens", "vocabulary_size", "stop_words", "language", "min_count", "splitter", "warnings")
    assert {name: record[name] for name in shared} == {name: other[name] for name in shared}
    assert other["dropped"].items() <= record["dropped"].items()
    assert {record["dropped"][name] for name in record["dropped"].keys() - other["dropped"].keys()} == {0}
    assert record == json.loads(json.dumps(record))
    assert (record["readings_of_the_text"], record["e_steps_of_a_passage"], record["batches"]) == (1, 1, 1)
    topics = fit_stream(TEXT, 3, min_count=2)
    assert topics.provenance["coherence"] == coherence(topics.top_words(TOP_WORDS), TEXT).to_dict()


def test_a_vocabulary_that_is_capped_keeps_the_most_frequent_and_counts_the_rest(tmp_path: Path) -> None:
    whole, cut = (stored(TEXT, tmp_path / str(most), max_words=most) for most in (1000, 5))
    assert cut.vocabulary == whole.vocabulary[:5]
    dropped = cut.left_out["dropped"]
    assert dropped["words_beyond_the_vocabulary"] == len(whole.vocabulary) - 5
    assert dropped["tokens_beyond_the_vocabulary"] == whole.tokens - cut.tokens > 0
    assert whole.left_out["dropped"]["words_beyond_the_vocabulary"] == 0
    topics = fit_stream(TEXT, 3, min_count=1, max_words=5)
    assert topics.model.vocabulary.words == cut.vocabulary


def test_words_that_were_forgotten_are_counted_and_said(tmp_path: Path) -> None:
    text = [" ".join([*["common"] * 5, *["usual"] * 3, f"rare{'abcdefghijklmnopqrst'[i]}"]) for i in range(18)]
    exact, bounded = stored(text, tmp_path / "a"), stored(text, tmp_path / "b", words_held=6)
    assert exact.left_out["warnings"] == []
    assert exact.left_out["dropped"]["largest_count_of_a_pruned_word"] == 0
    dropped = bounded.left_out["dropped"]
    assert dropped["pruned_words"] == dropped["pruned_tokens"] > 0
    assert 0 < dropped["largest_count_of_a_pruned_word"] < 20
    assert len(bounded.vocabulary) + dropped["pruned_words"] == 20
    assert bounded.tokens + dropped["pruned_tokens"] == exact.tokens
    (warning,) = bounded.left_out["warnings"]
    assert f"{len(bounded.vocabulary) - 2} words of the vocabulary" in warning
    assert bounded.vocabulary[-1] in warning
    assert "common" not in warning
    assert stored(text, tmp_path / "c", words_held=6, min_count=30).left_out["warnings"] == []


@pytest.mark.parametrize(("strips", "size"), [(1, 7), (3, 10), (64, 10), (5, 100)])
def test_batches_hold_every_passage_once_and_are_spread_over_the_text(strips: int, size: int, tmp_path: Path) -> None:
    passages = [" ".join(["common", *[f"w{'abcdefghij'[int(c)]}" for c in f"{i:02}"]]) for i in range(57)]
    text = stored(["the", *passages, ""], tmp_path / "text", strips=strips)
    batches = list(text.batches(size))
    assert len(batches) == -(-57 // size)
    assert max(map(len, batches)) - min(map(len, batches)) <= max(2, strips // 4)
    found = [" ".join(text.vocabulary[w] for w, n in bag for _ in range(n)) for batch in batches for bag in batch]
    expected = [sorted(passage.split()) for passage in passages]
    read = [sorted(passage.split()) for passage in found]
    assert sorted(read) == sorted(expected)
    assert (read == expected) == (strips == 1 or len(batches) == 1)
    assert text.documents == 57
    assert text.left_out["dropped"]["passages_without_a_word"] == 2


def test_bags_are_those_of_the_words(tmp_path: Path) -> None:
    kept = count_text(
        TEXT, min_count=2, language="en", stop_words=["the"], splitter=split_words, progress=SilentProgress()
    )
    place = {word: i for i, word in enumerate(kept.vocabulary)}
    twins = [sorted((place[word], words.count(word)) for word in set(words)) for words in kept]
    text = stored(TEXT, tmp_path / "text", min_count=2, strips=1)
    (batch,) = text.batches(1000)
    assert text.vocabulary == kept.vocabulary
    assert list(batch) == twins
    assert list(batch.part(3, 9)) == twins[3:9]
    assert text.tokens == sum(len(words) for words in kept)


def made_batch(passages: int, words: int) -> Bags:
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 12, passages)
    bags = [draw.choice(words, size, replace=False) for size in sizes]
    counts = draw.integers(1, 5, int(sizes.sum()))
    return Bags(*(np.asarray(array, dtype=np.uint32) for array in (np.concatenate(bags), counts, sizes)))


def test_an_e_step_in_parts_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, alpha = made_batch(100, 60), np.full(5, 0.1)
    model = LdaModel(num_topics=5, id2word={59: ""}, alpha=alpha, iterations=50, random_state=0, dtype=np.float64)
    start = model.random_state.get_state()
    whole = model.inference(list(batch), collect_sstats=True)[1]
    after = model.random_state.rand()

    def in_parts(size: int, runner: Here) -> np.ndarray:
        monkeypatch.setattr(expectation, "PART", size)
        model.random_state.set_state(start)
        found = expected(runner, batch, model.expElogbeta, alpha, 50, model.random_state)
        assert model.random_state.rand() == after
        return found

    class Backwards(Here):
        """The last job first, as a cluster might."""

        def run(self, work, jobs):  # type: ignore[no-untyped-def]
            return super().run(work, jobs[::-1])

    np.testing.assert_array_equal(in_parts(100, Here()), whole)
    np.testing.assert_allclose(in_parts(13, Here()), whole, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(in_parts(13, Here()), in_parts(13, Backwards()))
    model.random_state.set_state(start)
    model.random_state.rand(3)
    other = model.inference(list(batch), collect_sstats=True)[1]
    assert np.abs(other - whole).max() > 1e-6, "the start of the proportions shows in the result"


def test_a_part_that_cannot_be_done_ends_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(expectation, "expect", broken)
    with pytest.raises(RunError, match="a part of the text") as caught:
        fit_stream(PASSAGES[:50], 3, min_count=1)
    assert "no room" in str(caught.value)


def test_bad_input_is_refused_and_nothing_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for passages, message in (
        (["word"] * 2, "more topics than documents"),
        (iter(PASSAGES), "only once"),
        ("text", "one text"),
        (["the of and"], "no word is left"),
    ):
        with pytest.raises(InputError, match=message):
            fit_stream(passages, 3, min_count=1)
    for option in ({"rate": Rate(passes=0)}, {"rate": Rate(batch=0)}, {"seed": -1}, {"max_words": 0}):
        with pytest.raises(InputError, match="impossible option"):
            fit_stream(PASSAGES, 3, **option)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        fit_stream(PASSAGES, 3, rate=Rate(batch=64), min_count=1, progress=Recorder(interrupt_at=3))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be kept on disk") as caught:
        store_text(
            PASSAGES, tmp_path / "missing", min_count=1, max_words=9, words_held=9, language="en", stop_words=None,
            splitter=split_words, progress=SilentProgress(),
        )  # fmt: skip
    assert "TMPDIR" in (caught.value.advice or "")


def test_progress_reaches_the_end() -> None:
    recorder = Recorder()
    fit_stream(PASSAGES, 3, rate=Rate(batch=256, passes=2), min_count=1, progress=recorder)
    fitting = [done for event, task, done in recorder.events if task == "fit topics" and event == "update"]
    assert fitting == list(range(1, 9))
    assert ("start", "fit topics", 8) in recorder.events
