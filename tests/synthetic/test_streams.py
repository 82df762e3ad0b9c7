"""Streams: exact resume, epochs, and no tokens where there are none."""

import json

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.synthetic import (
    DocumentLaw,
    FixedDocuments,
    FreshDocuments,
    Masking,
    Population,
    SampledCounts,
    count_tokens,
)
from topicscope.topics import TopicModel

TOPICS = TopicModel.disjoint(3, 4)
LAW = DocumentLaw(TOPICS, 2, (5, 9))
MASKING = Masking(0.3, 0.3, 0.3)


def fixed(batch_size: int | None = 4, seed: int = 0) -> FixedDocuments:
    rng = np.random.default_rng(9)
    return FixedDocuments(MASKING.apply(rng, LAW.draw(rng, 10)), MASKING, batch_size, seed)


STREAMS = {
    "fresh": lambda seed: FreshDocuments(LAW, MASKING, 6, seed),
    "fixed": lambda seed: fixed(4, seed),
    "counts": lambda seed: SampledCounts(DocumentLaw(TOPICS, 2, 1000), MASKING, 6, seed),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("by_query", [False, True])
@pytest.mark.parametrize("steps", [0, 3, 130])
def test_a_restored_stream_continues_exactly(name, by_query, steps) -> None:
    stream, other = STREAMS[name](0), STREAMS[name](1)
    for _ in range(steps):
        stream.next_counts(by_query=by_query)
    other.restore(json.loads(json.dumps(stream.state())))
    for _ in range(5):
        one, two = stream.next_counts(by_query=by_query), other.next_counts(by_query=by_query)
        for field in ("inputs", "document", "query", "targets"):
            np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
    assert (
        STREAMS[name](0).next_counts(by_query=False).inputs != STREAMS[name](1).next_counts(by_query=False).inputs
    ).any()


@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("weighting", ["document", "token"])
@pytest.mark.parametrize("by_query", [False, True])
def test_fresh_counts_are_the_counts_of_the_same_tokens(specials, hidden, weighting, by_query) -> None:
    masking = Masking(0.3, 0.3, 0.3, weighting, specials, hidden)
    as_tokens, as_counts = (FreshDocuments(DocumentLaw(TOPICS, None, (1, 6)), masking, 9, 5) for _ in range(2))
    as_tokens.ahead = as_counts.ahead = 3
    for _ in range(20):
        slow = count_tokens(as_tokens.next_batch(), as_tokens.num_tokens, weighting, by_query=by_query)
        fast = as_counts.next_counts(by_query=by_query)
        for field in ("inputs", "document", "query", "targets"):
            np.testing.assert_allclose(getattr(fast, field), getattr(slow, field), rtol=0, atol=1e-15)


def test_tokens_too_are_the_same_after_a_restore_and_mixed_reading() -> None:
    stream, other = STREAMS["fresh"](3), STREAMS["fresh"](4)
    for _ in range(stream.ahead + 2):
        stream.next_batch()
    other.restore(json.loads(json.dumps(stream.state())))
    stream.next_batch(), other.next_counts(by_query=True)
    for _ in range(stream.ahead + 1):
        one, two = stream.next_batch(), other.next_batch()
        np.testing.assert_array_equal(one.input_ids, two.input_ids)
        np.testing.assert_array_equal(one.selected, two.selected)


def test_batches_never_repeat() -> None:
    stream = STREAMS["fresh"](0)
    seen = {stream.next_counts(by_query=False).targets.tobytes() for _ in range(3 * stream.ahead)}
    assert len(seen) == 3 * stream.ahead > 3


def test_an_epoch_shows_every_document_once_and_counts_what_it_skips() -> None:
    stream = fixed(5)
    rows = [tuple(row) for row in stream.batch.input_ids]
    for _ in range(3):
        seen = [tuple(row) for _ in range(2) for row in stream.next_batch().input_ids]
        assert sorted(seen) == sorted(rows)
    assert stream.skipped == 0
    odd = fixed(4)
    for _ in range(5):
        odd.next_batch()
    assert odd.skipped == 4


def test_all_documents_at_once_are_one_batch() -> None:
    assert len(fixed(None).next_batch()) == 10
    assert Population(TOPICS, 2, MASKING).num_tokens == 13


def test_tokens_that_do_not_exist_are_refused() -> None:
    for stream in (STREAMS["counts"](0), Population(TOPICS, 2, MASKING)):
        with pytest.raises(InputError, match="only as counts"):
            stream.next_batch()


def test_impossible_batch_sizes_are_refused() -> None:
    for bad in (lambda: fixed(11), lambda: fixed(0), lambda: FreshDocuments(LAW, MASKING, 0)):
        with pytest.raises(InputError, match="batch size"):
            bad()
