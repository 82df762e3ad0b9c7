"""Start values: handed in, fixed or drawn; and what is refused."""

import numpy as np
import pytest
import torch

from topicscope.errors import InputError
from topicscope.lab import ModelConfig, start
from topicscope.topics import TopicModel


def test_centred_normal_with_the_sigma_of_each_matrix() -> None:
    config = ModelConfig(sigma=0.5, sigmas={"W_V": 1e-3})
    parameters = start(config, 101, dtype=torch.float64).parameters
    for name, sigma in (("W_K", 0.5), ("W_Q", 0.5), ("W_V", 1e-3)):
        values = parameters[name].numpy() / sigma
        n = values.size
        assert abs(values.mean()) < 4 / np.sqrt(n)
        assert abs((values**2).mean() - 1) < 4 * np.sqrt(2 / n)
        # Uniform numbers would have 9/5 here.
        assert abs((values**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert torch.equal(parameters["W_E"], torch.eye(101, dtype=torch.float64))
    assert not parameters["b_pred"].any()


def test_a_seed_gives_the_same_start_and_one_matrix_never_changes_another() -> None:
    one = start(ModelConfig(), 13, seed=3).parameters
    for config, changed in (
        (ModelConfig(frozen=("W_K",)), set()),
        (ModelConfig(value="identity"), {"W_V"}),
        (ModelConfig(sigmas={"W_V": 5.0}), {"W_V"}),
        (ModelConfig(attention="uniform"), {"W_K", "W_Q"}),
    ):
        other = start(config, 13, seed=3).parameters
        assert {name for name in one if not torch.equal(one[name], other[name])} == changed
    assert not torch.equal(one["W_Q"], start(ModelConfig(), 13, seed=4).parameters["W_Q"])
    assert not torch.equal(one["W_Q"], one["W_K"])


def test_block_and_diagonal_follow_the_topics_and_leave_specials_at_zero() -> None:
    topics = TopicModel.unequal([2, 1])
    block = start(ModelConfig(value="block", value_scale=2.0), 4, topics).parameters["W_V"].numpy()
    np.testing.assert_array_equal(block, [[0, 0, 0, 0], [0, 2, 2, 0], [0, 2, 2, 0], [0, 0, 0, 2]])
    diagonal = start(ModelConfig(value="diagonal"), 6, topics).parameters["W_V"].numpy()
    np.testing.assert_array_equal(diagonal, np.diag([0, 1, 1, 1, 0, 0]))
    shared = TopicModel.overlapping(3, 2, 1)
    block = start(ModelConfig(value="block"), 4, shared).parameters["W_V"].numpy()
    np.testing.assert_array_equal(block[1:, 1:], np.ones((3, 3)))


def test_a_frozen_name_means_every_layer_and_a_layers_name_that_layer() -> None:
    every, second = (start(ModelConfig(layers=3, frozen=names), 5).frozen for names in (("W_Q",), ("W_Q_2",)))
    assert {"W_Q", "W_Q_2", "W_Q_3"} == every - {"W_E", "b_pred"}
    assert {"W_Q_2"} == second - {"W_E", "b_pred"}


def test_arrays_handed_in_are_used_and_frozen_only_where_asked() -> None:
    matrix = np.arange(16.0).reshape(4, 4)
    fixed = start(ModelConfig(value="fixed"), 4, arrays={"W_V": matrix})
    free = start(ModelConfig(), 4, arrays={"W_V": matrix})
    for one in (fixed, free):
        np.testing.assert_array_equal(one.parameters["W_V"].numpy(), matrix)
    assert "W_V" in fixed.frozen
    assert "W_V" not in free.frozen
    matrix[0, 0] = 99
    assert fixed.parameters["W_V"][0, 0] == 0


@pytest.mark.parametrize(
    ("config", "arrays", "message"),
    [
        ({"value": "fixed"}, {}, "no array was handed in"),
        ({"bias": "fixed"}, {}, "no array was handed in"),
        ({}, {"W_V": np.eye(5)}, "wrong shape"),
        ({}, {"W_X": np.eye(4)}, "unknown parameter in arrays"),
        ({"sigmas": {"W_W": 1.0}}, {}, "unknown parameter in sigmas"),
        ({"frozen": ("WV",)}, {}, "unknown parameter in frozen"),
        ({"value": "block"}, {}, "needs the topic model"),
    ],
)
def test_bad_starts_are_refused(config, arrays, message) -> None:
    with pytest.raises(InputError, match=message):
        start(ModelConfig(**config), 4, arrays=arrays)


@pytest.mark.parametrize(
    "config",
    [
        {"embedding": "trained"},
        {"width": 4},
        {"embedding": "trained", "width": 4, "value": "block"},
        {"value": "identity", "heads": 2},
        {"value": "diagonal", "output_projection": True},
    ],
)
def test_parts_that_exclude_each_other_are_refused(config) -> None:
    with pytest.raises(InputError):
        ModelConfig(**config)
