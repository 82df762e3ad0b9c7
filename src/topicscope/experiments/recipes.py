"""Where the recipes are: in the source tree, or beside the package in an installation."""

from collections.abc import Sequence
from pathlib import Path

import topicscope
from topicscope.errors import InputError
from topicscope.lab import Recipe, load_recipe


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
