"""The door to a model: a live Hugging Face model and its tokenizer become a `ModelView`, or are refused by name."""

from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError, UnsupportedModelError
from topicscope.probing.hf.discovery import discovered_family
from topicscope.probing.hf.families import PartSpec, family_of
from topicscope.probing.hf.hooks import attention_modules
from topicscope.probing.hf.view import FIXED_POSITION, ModelView, OnAttention

__all__ = ["FIXED_POSITION", "ModelView", "OnAttention", "PartSpec", "attention_modules", "view_model"]


def view_model(
    model: PreTrainedModel | Any,
    tokenizer: PreTrainedTokenizerBase | Any,
    *,
    name: str | None = None,
    hooks_only: bool = False,
) -> ModelView:
    """A view of a live model with any head; only the base model inside is ever run.

    hooks_only: read attention weights by hooks even where their factors could be had for less (`can_be_factored`).

    Raises:
        UnsupportedModelError: a type of model outside the table of families, or without its usual modules.
        InputError: not a Hugging Face model and tokenizer, or a tokenizer with ids that the model does not have.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise InputError(
            "a probe needs a Hugging Face model and its tokenizer",
            received=f"{type(model).__name__} and {type(tokenizer).__name__}",
            expected="a PreTrainedModel and a PreTrainedTokenizerBase",
            advice="unwrap the model first: .module of a parallel wrapper, .get_base_model() or .merge_and_unload() of "
            "an adapter",
        )
    name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    family = family_of(model.config, name)
    base = model.base_model
    assert isinstance(base, PreTrainedModel)
    family = discovered_family(base, name) if family is None else family
    for part in family.parts:
        if not attention_modules(base, part):
            raise UnsupportedModelError(
                f"a {type(model).__name__} cannot be viewed: it has no {part.name} attention where the type "
                f"{model.config.model_type!r} keeps it",
                received=name,
                expected=f"modules named {part.modules}",
            )
    view = ModelView(base, tokenizer, family, name, hooks_only=hooks_only)
    known = view._embedding.num_embeddings
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if not 0 <= highest < known:
        raise InputError(
            "the tokenizer does not belong to the model",
            received=f"token ids up to {highest}",
            expected=f"1 to {known} tokens, the rows of the model's embeddings",
            where=name,
            advice="give the tokenizer the model was trained with, or resize the model's embeddings",
        )
    return view
