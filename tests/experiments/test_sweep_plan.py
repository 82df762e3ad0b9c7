"""Points: the grid is the product, draws have the law they should, every point is a whole valid recipe."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from experiments.small_sweeps import TINY, write
from topicscope.errors import InputError
from topicscope.experiments import load_spec, make_plan, make_spec
from topicscope.experiments.sweep_spec import Draw, SweepSpec, draws, settings


def spec_of(**document: Any) -> SweepSpec:
    return make_spec({"recipe": "theorem-2"} | document)


def test_the_grid_is_every_combination_the_last_field_fastest() -> None:
    grid = {"training.steps": [1, 2, 3], "training.optimizer": ["sgd", "adam"], "data.length": [[5, 9], 7]}
    found = [tuple(point.values()) for point in settings(spec_of(grid=grid))]
    assert found == list(itertools.product(*grid.values()))
    assert found[:3] == [(1, "sgd", [5, 9]), (1, "sgd", 7), (1, "adam", [5, 9])]


def test_every_draw_is_tried_at_every_point_of_the_grid() -> None:
    random = {"samples": 3, "training.learning_rate": {"low": 0, "high": 1}}
    points = settings(spec_of(grid={"training.steps": [1, 2]}, random=random))
    assert [point["training.steps"] for point in points] == [1, 2] * 3
    rates = [point["training.learning_rate"] for point in points]
    assert rates[::2] == rates[1::2]
    assert len(set(rates)) == 3


LAWS = {
    "uniform": (Draw(low=2, high=5), stats.uniform(2, 3)),
    "log": (Draw(low=1e-4, high=10, log=True), stats.loguniform(1e-4, 10)),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_have_their_law(name: str) -> None:
    draw, law = LAWS[name]
    values = np.array(draws(draw, "training.learning_rate", 4000, 0))
    assert draw.low is not None
    assert draw.high is not None
    assert ((values >= draw.low) & (values <= draw.high)).all()
    assert stats.kstest(values, law.cdf).pvalue > 0.01
    other = LAWS["log" if name == "uniform" else "uniform"][1]
    assert stats.kstest(values, other.cdf).pvalue < 1e-9


def test_whole_numbers_and_choices_are_as_likely_as_they_should_be() -> None:
    whole = draws(Draw(low=3, high=7, integer=True), "training.steps", 5000, 1)
    assert sorted(set(whole)) == [3, 4, 5, 6, 7]
    assert all(type(value) is int for value in whole)
    assert stats.chisquare(np.bincount(whole)[3:]).pvalue > 0.01
    few = draws(Draw(low=1, high=8, integer=True, log=True), "training.steps", 5000, 1)
    shares = np.log(np.arange(2, 10) / np.arange(1, 9)) / np.log(9)
    assert stats.chisquare(np.bincount(few)[1:], 5000 * shares).pvalue > 0.01
    chosen = draws(Draw(choice=("a", "b", "c")), "training.optimizer", 3000, 1)
    assert stats.chisquare([chosen.count(word) for word in "abc"]).pvalue > 0.01


def test_more_samples_extend_fewer_and_other_fields_change_nothing() -> None:
    draw = Draw(low=0, high=1)
    assert draws(draw, "a", 50, 3)[:20] == draws(draw, "a", 20, 3)
    assert draws(draw, "a", 20, 3) != draws(draw, "a", 20, 4)
    assert draws(draw, "a", 20, 3) != draws(draw, "b", 20, 3)
    rate = {"training.learning_rate": {"low": 0, "high": 1}}
    alone = settings(spec_of(random={"samples": 5, **rate}))
    more = settings(spec_of(random={"samples": 5, "training.seed": {"low": 0, "high": 9, "integer": True}, **rate}))
    rates = [[point["training.learning_rate"] for point in points] for points in (alone, more)]
    assert rates[0] == rates[1]


def test_a_point_is_the_whole_recipe_and_its_id_a_hash_of_it(tmp_path: Path) -> None:
    text = 'recipe = "tiny.toml"\nseeds = {}\n[set]\ntraining.ridge.W_V = 0.5\n[grid]\ntraining.steps = [4, 5]\n'
    first, second = make_plan(load_spec(write(tmp_path, text.format(2)))).points
    document = json.loads(first.recipe)
    assert (document["training"]["steps"], document["training"]["ridge"]) == (4, {"W_V": 0.5})
    assert document["masking"]["p_mask"] == 0.15  # a default
    assert first.id != second.id
    # A default written out is the same recipe; another number of seeds is another point.
    same = make_plan(load_spec(write(tmp_path, text.format(2), TINY + "[masking]\np_mask = 0.15\n"))).points
    assert [point.id for point in same] == [first.id, second.id]
    more = make_plan(load_spec(write(tmp_path, text.format(3)))).points
    assert {point.id for point in more}.isdisjoint({first.id, second.id})


def test_settings_that_give_one_recipe_are_one_point() -> None:
    plan = make_plan(spec_of(set={"training.steps": 2}, grid={"masking.p_mask": [0.15, 0.2, 0.15]}))
    assert (len(plan.points), plan.repeated) == (2, 1)


IMPOSSIBLE: dict[str, tuple[dict[str, list[Any]], str]] = {
    "two fields exclude each other": ({"training.momentum": [0.0, 0.9], "training.optimizer": ["sgd", "adam"]}, "sgd"),
    "a batch of nothing": ({"training.batch_size": [0, 4]}, "batch_size = 0: at least 1"),
    "a value out of range": ({"masking.p_mask": [0.1, 2.0]}, "less than 1"),
    "a kind of value": ({"training.steps": [1, "many"]}, "integer"),
    "a model that is no function of counts": ({"model.layers": [1, 2], "training.engine": ["reduced"]}, "token counts"),
    "a matrix that is not trained": (
        {"training.ridge.W_V": [0.1], "model.value": ["trained", "identity"], "model.attention": ["trained"]},
        "not trained",
    ),
    "a matrix that is not there": ({"training.ridge.W_X": [0.1], "training.seed": [0, 1]}, "W_X"),
    "more topics than there are": ({"data.topics_per_document": [1, 11]}, "topics"),
    "a closed form without its topics": ({"data.topic_sizes": [[3, 4]], "references.W_V": ["finite-n"]}, "finite-n"),
    "a file that is not there": ({"data.phi": ["none.npy"]}, "not there"),
    "an array for another parameter": ({"arrays.W_V": ["theorem-1", "theorem-2"]}, "b_pred"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_settings_are_found_before_any_work(name: str) -> None:
    grid, words = IMPOSSIBLE[name]
    with pytest.raises(InputError, match="cannot be trained") as error:
        make_plan(spec_of(grid=grid))
    assert words in str(error.value)
    number = int(str(error.value).split(" of ")[0])
    possible = len(settings(spec_of(grid=grid))) - number
    if possible:
        assert "--on-error skip" in str(error.value)
        plan = make_plan(spec_of(grid=grid), on_error="skip")
        assert (len(plan.points), len(plan.impossible)) == (possible, number)
        assert all(words in reason for _, reason in plan.impossible)
    else:
        with pytest.raises(InputError, match="cannot be trained"):
            make_plan(spec_of(grid=grid), on_error="skip")


def test_a_closed_form_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("7 TiB")

    monkeypatch.setattr("topicscope.experiments.sweep_spec.resolve", full)
    with pytest.raises(InputError, match="not enough memory: 7 TiB"):
        make_plan(spec_of(grid={"references.W_V": ["finite-n"]}))


def test_many_points_are_small() -> None:
    plan = make_plan(spec_of(random={"samples": 200, "training.learning_rate": {"low": 1e-3, "high": 1, "log": True}}))
    assert len(plan.points) == 200
    assert sum(len(point.recipe) for point in plan.points) < 200 * 3000
