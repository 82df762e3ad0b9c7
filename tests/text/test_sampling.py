"""Samples of documents: uniform over seeds, nested, in order, the same whenever they are read, and on record."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from scipy.stats import chi2

from topicscope.errors import InputError
from topicscope.text import Corpus, Document, corpus_from, sample_documents
from topicscope.text.source import Faults


def corpus_of(number: int) -> Corpus:
    return corpus_from([(f"d{i}", f"text {i}") for i in range(number)], name="made up")


def drawn(number: int, documents: int, seed: int) -> list[str]:
    return [document.id for document in sample_documents(corpus_of(number), documents, seed).corpus]


def unevenness(counts: Counter[str], cells: int, draws: int, share: float) -> float:
    """P of a χ² as large, of counts that were each Binomial(draws, share)."""
    expected = draws * share
    statistic = sum((counts[f"d{i}"] - expected) ** 2 for i in range(cells)) / (expected * (1 - share))
    return float(chi2.sf(statistic, cells - 1))


@pytest.fixture(scope="module")
def samples() -> list[list[str]]:
    """Five of twelve documents, by 250 seeds."""
    corpus = corpus_of(12)
    return [[document.id for document in sample_documents(corpus, 5, seed).corpus] for seed in range(250)]


def test_over_seeds_every_document_is_drawn_equally_often(samples: list[list[str]]) -> None:
    counts = Counter(identity for sample in samples for identity in sample)
    assert counts.total() == 250 * 5
    assert unevenness(counts, 12, 250, 5 / 12) > 1e-3
    first = Counter(f"d{i}" for _ in samples for i in range(5))
    assert unevenness(first, 12, 250, 5 / 12) < 1e-9, "the first five are no sample"


def test_over_seeds_neighbours_are_drawn_together_as_often_as_chance_says(samples: list[list[str]]) -> None:
    together = [sum({f"d{i}", f"d{i + 1}"} <= set(sample) for i in range(11)) / 11 for sample in samples]
    assert abs(sum(together) / len(samples) - 5 / 12 * 4 / 11) < 0.03


def test_a_smaller_sample_is_part_of_a_larger_one_and_both_keep_the_order() -> None:
    samples = [drawn(50, size, seed=3) for size in (1, 2, 10, 49, 50, 51)]
    for smaller, larger in pairwise(samples):
        assert set(smaller) <= set(larger)
    for sample in samples:
        assert sample == sorted(sample, key=lambda identity: int(identity[1:]))
    assert [len(sample) for sample in samples] == [1, 2, 10, 49, 50, 50]
    assert samples[2] == drawn(50, 10, seed=3) != drawn(50, 10, seed=4)


def test_documents_with_one_id_are_drawn_each_on_its_own() -> None:
    corpus = corpus_from([("same", f"text {i}") for i in range(40)])
    texts = {document.text for document in sample_documents(corpus, 10, 0).corpus}
    assert len(texts) == 10
    assert texts != {f"text {i}" for i in range(10)}


def test_it_is_on_record_how_many_were_drawn_of_what() -> None:
    whole = corpus_of(20)
    sample = sample_documents(whole, 5, seed=7)
    assert sample.provenance == {
        "documents_asked_for": 5,
        "documents_drawn": 5,
        "documents_of_the_whole": 20,
        "seed": 7,
        "sha256_of_the_whole": whole.fingerprint(),
    }
    assert sample.corpus.name == "made up"
    own = corpus_from([(d.id, d.text) for d in sample.corpus])
    assert sample.corpus.fingerprint() == own.fingerprint() != whole.fingerprint()
    assert sample.corpus.skipped == {"not sampled": 15}


def test_all_documents_where_there_are_no_more() -> None:
    whole = corpus_of(4)
    sample = sample_documents(whole, 100)
    assert (sample.provenance["documents_drawn"], sample.provenance["documents_asked_for"]) == (4, 100)
    assert sample.corpus.fingerprint() == whole.fingerprint()
    assert sample.corpus.skipped == {}


def test_what_the_whole_leaves_out_stays_counted() -> None:
    def read(faults: Faults) -> Iterator[Document]:
        for i in range(10):
            faults.skip("redirect")
            yield Document(f"d{i}", "" if i == 0 else "text")

    sample = sample_documents(Corpus("redirects", read), 3)
    assert len(list(sample.corpus)) == 3
    assert sample.corpus.skipped == {"redirect": 10, "empty document": 1, "not sampled": 6}


def test_a_text_that_changes_after_the_draw_is_refused() -> None:
    texts = ["one", "two", "three"]
    sample = sample_documents(corpus_from(texts), 2)
    texts.append("four")
    with pytest.raises(InputError, match="changed between two passes"):
        list(sample.corpus)


def test_no_text_is_held() -> None:
    alive, most = 0, 0

    class Watched(str):
        __slots__ = ()

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def read(faults: Faults) -> Iterator[Document]:
        nonlocal alive, most
        for i in range(100):
            alive += 1
            most = max(most, alive)
            yield Document(f"d{i}", Watched(f"text {i}"))

    assert sum(1 for _ in sample_documents(Corpus("watched", read), 50).corpus) == 50
    assert 0 < most < 5


@pytest.mark.parametrize(("documents", "seed"), [(0, 0), (-1, 0), (3, -1), (3, 2**64)])
def test_impossible_samples_are_refused(documents: int, seed: int) -> None:
    with pytest.raises(InputError, match="bad option"):
        sample_documents(corpus_of(5), documents, seed)
