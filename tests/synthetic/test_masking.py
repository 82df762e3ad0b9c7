"""The corruption of Knowl 6: rates, the law of the mask, specials, saved sets."""

from collections import Counter
from itertools import product
from math import comb

import numpy as np
import pytest
from scipy.stats import chisquare

from topicscope.errors import InputError
from topicscope.records import write_npz
from topicscope.synthetic import DocumentLaw, Documents, MaskedBatch, Masking
from topicscope.synthetic.masking import first_selected
from topicscope.topics import TopicModel

LAW = DocumentLaw(TopicModel.disjoint(3, 4), 2, (20, 30))


def apply(masking: Masking, seed: int = 0, documents: int = 3000) -> tuple[Documents, MaskedBatch]:
    rng = np.random.default_rng(seed)
    drawn = LAW.draw(rng, documents)
    return drawn, masking.apply(rng, drawn)


def within(share: float, expected: float, n: int) -> bool:
    return abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / n)


def test_rates_of_selected_kept_random_and_masked() -> None:
    drawn, batch = apply(Masking(0.15, 0.2, 0.3, "token"))
    valid = batch.labels <= 12
    np.testing.assert_array_equal(valid.sum(axis=1), drawn.lengths)
    assert within(batch.selected[valid].mean(), 0.15, valid.sum())
    # The same words in another order.
    np.testing.assert_array_equal(
        np.sort(batch.labels[0])[: drawn.lengths[0]], np.sort(drawn.words[: drawn.lengths[0]])
    )
    np.testing.assert_array_equal(np.bincount(batch.labels[valid]), np.bincount(drawn.words))
    np.testing.assert_array_equal(batch.input_ids[~batch.selected], batch.labels[~batch.selected])
    shown, true = batch.input_ids[batch.selected], batch.labels[batch.selected]
    n = len(shown)
    assert within((shown == 0).mean(), 0.5, n)
    assert within((shown == true).mean(), 0.2 + 0.3 / 12, n)
    # A replaced word is uniform over the words, and independent of what was there.
    replaced = shown[(shown != 0) & (shown != true)]
    assert set(np.unique(replaced)) == set(range(1, 13))
    assert chisquare(np.bincount(replaced - 1)).pvalue > 1e-4
    assert not batch.selected[~valid].any()
    np.testing.assert_array_equal(batch.attendable, valid)


@pytest.mark.parametrize("p_mask", [0.1, 0.6])
def test_document_weighting_draws_masks_given_at_least_one_selected(p_mask) -> None:
    """All 2^N - 1 masks of a short document against their exact conditional probabilities."""
    N, n = 4, 60_000
    documents = Documents(np.ones(n * N, dtype=np.int64), np.full(n, N), 12)
    masks = Masking(p_mask, 0.2, 0.3).apply(np.random.default_rng(1), documents).selected
    seen = Counter(map(tuple, masks.tolist()))
    assert (False,) * N not in seen
    possible = [mask for mask in product([False, True], repeat=N) if any(mask)]
    some = 1 - (1 - p_mask) ** N
    expected = np.array([p_mask ** sum(mask) * (1 - p_mask) ** (N - sum(mask)) / some for mask in possible])
    observed = np.array([seen[mask] for mask in possible])
    assert chisquare(observed, n * expected).pvalue > 1e-4
    # Taking one uniformly chosen position where the mask is empty would be a different law.
    naive = np.array(
        [p_mask ** sum(m) * (1 - p_mask) ** (N - sum(m)) + (1 - some) / N * (sum(m) == 1) for m in possible]
    )
    assert chisquare(observed, n * naive).pvalue < 1e-6


def test_masks_of_ragged_documents_keep_to_their_documents() -> None:
    """Lengths 1 to 3: the number of selected positions of each document has its own conditional binomial law."""
    lengths = np.tile([1, 2, 3], 20_000)
    documents = Documents(np.ones(lengths.sum(), dtype=np.int64), lengths, 12)
    batch = Masking(0.2, 0.2, 0.3, specials=True).apply(np.random.default_rng(2), documents)
    k = batch.selected.sum(axis=1)
    for N in (1, 2, 3):
        expected = np.array([comb(N, i) * 0.2**i * 0.8 ** (N - i) for i in range(1, N + 1)]) / (1 - 0.8**N)
        observed = np.bincount(k[lengths == N], minlength=N + 1)
        assert observed[0] == 0
        assert N == 1 or chisquare(observed[1:], 20_000 * expected).pvalue > 1e-4


