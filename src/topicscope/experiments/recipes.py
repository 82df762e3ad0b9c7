"""Where the recipes are: in the source tree, or beside the package in an installation.

Whether a recipe can be trained, found out without building its model: for many recipes at once.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import topicscope
from topicscope.errors import InputError
from topicscope.lab import (
    Recipe,
    check_engine,
    check_names,
    law_of,
    load_recipe,
    masking_of,
    shapes,
    start,
    topic_model_of,
)
from topicscope.topics import TopicModel


def check_possible(recipe: Recipe) -> None:
    """Everything that `train` refuses before its first step, except arrays that are handed in and a missing device.

    Parameters' names do not depend on the words, so the model is tried on four of them.

    Raises:
        InputError: parts of the recipe exclude each other, a file is missing, or nothing is trained.
    """
    topics = topic_model_of(recipe)
    law_of(recipe, topics)
    check_engine(recipe)
    few = TopicModel.disjoint(2, 2)
    num_tokens = masking_of(recipe).num_tokens(len(few.vocabulary))
    known = shapes(recipe.model, num_tokens)
    arrays = {name: np.zeros(known.get(name, ())) for name in recipe.arrays}
    trained = set(known) - start(recipe.model, num_tokens, few, arrays).frozen
    if not trained:
        raise InputError("nothing to train: every part of the model is frozen", expected="at least one trained matrix")
    check_names("training.ridge", recipe.training.ridge, trained)
    for stage in recipe.training.stages:
        check_names("training.stages.train", stage.train, trained)
    unknown = sorted(set(recipe.references) - set(known))
    if unknown:
        raise InputError("no matrix to compare a reference with", received=unknown, expected=", ".join(known))


def find_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of this name, changed by overrides "table.key=value".

    Raises:
        InputError: the recipes are not installed, or an override is wrong.
    """
    return load_recipe(recipe_path(name), overrides)


def recipe_path(name: str) -> Path:
    """The file of a recipe that comes with topicscope."""
    package = Path(topicscope.__file__).resolve().parent
    folders = (package / "recipes", package.parents[1] / "recipes")
    for folder in folders:
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    raise InputError(
        f"the recipe {name} is not installed",
        received=str(folders[0]),
        expected=f"{name}.toml",
        advice="install topicscope from a wheel or work in its source tree",
    )
