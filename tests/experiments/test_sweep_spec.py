"""SWEEP.toml: what may stand in it, and what is said of what may not."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from experiments.small_sweeps import write
from topicscope.errors import InputError
from topicscope.experiments import changed, load_spec, make_plan, make_spec
from topicscope.experiments.sweep_spec import check_field

GRID = {"training.steps": [1, 2]}
DRAWN = {"training.learning_rate": {"low": 0.1, "high": 1.0}}


def refused(document: dict[str, object]) -> str:
    with pytest.raises(InputError) as error:
        make_spec({"recipe": "theorem-2"} | document, where="sweep.toml")
    return str(error.value)


def test_quotes_around_fields_are_a_matter_of_taste(tmp_path: Path) -> None:
    quoted = '[set]\n"training.steps" = 3\n"training.ridge.W_V" = 0.1\n[grid]\n"data.length" = [8, 9]\n'
    quoted += '[random]\nsamples = 2\n"training.learning_rate" = { low = 0.1, high = 1 }\n'
    bare = "[set]\ntraining.steps = 3\ntraining.ridge = { W_V = 0.1 }\n[grid.data]\nlength = [8, 9]\n"
    bare += "[random]\nsamples = 2\ntraining.learning_rate = { low = 0.1, high = 1 }\n"
    first, second = (load_spec(write(tmp_path, f'recipe = "tiny.toml"\n{text}')) for text in (quoted, bare))
    assert first == second
    assert first.swept == ("data.length", "training.learning_rate")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"grid": {"training.learning_rat": [1]}}, ["no field training.learning_rat", "mean training.learning_rate?"]),
        ({"grid": {"learning_rate": [1]}}, ["mean training.learning_rate?"]),
        ({"set": {"model.widht": 3}, "grid": GRID}, ["model.widht", "mean model.width?"]),
        ({"grid": {"training": [1]}, "set": {"training.steps": 1}}, ["training holds training.steps"]),
        ({"grid": GRID, "set": {"training.steps": 1}}, ["training.steps is given twice"]),
        ({"grid": GRID, "random": {"training.steps": {"low": 1, "high": 2}}}, ["given twice"]),
        ({"grid": {"training.steps": []}}, ["training.steps has no values"]),
        ({"grid": {"training.steps": 3}}, ["grid.training.steps", "received: 3", "a list"]),
        ({}, ["nothing to sweep"]),
        ({"random": {"samples": 3}}, ["nothing to sweep"]),
        ({"grid": [1]}, ["grid", "a table"]),
        ({"grid": {"training.learning_rate": [0.1, float("nan")]}}, ["grid.training.learning_rate.1", "finite"]),
        ({"grid": {"data.length": [date(2026, 1, 2)]}}, ["data.length.0", "a finite number, text"]),
        ({"set": {"data.topic_sizes": [3, b"4"]}, "grid": GRID}, ["data.topic_sizes", "a finite number, text"]),
        ({"grid": {"training.steps": [1], "training": {"steps": [2]}}}, ["training.steps is given twice"]),
        (
            {"grid": {"training.seed": range(1001)}, "random": {"samples": 100, **DRAWN}},
            ["100,100 settings", "100,000"],
        ),
        ({"random": {"samples": 10**9, **DRAWN}}, ["1,000,000,000 settings"]),
        ({"random": {"training.learning_rate": {"low": 1.0, "high": float("inf")}}}, ["learning_rate.high", "finite"]),
        ({"random": {"training.seed": {"low": 0, "high": 2**53, "integer": True}}}, ["below 2^53"]),
        ({"grids": GRID}, ["unknown key grids", "did you mean grid?"]),
        ({"grid": GRID, "seeds": 0}, ["seeds", "greater than or equal to 1"]),
        ({"random": {"training.steps": {"low": 1, "hihg": 2}}}, ["hihg", "did you mean high?"]),
        ({"random": {"training.steps": {"low": 2, "high": 2}}}, ["low below high"]),
        ({"random": {"training.steps": {"low": 0, "high": 2, "log": True}}}, ["log needs a positive low"]),
        ({"random": {"training.steps": {"low": 0.5, "high": 2, "integer": True}}}, ["integer needs whole numbers"]),
        ({"random": {"training.steps": {"choice": [1], "log": True}}}, ["choice stands instead"]),
        ({"random": {"training.steps": {"choice": []}}}, ["choice is empty"]),
        ({"random": {"samples": 0, "training.steps": {"choice": [1]}}}, ["samples"]),
    ],
)
def test_what_cannot_be_is_named(document: dict[str, object], words: list[str]) -> None:
    message = refused(document)
    assert [word for word in words if word not in message] == []
    assert "sweep.toml" in message


def test_numbers_of_numpy_are_numbers() -> None:
    """As numpy.linspace and numpy.arange give them."""
    grid = {"training.learning_rate": np.array([0.25, 0.5], dtype=np.float32), "data.length": [np.int64(8)]}
    spec = make_spec({"recipe": "theorem-2", "set": {"data.topic_sizes": np.array([3, 4])}, "grid": grid})
    plain = {"training.learning_rate": [0.25, 0.5], "data.length": [8]}
    assert spec == make_spec({"recipe": "theorem-2", "set": {"data.topic_sizes": [3, 4]}, "grid": plain})
    assert json.loads(spec.model_dump_json())["grid"] == plain


@pytest.mark.parametrize("name", ["training.ridge.W_V", "arrays.W_V", "references.W_V", "model.sigmas.W_K_2", "name"])
def test_fields_may_lie_in_tables_of_ones_own_names(name: str) -> None:
    check_field(name)


@pytest.mark.parametrize("name", ["training.ridge.W_V.x", "name.x", "", "training..steps", "training.steps."])
def test_there_is_nothing_inside_a_value(name: str) -> None:
    with pytest.raises(InputError, match="no field"):
        check_field(name)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such sweep"):
        load_spec(tmp_path / "none.toml")
    with pytest.raises(InputError, match="no such sweep"):
        load_spec(tmp_path / "tiny.toml" / "sweep.toml")
    with pytest.raises(InputError, match="not a TOML file"):
        load_spec(write(tmp_path, "recipe = "))
    for recipe in ("none.toml", "nowhere/theorem-2.toml", "."):  # the second is not taken for topicscope's own
        spec = load_spec(write(tmp_path, f'recipe = "{recipe}"\n[grid]\ntraining.steps = [1]\n'))
        with pytest.raises(InputError, match="no such recipe"):
            make_plan(spec)


def test_a_recipe_beside_the_file_goes_before_one_of_topicscope(tmp_path: Path) -> None:
    path = write(tmp_path, 'recipe = "theorem-2.toml"\n[grid]\ntraining.steps = [1]\n')
    assert make_plan(load_spec(path)).name == "theorem-2"
    (tmp_path / "theorem-2.toml").write_text((tmp_path / "tiny.toml").read_text())
    assert make_plan(load_spec(path)).name == "tiny"


def test_changes_from_outside() -> None:
    spec = make_spec({"recipe": "theorem-2", "set": {"training.seed": 1}, "grid": GRID})
    again = changed(spec, seeds=7, overrides=["training.seed=5", "training.optimizer=adam", "data.length = [5, 9]"])
    assert again.set == {"training.seed": 5, "training.optimizer": "adam", "data.length": [5, 9]}
    assert (again.seeds, again.grid) == (7, spec.grid)
    for override, words in (
        ("training.steps=3", "varies"),
        ("training.steps", "not an override"),
        ("a=1", "no field a"),
    ):
        with pytest.raises(InputError, match=words):
            changed(spec, overrides=[override])