def test_token_weighting_leaves_empty_masks_as_they_are() -> None:
    documents = Documents(np.ones(20_000, dtype=np.int64), np.full(5000, 4), 12)
    masks = Masking(0.2, 0.2, 0.3, "token").apply(np.random.default_rng(1), documents).selected
    assert within((~masks.any(axis=1)).mean(), 0.8**4, 5000)


def test_a_tiny_rate_and_a_length_of_one_end_at_once() -> None:
    documents = Documents(np.ones(50, dtype=np.int64), np.ones(50, dtype=np.int64), 12)
    assert Masking(1e-12, 0.2, 0.3).apply(np.random.default_rng(0), documents).selected.all()
    first = first_selected(np.random.default_rng(0), np.full(1000, 10), 1e-12)
    assert first.min() == 0
    assert first.max() == 9


def test_specials_are_attended_and_never_selected_or_words() -> None:
    drawn, batch = apply(Masking(0.4, 0.2, 0.3, specials=True), documents=200)
    assert batch.input_ids.shape[1] == drawn.lengths.max() + 2
    for ids in (batch.input_ids, batch.labels):
        assert (ids[:, 0] == 13).all()
        assert (ids[np.arange(200), drawn.lengths + 1] == 14).all()
        assert ((ids >= 13).sum(axis=1) == ids.shape[1] - drawn.lengths).all()
    np.testing.assert_array_equal(batch.attendable.sum(axis=1), drawn.lengths + 2)
    assert not batch.selected[batch.labels > 12].any()
    assert batch.input_ids[batch.selected].max() <= 12


def test_hidden_selected_positions_are_the_only_difference() -> None:
    _, plain = apply(Masking(0.3, 0.2, 0.3), documents=50)
    _, hidden = apply(Masking(0.3, 0.2, 0.3, hide_selected=True), documents=50)
    np.testing.assert_array_equal(plain.input_ids, hidden.input_ids)
    np.testing.assert_array_equal(hidden.attendable, plain.attendable & ~plain.selected)
    assert (plain.attendable & plain.selected).any()


@pytest.mark.parametrize("weighting", ["document", "token"])
def test_weights_of_positions(weighting) -> None:
    batch = MaskedBatch(*(np.zeros((3, 4), dtype=np.int64),) * 2, np.zeros((3, 4), bool), np.ones((3, 4), bool), 12)
    assert batch.position_weights(weighting).sum() == 0
    batch.selected[0, :3] = batch.selected[2, 1] = True
    expected = {"document": [[1 / 6, 1 / 6, 1 / 6, 0], [0] * 4, [0, 1 / 2, 0, 0]]}
    expected["token"] = [[1 / 4, 1 / 4, 1 / 4, 0], [0] * 4, [0, 1 / 4, 0, 0]]
    np.testing.assert_allclose(batch.position_weights(weighting), expected[weighting])


def test_a_saved_set_comes_back_and_a_broken_one_is_refused(tmp_path) -> None:
    _, batch = apply(Masking(0.3, 0.2, 0.3, specials=True), documents=20)
    batch.save(tmp_path / "set.npz")
    again = MaskedBatch.load(tmp_path / "set.npz")
    for name in ("input_ids", "labels", "selected", "attendable"):
        np.testing.assert_array_equal(getattr(again, name), getattr(batch, name))
    assert again.vocabulary_size == 12
    write_npz(tmp_path / "other.npz", {"phi": np.ones(3)})
    arrays = {n: getattr(batch, n) for n in ("input_ids", "labels", "selected", "attendable")}
    write_npz(tmp_path / "ids.npz", {**arrays, "input_ids": batch.input_ids + 9, "vocabulary_size": np.asarray(12)})
    write_npz(tmp_path / "shape.npz", {**arrays, "labels": batch.labels[:, 1:], "vocabulary_size": np.asarray(12)})
    for name, message in (("other", "not a set"), ("ids", "outside the vocabulary"), ("shape", "differ in shape")):
        with pytest.raises(InputError, match=message):
            MaskedBatch.load(tmp_path / f"{name}.npz")


def test_impossible_rates_are_refused() -> None:
    for bad in ((0.0, 0.1, 0.1), (0.15, 0.6, 0.4), (1.0, 0.1, 0.1), (0.15, -0.1, 0.1)):
        with pytest.raises(InputError):
            Masking(*bad)
