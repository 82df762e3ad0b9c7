"""Attention that somebody else reads: a view of a model hooked by TransformerLens, nnsight or one's own code.

The vocabulary is TransformerLens's: a cache of patterns [batch, head, query, key], one for each layer, and W_E.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError, RunError
from topicscope.probing.hf.eager import Rows, aligned, evaluating
from topicscope.probing.hf.families import PartSpec
from topicscope.probing.hf.view import FIXED_POSITION, ModelView, OnAttention
from topicscope.probing.tokens import Batch

Patterns = Mapping[Any, torch.Tensor] | Sequence[torch.Tensor]
RunPatterns = Callable[[torch.Tensor, torch.Tensor], Patterns]


class LiveView(ModelView):
    """A `ModelView` whose attention comes from a function; see `live_view`."""

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        run: RunPatterns,
        part: PartSpec,
        W_E: Float[torch.Tensor, "token d"],
        *,
        name: str,
        max_length: int,
        layer_name: str | None,
        randomised: Callable[[int], "LiveView"] | None,
    ) -> None:
        self._model = model  # type: ignore[assignment]
        self._run, self._layer_name = run, layer_name
        self._embedding = torch.nn.Embedding.from_pretrained(W_E)  # type: ignore[no-untyped-call]
        self._randomised = randomised
        self.tokenizer, self.name, self.model_type = tokenizer, name, type(model).__name__
        self.parts, self.max_length, self.kernel = (part,), max_length, "given from outside"
        self.paths = {"registry": 0, "hooks": 0}
        self.dtype = str(W_E.dtype).removeprefix("torch.")
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())

    def can_be_factored(self, batch: Batch) -> bool:
        """Never: only the weights themselves are given."""
        return False

    def run(self, batch: Batch, on_attention: OnAttention) -> Rows:
        """Hand on the patterns of every layer, after the checks that every model's attention must pass.

        Raises:
            RunError: a layer is missing, or its pattern is of a wrong shape, does not sum to 1, or looks ahead.
        """
        (part,) = self.parts
        attended = batch.attention_mask.to(self.device)
        input_ids, mask, start = aligned(batch.input_ids.to(self.device), attended)
        rows = Rows(self.parts, attended, mask, start)
        with torch.inference_mode(), evaluating(self._model):
            found = self._run(input_ids, mask)
            for layer in part.layers:
                where = f"layer {layer} of {self.name}"
                key: Any = layer if self._layer_name is None else self._layer_name.format(layer=layer)
                try:
                    pattern = found[key]
                except LookupError as error:
                    names = list(found)[:6] if isinstance(found, Mapping) else f"{len(found)} layers"
                    raise RunError("a layer's pattern is missing", received=names, expected=key, where=where) from error
                on_attention(part.name, layer, rows.checked(pattern, part, where))
        self.paths["hooks"] += 1
        return rows

    def embedding_output(
        self, token_ids: Int64[torch.Tensor, " token"], position: int = FIXED_POSITION
    ) -> Float32[torch.Tensor, "token d"]:
        """Rows of W_E: what positions and layer norms add is not known here."""
        return self.embedding_matrix()[token_ids]

    def randomised(self, seed: int) -> "ModelView":
        """What the caller makes of the seed.

        Raises:
            InputError: the caller gave no way to make random models.
        """
        if self._randomised is None:
            raise InputError(
                "a model that is run from outside has no random-weights control",
                received=self.name,
                expected="controls=0, or live_view(…, randomised=…)",
            )
        view = self._randomised(seed)
        view.parts = self.parts
        return view


def live_view(
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    run: RunPatterns,
    *,
    num_layers: int,
    num_heads: int,
    causal: bool,
    W_E: Float[torch.Tensor, "token d"],
    max_length: int,
    layer_name: str | None = None,
    name: str | None = None,
    randomised: Callable[[int], LiveView] | None = None,
) -> LiveView:
    """A model for `topicscope.probe` whose attention patterns are given by `run`.

    model: the module behind it, for its parameters' hash; it is in evaluation mode during the run and put back after.
    run: takes input_ids and attention_mask, both int64 [batch, position] with the padding on the right, and returns
        patterns [batch, head, query, key] of every layer: a sequence, or a mapping such as TransformerLens's cache.
    layer_name: the key of a layer in the mapping, such as "blocks.{layer}.attn.hook_pattern"; None: its number.
    W_E: embeddings [token, d]. max_length: longest input in tokens. causal: queries see only keys j <= i.
    randomised: makes the view of a freshly initialised model from a seed; without it probe with controls=0.
    """
    part = PartSpec(name="decoder" if causal else "encoder", num_layers=num_layers, num_heads=num_heads, causal=causal)
    return LiveView(
        model,
        tokenizer,
        run,
        part,
        W_E,
        name=name or type(model).__name__,
        max_length=max_length,
        layer_name=layer_name,
        randomised=randomised,
    )
