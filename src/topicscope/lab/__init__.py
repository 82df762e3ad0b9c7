"""The laboratory: the paper's transformers, at token level and on token counts, and their training from recipes."""

from topicscope.lab.data import HeldOut, fixed_set, held_out, inputs_of, law_of, masking_of, topic_model_of
from topicscope.lab.engine import CountTensors, ReducedTransformer, check_device, check_engine
from topicscope.lab.history import (
    SEPARATION,
    Stages,
    attention_scores,
    block_means,
    find_stages,
    shares_topic,
)
from topicscope.lab.recipe import Recipe, load_recipe, make_recipe, parsed_override, put_field, read_toml, recipe_path
from topicscope.lab.trainer import (
    Checkpoint,
    check_names,
    flatten_optimizer,
    load_checkpoint,
    remove_checkpoint,
    restore_optimizer,
    save_checkpoint,
    train,
)
from topicscope.lab.transformer import (
    ModelConfig,
    Start,
    TopicTransformer,
    layer_name,
    shapes,
    start,
    why_not_reduced,
)

__all__ = [
    "SEPARATION",
    "Checkpoint",
    "CountTensors",
    "HeldOut",
    "ModelConfig",
    "Recipe",
    "ReducedTransformer",
    "Stages",
    "Start",
    "TopicTransformer",
    "attention_scores",
    "block_means",
    "check_device",
    "check_engine",
    "check_names",
    "find_stages",
    "fixed_set",
    "flatten_optimizer",
    "held_out",
    "inputs_of",
    "law_of",
    "layer_name",
    "load_checkpoint",
    "load_recipe",
    "make_recipe",
    "masking_of",
    "parsed_override",
    "put_field",
    "read_toml",
    "recipe_path",
    "remove_checkpoint",
    "restore_optimizer",
    "save_checkpoint",
    "shapes",
    "shares_topic",
    "start",
    "topic_model_of",
    "train",
    "why_not_reduced",
]
