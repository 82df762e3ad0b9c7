"""Training the paper's transformers from recipes, and reading their histories."""

from topicscope.training.data import fixed_set
from topicscope.training.loop import train
from topicscope.training.recipe import Recipe, load_recipe, make_recipe
from topicscope.training.stages import Stages, find_stages

__all__ = ["Recipe", "Stages", "find_stages", "fixed_set", "load_recipe", "make_recipe", "train"]
