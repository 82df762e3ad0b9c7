"""ModelView: one way to read attention and embeddings out of any supported Hugging Face model.

Axes: b unit of the batch, h (query) head, q query position, k key position, L positions, d embedding width.
"""

import copy
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float32, Int64
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError, RunError, UnsupportedModelError
from topicscope.probing.batches import Batch
from topicscope.probing.discovery import discovered_family
from topicscope.probing.families import Family, PartPattern, PartSpec, family_of
from topicscope.probing.reading import checked_attention, eager, evaluating, rolled, unrolled

__all__ = ["ModelView", "OnAttention", "PartSpec", "view_model"]

OnAttention = Callable[[str, int, torch.Tensor], None]
# The position every token is put at for `embedding_output`: the first one after the leading special token.
FIXED_POSITION = 1
_NO_WINDOW = 1_000_000  # tokenizers without a limit state a huge one


class ModelView:
    """A model's attention, layer by layer, and its embeddings; the model itself is left exactly as it was found.

    name: hub name, folder or what the caller called it. model_type: e.g. "bert". parts: its stacks of attention.
    max_length: longest input in tokens, specials included. kernel: the attention implementation the model was loaded
    with; the weights are read under the eager one, which computes the same function. dtype: e.g. "float32".
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, family: Family, name: str) -> None:
        self._model = model
        self._family = family
        self.tokenizer = tokenizer
        self.name = name
        self.model_type = str(model.config.model_type)
        self.parts: tuple[PartSpec, ...] = tuple(part.spec(model.config) for part in family.parts)
        self.max_length = _window(model.config, tokenizer, family)
        self.kernel = str(model.config._attn_implementation)

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(self._embedding.weight.device)

    @property
    def dtype(self) -> str:
        """Precision of the model's weights."""
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def num_parameters(self) -> int:
        """Parameters of the base model."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def weights_hash(self) -> str:
        """Sha256 over names, shapes and bytes of the parameters in the order of their names.

        A pooler is left out: it takes no part in attention, and where a checkpoint lacks it, it is random.
        """
        digest = hashlib.sha256()
        for name, parameter in sorted(self._model.named_parameters()):
            if name.startswith("pooler."):
                continue
            digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}\n".encode())
            digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def run(self, batch: Batch, on_attention: OnAttention) -> None:
        """Hand the attention of every part and layer to `on_attention(part, layer, attention)`.

        attention [b, h, q, k]: float32 probabilities, valid until the call returns; rows of attended queries sum to 1
        over attended keys. Only one layer is alive at a time. A sequence-to-sequence decoder reads the batch's own
        tokens moved one to the right behind its start token (as BART is trained; see `PartSpec.query_shift`), with
        the last token left out. Whichever side is padded, tokens get the positions they have without padding.
        Evaluation mode, attention implementation and hooks are put back afterwards, also after an exception.

        Raises:
            RunError: a layer whose attention is missing, of a wrong shape, whose rows do not sum to 1 or, in a causal
                part, that looks ahead; the message names layer and model.
        """
        assert batch.input_ids.shape[1] <= self.max_length, "a unit is longer than the model's window"
        mask = batch.attention_mask.to(self.device)
        start = mask.argmax(1)
        aligned_mask, input_ids = rolled(mask, start), rolled(batch.input_ids.to(self.device), start)
        assert bool((aligned_mask[:, :-1] >= aligned_mask[:, 1:]).all()), "the tokens of a unit stand in one run"
        input_ids = input_ids.masked_fill(aligned_mask == 0, self._pad_id)
        padded_left = bool(start.any())

        def deliver(part: PartSpec, layer: int, attention: torch.Tensor | None) -> None:
            where = f"{part.name} layer {layer} of {self.name} ({self.model_type})"
            checked = checked_attention(attention, part, aligned_mask, where)
            on_attention(part.name, layer, unrolled(checked, start) if padded_left else checked)

        with torch.inference_mode(), evaluating(self._model), eager(self._model), self._reading(deliver):
            self._model(**self._inputs(input_ids, aligned_mask))

    def embedding_matrix(self) -> Float32[torch.Tensor, "token d"]:
        """The input embeddings as they are stored, on the CPU."""
        return self._embedding.weight.detach().float().cpu()

    def embedding_output(self, token_ids: Int64[torch.Tensor, " token"]) -> Float32[torch.Tensor, "token d"]:
        """Output of the embedding layer for each token, all put at one fixed position, on the CPU.

        It holds the word, position and token-type embeddings and the layer norm where the family has them. Position 1
        is used, the first place after the leading special token. ALBERT's and ELECTRA's projection to the width of
        the blocks is not part of it, so that the space is that of `embedding_matrix`. In GPT-2 and Llama it is what
        enters the first block.
        """
        if not len(token_ids):
            return self.embedding_matrix()[:0]
        found: list[torch.Tensor] = []

        def stop(_module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            found.append(output[:, FIXED_POSITION].float().cpu())
            raise _EmbeddingsRead

        with torch.inference_mode(), evaluating(self._model):
            handle = self._model.get_submodule(self._family.embedding_layer).register_forward_hook(stop)
            try:
                for ids in torch.split(token_ids.to(self.device), 4096):
                    # What stands before the token does not matter: the embedding layer works token by token. It must
                    # not be the padding token, since RoBERTa numbers its positions by counting the others.
                    pair = torch.stack([torch.full_like(ids, self._filler_id)] * FIXED_POSITION + [ids], 1)
                    try:
                        self._model(**self._inputs(pair, torch.ones_like(pair)))
                    except _EmbeddingsRead:
                        continue
            finally:
                handle.remove()
        return torch.cat(found).clone()

    def randomised(self, seed: int) -> "ModelView":
        """The same architecture with fresh random weights by the model's own scheme of initialisation.

        Equal seeds give equal weights; the global random state is left untouched.
        """
        config = copy.deepcopy(self._model.config)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            model = type(self._model)._from_config(  # type: ignore[no-untyped-call]
                config, dtype=self._model.dtype, attn_implementation=config._attn_implementation
            )
        return ModelView(
            model.to(self.device).eval(), self.tokenizer, self._family, f"{self.name} (random weights, seed {seed})"
        )

    @property
    def _embedding(self) -> torch.nn.Embedding:
        embedding = self._model.get_input_embeddings()
        assert isinstance(embedding, torch.nn.Embedding)
        return embedding

    @property
    def _pad_id(self) -> int:
        return int(self._model.config.pad_token_id or 0)

    @property
    def _filler_id(self) -> int:
        return 0 if self._pad_id != 0 else 1

    def _inputs(self, input_ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": mask,
            "output_attentions": False,
            "output_hidden_states": False,
        }
        if self._family.shifts_text:
            moved = input_ids.roll(1, 1)
            moved[:, 0] = self._model.config.decoder_start_token_id
            inputs |= {"decoder_input_ids": moved, "decoder_attention_mask": mask}
        if "use_cache" in inspect.signature(self._model.forward).parameters:
            inputs["use_cache"] = False
        return inputs

    @contextmanager
    def _reading(self, deliver: Callable[[PartSpec, int, torch.Tensor | None], None]) -> Iterator[None]:
        """Hooks on the attention modules, which number the layers of each part by the order of the calls."""
        calls = dict.fromkeys((part.name for part in self.parts), 0)
        handles: list[Any] = []
        for pattern, part in zip(self._family.parts, self.parts, strict=True):
            place = pattern.weights

            def read(
                _module: torch.nn.Module, _inputs: Any, output: Any, part: PartSpec = part, place: int = place
            ) -> Any:
                layer = calls[part.name]
                weights = output[place] if isinstance(output, tuple) and len(output) > place else None
                calls[part.name] += 1
                deliver(part, layer, weights)
                # Nothing downstream uses the weights: passing them on would only keep them alive.
                return (*output[:place], None, *output[place + 1 :])

            for module in attention_modules(self._model, pattern):
                if "output_attentions" in inspect.signature(module.forward).parameters:
                    handles.append(module.register_forward_pre_hook(_ask_for_weights, with_kwargs=True))
                handles.append(module.register_forward_hook(read))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        for part in self.parts:
            if calls[part.name] != part.num_layers:
                raise RunError(
                    f"{self.name}: the {part.name} computed attention {calls[part.name]} times",
                    expected=f"{part.num_layers} layers",
                )


def view_model(
    model: PreTrainedModel | Any, tokenizer: PreTrainedTokenizerBase | Any, *, name: str | None = None
) -> ModelView:
    """A view of a live model with any head; only the base model inside is ever run.

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
    view = ModelView(base, tokenizer, family, name)
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


def attention_modules(model: torch.nn.Module, part: PartPattern) -> list[torch.nn.Module]:
    """The attention modules of a part, in the order of the model."""
    return [module for name, module in model.named_modules() if re.fullmatch(part.modules, name)]


class _EmbeddingsRead(Exception):  # noqa: N818 - ends a forward pass that has given all that is wanted
    pass


def _ask_for_weights(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """For families that compute attention themselves (MPNet, DeBERTa) and return weights only on demand."""
    call = inspect.signature(module.forward).bind(*args, **kwargs)
    call.arguments["output_attentions"] = True
    return call.args, call.kwargs


def _window(config: Any, tokenizer: PreTrainedTokenizerBase, family: Family) -> int:
    positions = family.window(config)
    limit = int(min(tokenizer.model_max_length, _NO_WINDOW))
    return min(positions, limit) if limit < _NO_WINDOW else positions
