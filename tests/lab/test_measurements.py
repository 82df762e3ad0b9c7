import numpy as np
import pytest

from topicscope.lab import block_means, held_out, make_recipe, topic_model_of, train
from topicscope.lab.history import attention_by_counts
from topicscope.topics import TopicModel


def loops(matrix, topics):
    """Block means by looping over entries; topics: a set of topics for each word."""
    sums = {"mask_column": [], "different": [], "same": [], "diagonal": []}
    for i, mine in enumerate(topics, start=1):
        sums["mask_column"].append(matrix[i, 0])
        for j, theirs in enumerate(topics, start=1):
            kind = "diagonal" if i == j else "same" if mine & theirs else "different"
            sums[kind].append(matrix[i, j])
    return {name: np.mean(values) for name, values in sums.items()}


@pytest.mark.parametrize(
    "topics",
    [TopicModel.disjoint(3, 4), TopicModel.unequal([1, 2, 5]), TopicModel.overlapping(4, 4, 1)],
)
def test_block_means_against_loops(topics) -> None:
    V = len(topics.vocabulary)
    matrix = np.random.default_rng(0).normal(size=(V + 3, V + 3))  # with START and END, which belong to no class
    members = [set(np.flatnonzero(topics.phi[:, word])) for word in range(V)]
    assert block_means(matrix, topics) == pytest.approx(loops(matrix, members), abs=1e-14)


def test_block_means_without_a_pair_are_nan() -> None:
    assert np.isnan(block_means(np.ones((3, 3)), TopicModel.disjoint(2, 1))["same"])
    assert np.isnan(block_means(np.ones((3, 3)), TopicModel.disjoint(1, 2))["different"])


def test_uniform_attention_is_one_over_n_in_every_class() -> None:
    topics = TopicModel.disjoint(3, 4)
    counts = np.zeros((1, 13))
    counts[0, 1:] = np.arange(12)
    found = attention_by_counts(np.zeros((13, 13)), counts, topics)
    assert found == pytest.approx(dict.fromkeys(("same_word", "same_topic", "different_topic"), 1 / 66))


def test_extreme_scores_leave_finite_means() -> None:
    topics = TopicModel.disjoint(2, 2)
    counts = np.array([[0, 2.0, 3, 0, 1]])  # word 3 is absent, and every query would love it
    scores = np.zeros((5, 5))
    scores[:, 3] = 1e4
    found = attention_by_counts(scores, counts, topics)
    assert all(np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("source", ["fresh", "fixed", "counts", "population"])
def test_held_out_documents_follow_the_recipe(source) -> None:
    data = {"num_topics": 3, "words_per_topic": 2, "topics_per_document": 2, "length": 30, "source": source}
    recipe = make_recipe({"data": data | {"documents": 9}, "training": {"batch_size": 3}, "history": {"documents": 7}})
    found = held_out(recipe, topic_model_of(recipe), by_query=True)
    assert found.shares.shape == (7, 7)
    np.testing.assert_allclose(found.shares.sum(1), 100 if source == "population" else 30)
    np.testing.assert_allclose(found.counts.targets.sum(), 1)
    assert (found.batch is None) == (source in ("counts", "population"))
    assert len(found.counts.inputs) == {"fixed": 9, "population": 3}.get(source, 7)
    np.testing.assert_array_equal(found.shares[:, 0], 0)  # unmasked


def test_infinite_documents_agree_with_long_ones() -> None:
    """Attention classes in the population, scaled to 100 tokens, are the limit of sampled documents of many tokens."""
    topics = TopicModel.disjoint(3, 4)
    scores = np.random.default_rng(1).normal(size=(13, 13))
    p = np.concatenate([np.zeros(1), np.repeat([0.5, 0.5, 0.0], 4) / 4])
    limit = attention_by_counts(scores, 100 * p[None], topics, infinite=True)
    long = attention_by_counts(scores, 1e6 * p[None], topics)
    assert {name: value * 1e6 for name, value in long.items()} == pytest.approx(
        {name: value * 100 for name, value in limit.items()}, rel=1e-4
    )


def test_history_columns_follow_the_model() -> None:
    small = {"num_topics": 2, "words_per_topic": 2, "length": 8}
    tables = {"data": small, "training": {"steps": 2, "batch_size": 3}, "history": {"documents": 4}}
    common = {"seed", "step", "loss", "batch_loss", "objective", "learning_rate"}
    W_V = {f"W_V_{part}" for part in ("mask_column", "different", "same", "diagonal")}
    E = {name.replace("W_V", "E") for name in W_V}

    def parts(*names):
        return {f"{name}_{part}" for name in names for part in ("norm", "change", "grad")}

    def columns(model):
        return set(train(make_recipe(tables | {"model": model})).history)

    attention = {f"attention_{kind}" for kind in ("same_word", "same_topic", "different_topic")}
    assert columns({}) == common | W_V | parts("W_V", "W_K", "W_Q") | attention
    assert columns({"attention": "uniform"}) == common | W_V | parts("W_V")
    trained = {"embedding": "trained", "width": 3, "attention": "uniform", "value": "identity"}
    assert columns(trained) == common | E | parts("W_E")
