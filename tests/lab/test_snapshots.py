"""Snapshots hold the matrices that a run had, in the order of topics, and their block means where they are large."""

import itertools

import numpy as np
import pytest
import torch

from topicscope.lab import make_recipe, train
from topicscope.lab.history import MOST_BINS, Snapshots
from topicscope.topics import TopicModel, Vocabulary

SMALL = {"num_topics": 3, "words_per_topic": 2, "topics_per_document": 2, "source": "population"}


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 12_345])
def test_steps_are_few_and_reach_from_the_first_to_the_last(steps) -> None:
    found = sorted(Snapshots(TopicModel.disjoint(2, 2), frozenset(), steps).steps)
    assert (found[0], found[-1]) == (0, steps)
    assert len(found) <= 20
    ratios = [b / a for a, b in itertools.pairwise(found) if a > 30]
    assert not ratios or max(ratios) < 1.2 * min(ratios)


def test_frames_are_the_weights_of_shorter_runs() -> None:
    """A run of k steps ends with what a longer one had after k: the slow way to see a snapshot."""
    document = {
        "data": SMALL,
        "model": {"sigma": 0.01},
        "training": {"loss": "squared", "optimizer": "sgd", "steps": 12},
    }
    kept = train(make_recipe(document), seeds=2).snapshots
    assert kept["token"].tolist() == list(range(7))
    assert kept["topic"].tolist() == [-1, 0, 0, 1, 1, 2, 2]
    for step in (1, 12):
        document["training"]["steps"] = step
        weights = train(make_recipe(document)).weights
        frame = kept["step"].tolist().index(step)
        np.testing.assert_allclose(kept["W_V"][frame], weights["W_V"][0], rtol=1e-6)
        logits = weights["W_K"][0].T @ weights["W_Q"][0] / np.sqrt(len(weights["W_K"][0]))
        np.testing.assert_allclose(kept["logits"][frame], logits, rtol=1e-5)
    assert "E" not in kept
    assert not np.allclose(kept["W_V"][0], kept["W_V"][-1])


def test_the_last_frame_is_of_the_averaged_weights() -> None:
    training = {"loss": "squared", "optimizer": "sgd", "steps": 8, "average": 0.5}
    record = train(make_recipe({"data": SMALL, "model": {"attention": "uniform"}, "training": training}))
    np.testing.assert_allclose(record.snapshots["W_V"][-1], record.weights["W_V"][0], rtol=1e-6)


def test_words_stand_in_the_order_of_their_likeliest_topic() -> None:
    phi = np.array([[0.1, 0.6, 0.1, 0.2], [0.4, 0.0, 0.4, 0.2]])
    topics = TopicModel.normalised(phi, Vocabulary(("a", "b", "c", "d")))
    snapshots = Snapshots(topics, frozenset(), 4)
    W_V = torch.arange(25.0).reshape(1, 5, 5)
    snapshots.take(0, {"W_E": torch.eye(5)[None], "W_V": W_V, "W_K": torch.eye(5)[None], "W_Q": torch.eye(5)[None]})
    kept = snapshots.arrays()
    assert kept["token"].tolist() == [0, 2, 4, 1, 3]
    assert kept["topic"].tolist() == [-1, 0, 0, 1, 1]
    np.testing.assert_array_equal(kept["W_V"][0], W_V[0].numpy()[np.ix_([0, 2, 4, 1, 3], [0, 2, 4, 1, 3])])


def one_frame(weights: dict[str, np.ndarray], frozen: set[str], topics: TopicModel) -> dict[str, np.ndarray]:
    snapshots = Snapshots(topics, frozenset(frozen), 4)
    snapshots.take(0, {name: torch.from_numpy(value)[None] for name, value in weights.items()})
    return {name: frames[0] for name, frames in snapshots.arrays().items() if name in ("W_V", "E", "logits")}


def test_large_matrices_are_block_means() -> None:
    matrix = np.random.default_rng(0).normal(size=(451, 451))
    weights = {"W_E": np.eye(451), "W_V": matrix, "W_K": np.eye(451), "W_Q": np.eye(451)}
    edge = np.linspace(0, 451, MOST_BINS + 1).astype(int)
    found = one_frame(weights, {"W_E", "W_K"}, TopicModel.disjoint(1, 450))["W_V"]
    assert found.shape == (MOST_BINS, MOST_BINS)
    for a, b in ((0, 0), (17, 150), (199, 3)):
        block = matrix[edge[a] : edge[a + 1], edge[b] : edge[b + 1]]
        assert found[a, b] == pytest.approx(block.mean())
    sizes = np.diff(edge)
    assert (found * np.outer(sizes, sizes)).sum() == pytest.approx(matrix.sum())
    small = {"W_E": np.eye(200), "W_V": matrix[:200, :200], "W_K": np.eye(200), "W_Q": np.eye(200)}
    found = one_frame(small, {"W_E", "W_K"}, TopicModel.disjoint(1, 199))["W_V"]
    np.testing.assert_array_equal(found, matrix[:200, :200].astype(np.float32))


def test_what_is_frozen_is_not_kept() -> None:
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=(4, 4)) for name in ("W_E", "W_V", "W_K", "W_Q")}
    topics = TopicModel.disjoint(1, 3)
    assert one_frame(weights, set(weights), topics) == {}
    assert one_frame(weights, {"W_V", "W_K", "W_Q"}, topics).keys() == {"E"}
    trained = one_frame(weights, {"W_K"}, topics)
    expected = weights["W_E"].T @ weights["W_V"] @ weights["W_E"]
    np.testing.assert_allclose(trained["W_V"], expected.astype(np.float32), rtol=1e-7)  # as it is kept
