"""The block matrix and the histograms against every pair, visited one by one."""

import numpy as np
import pytest

from topicscope.probing.embeddings.similarity import MOST_BINS, SAMPLED_WORDS, embedding_map


def some_words(number: int, topics: int, several: bool, seed: int = 0) -> tuple[list[str], np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    membership = np.zeros((number, topics), dtype=bool)
    membership[np.arange(number), draw.integers(topics, size=number)] = True
    if several:
        membership[::3, 0] = True
    membership[::7] = False
    vectors = draw.normal(size=(number, 6)) + membership @ draw.normal(size=(topics, 6))
    return [f"w{i}" for i in range(number)], vectors, membership


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("several", [False, True])
def test_every_block_is_the_mean_over_its_pairs(several: bool) -> None:
    words, vectors, membership = some_words(530, 9, several)
    found = embedding_map(words, vectors, membership)
    number = {word: i for i, word in enumerate(words)}
    order = [number[str(word)] for word in found["words"]]
    assert sorted(order) == np.flatnonzero(membership.any(1)).tolist()
    first = membership.argmax(1)[order]
    assert (np.diff(first) >= 0).all()
    assert found["topics"].tolist() == sorted(set(first.tolist()))
    assert [int(np.flatnonzero(first == t)[0]) for t in found["topics"]] == found["starts"].tolist()
    edges = found["edges"].tolist()
    assert len(edges) == MOST_BINS + 1
    for a, b in [(0, 0), (3, 3), (5, 120), (120, 5), (199, 0), (199, 199)]:
        ours = order[edges[a] : edges[a + 1]]
        theirs = order[edges[b] : edges[b + 1]]
        pairs = [cosine(vectors[i], vectors[j]) for i in ours for j in theirs if i != j]
        assert found["cosine"][a, b] == pytest.approx(np.mean(pairs), abs=1e-6)


def test_the_histograms_count_every_pair_once() -> None:
    words, vectors, membership = some_words(61, 4, True)
    found = embedding_map(words, vectors, membership)
    having = np.flatnonzero(membership.any(1)).tolist()
    same, different = [], []
    for i, first in enumerate(having):
        for second in having[i + 1 :]:
            shared = bool((membership[first] & membership[second]).any())
            (same if shared else different).append(cosine(vectors[first], vectors[second]))
    assert found["same"].tolist() == np.histogram(same, found["bounds"])[0].tolist()
    assert found["different"].tolist() == np.histogram(different, found["bounds"])[0].tolist()
    assert found["same"].sum() + found["different"].sum() == len(having) * (len(having) - 1) // 2
    # Negative control: vectors with topics in them differ between the classes.
    assert np.mean(same) > np.mean(different) + 0.1


def test_a_large_vocabulary_is_sampled_and_says_so() -> None:
    words, vectors, membership = some_words(3000, 5, False)
    first, again = (embedding_map(words, vectors, membership, seed=1) for _ in range(2))
    assert int(first["sampled_words"]) == SAMPLED_WORDS
    assert first["same"].sum() + first["different"].sum() == SAMPLED_WORDS * (SAMPLED_WORDS - 1) // 2
    assert all(np.array_equal(first[name], again[name], equal_nan=first[name].dtype.kind == "f") for name in first)
    assert not np.array_equal(first["same"], embedding_map(words, vectors, membership, seed=2)["same"])


def test_vectors_without_direction_are_left_out_and_counted() -> None:
    words, vectors, membership = some_words(40, 3, False)
    having = np.flatnonzero(membership.any(1))
    vectors[having[0]], vectors[having[1], 0] = 0.0, np.nan
    found = embedding_map(words, vectors, membership)
    assert int(found["left_out"]) == 2
    assert not {words[having[0]], words[having[1]]} & set(found["words"].tolist())
    assert np.isfinite(found["cosine"][~np.eye(len(found["cosine"]), dtype=bool)]).all()
    assert np.isnan(np.diag(found["cosine"])).all()  # one word a bin, and its pair with itself is no pair


@pytest.mark.parametrize("number", [0, 1])
def test_without_a_pair_there_is_no_map(number: int) -> None:
    membership = np.zeros((3, 2), dtype=bool)
    membership[:number, 0] = True
    assert embedding_map(["a", "b", "c"], np.ones((3, 4)), membership) == {}
