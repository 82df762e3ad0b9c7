"""ModelView: one way to read attention and embeddings out of any supported Hugging Face model.

Axes: b unit of the batch, h (query) head, q query position, k key position, L positions, d embedding width.
"""

import copy
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Literal

import safetensors.torch
import torch
from jaxtyping import Float32, Int64
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError, RunError, UnsupportedModelError
from topicscope.probing.hf.discovery import discovered_family
from topicscope.probing.hf.eager import (
    Finished,
    Rows,
    aligned,
    ask_for_weights,
    attention_modules,
    evaluating,
    implementation,
    next_layer,
    output_of,
)
from topicscope.probing.hf.families import RELATIVE_WINDOW, Family, PartSpec, family_of
from topicscope.probing.hf.sdpa import Factors, NotFactored, factored
from topicscope.probing.tokens import Batch

__all__ = ["FIXED_POSITION", "ModelView", "OnAttention", "PartSpec", "attention_modules", "view_model"]

OnAttention = Callable[[str, int, torch.Tensor], None]
OnFactors = Callable[[str, int, Factors], None]
Way = Literal["registry", "hooks"]
# Where `embedding_output` puts every token: the first place that is a word's. Position 0 is the special token's own.
FIXED_POSITION = 1
_NO_WINDOW = 1_000_000  # tokenizers without a limit state a huge one
# The trial that decides how attention is read is of so many tokens.
TRIAL_TOKENS = 32
# Largest difference of two probabilities that are the same but for rounding in the model's precision.
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}


class ModelView:
    """A model's attention, layer by layer, and its embeddings; the model itself is left exactly as it was found.

    name: hub name, folder or what the caller called it. model_type: e.g. "bert". parts: its stacks of attention.
    max_length: longest input in tokens, specials included. kernel: the attention implementation the model was loaded
    with; the weights are read under the eager one, which computes the same function. dtype: e.g. "float32".
    num_parameters: of the base model.
    paths: batches read by each way, "registry" (`run_factored`) or "hooks" (`run`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        family: Family,
        name: str,
        *,
        hooks_only: bool = False,
    ) -> None:
        self._model = model
        self.family = family
        self.tokenizer = tokenizer
        self.name = name
        self.model_type = str(model.config.model_type)
        self.parts: tuple[PartSpec, ...] = tuple(part.spec(model.config) for part in family.parts)
        # Relative positions alone (T5) have no limit.
        positions = getattr(model.config, "max_position_embeddings", None) or getattr(model.config, "n_positions", None)
        reserved = int(model.config.pad_token_id or 0) + 1 if family.positions_after_padding else 0
        self.max_length = int(positions or RELATIVE_WINDOW) - reserved
        if tokenizer.model_max_length < _NO_WINDOW:
            self.max_length = min(self.max_length, int(tokenizer.model_max_length))
        self.kernel = str(model.config._attn_implementation)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        self.paths: dict[Way, int] = {"registry": 0, "hooks": 0}
        embedding = model.get_input_embeddings()
        assert isinstance(embedding, torch.nn.Embedding)
        self._embedding = embedding
        self._pad_id = int(model.config.pad_token_id or 0)
        self._filler_id = 0 if self._pad_id else 1  # any token that is no padding
        # Whether attention can be read in factors; None before the first trial.
        self._factored: bool | None = False if hooks_only else None

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(self._embedding.weight.device)

    @property
    def path(self) -> str:
        """How attention was read so far: "registry", "hooks" or, where it depended on the batch, "registry, hooks"."""
        return ", ".join(way for way, readings in self.paths.items() if readings)

    def weights_hash(self) -> str:
        """Sha256 over names, shapes and bytes of the parameters in the order of their names.

        A pooler is left out: it takes no part in attention, and where a checkpoint lacks it, it is random.
        """
        digest = hashlib.sha256()
        for name, parameter in sorted(self._model.named_parameters()):
            if not name.startswith("pooler."):
                digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}\n".encode())
                digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def weights(self) -> bytes:
        """The parameters and buffers in the safetensors format."""
        # Tied weights share memory, which the format does not allow.
        copies = {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}
        return safetensors.torch.save(copies, metadata={"format": "pt"})

    def run(self, batch: Batch, on_attention: OnAttention) -> Rows:
        """Hand the attention of every part and layer that is read to `on_attention(part, layer, attention)`.

        attention [b, h, q, k]: float32 probabilities of the heads that are read, valid until the call returns; rows
        of attended queries sum to 1 over attended keys. Only one layer is alive at a time. A sequence-to-sequence
        decoder reads the batch's own tokens moved one to the right behind its start token (as BART is trained; see
        `PartSpec.query_shift`), with the last token left out. Whichever side is padded, tokens get the positions they
        have without padding. Returns what was seen of the rows, for the batch as given. Evaluation mode, attention
        implementation and hooks are put back afterwards, also after an exception.

        Raises:
            RunError: a layer whose attention is missing, of a wrong shape, whose rows do not sum to 1 or, in a causal
                part, that looks ahead; the message names layer and model.
        """
        attended = batch.attention_mask.to(self.device)
        ids, mask, start = aligned(batch.input_ids.to(self.device), attended)
        rows, calls = Rows(self.parts, attended, mask, start), Counter[str]()
        # Where the last layers are not read, the pass ends before them.
        cut = any(part.layers[-1] + 1 < part.num_layers for part in self.parts)

        def read(_module: torch.nn.Module, _inputs: Any, output: Any, *, part: PartSpec, place: int) -> Any:
            layer, all_read = next_layer(calls, part, self.parts)
            if layer in part.layers:
                where = f"{part.name} layer {layer} of {self.name} ({self.model_type})"
                weights = output[place] if isinstance(output, tuple) and len(output) > place else None
                on_attention(part.name, layer, rows.checked(weights, part, where))
            if cut and all_read:
                raise Finished
            # Nothing downstream uses the weights: passing them on would only keep them alive.
            return (*output[:place], None, *output[place + 1 :])

        with (
            torch.inference_mode(),
            evaluating(self._model),
            implementation(self._model, "eager"),
            ExitStack() as hooks,
        ):
            for pattern, part in zip(self.family.parts, self.parts, strict=True):
                for module in attention_modules(self._model, pattern):
                    if "output_attentions" in inspect.signature(module.forward).parameters:
                        hooks.enter_context(module.register_forward_pre_hook(ask_for_weights, with_kwargs=True))
                    hook = partial(read, part=part, place=pattern.weights)
                    hooks.enter_context(module.register_forward_hook(hook))
            with suppress(Finished):
                self._model(**self._inputs(ids, mask))
                for part in self.parts:
                    if calls[part.name] != part.num_layers:
                        raise RunError(
                            f"{self.name}: the {part.name} computed attention {calls[part.name]} times",
                            expected=f"{part.num_layers} layers",
                        )
        self.paths["hooks"] += 1
        return rows

    def run_factored(self, batch: Batch, on_factors: OnFactors, *, whole: bool = False) -> None:
        """Hand the factors of the attention of every part and layer that is read to `on_factors(part, layer, factors)`.

        What the factors say is what `run` hands out (see `Factors`), with every head and at the price of a plain
        forward pass; padding stands on the right. The pass ends at the attention of the last layer that is read,
        since nothing after it is wanted, unless `whole`. What must be put back is, as in `run`.

        Raises:
            NotFactored: the model does not ask the registries once for each layer, or its attention at this length
                has no factors. Some layers may have been handed out already.
        """
        ids, mask, _ = aligned(batch.input_ids.to(self.device), batch.attention_mask.to(self.device))
        calls = Counter[str]()
        parts = zip(self.family.parts, self.parts, strict=True)
        part_of = {id(m): part for pattern, part in parts for m in attention_modules(self._model, pattern)}

        def on_call(module: torch.nn.Module, factors: Factors) -> None:
            part = part_of.get(id(module))
            if part is None:
                raise NotFactored("an attention module that belongs to no part")
            layer, all_read = next_layer(calls, part, self.parts)
            if layer in part.layers:
                on_factors(part.name, layer, factors)
            if all_read and not whole:
                raise Finished

        with torch.inference_mode(), evaluating(self._model), factored(self._model, on_call):
            try:
                self._model(**self._inputs(ids, mask))
            except Finished:
                self.paths["registry"] += 1
                return
        if any(calls[part.name] != part.num_layers for part in self.parts):
            raise NotFactored("the model does not ask the registry of attention functions once for each layer")

    def can_be_factored(self, batch: Batch) -> bool:
        """Whether to try `run_factored`: on the beginning of one unit it says the same as `run`.

        The rule: the registry, if the model honours it and the two agree in every layer and head; hooks otherwise.
        It is tried once for each view; a batch of which `run_factored` cannot be had is still to be read by `run`.
        """
        if self._factored is not None:
            return self._factored
        tokens = batch.attention_mask[0].bool()
        ids, mask = (x[:1, tokens][:, :TRIAL_TOKENS] for x in (batch.input_ids, batch.attention_mask))
        start = Batch(ids, mask, batch.unit_index[:1])
        weights: dict[tuple[str, int], torch.Tensor] = {}
        factors: dict[tuple[str, int], Factors] = {}
        paths = dict(self.paths)
        self.run(start, lambda part, layer, attention: weights.update({(part, layer): attention.clone()}))
        try:
            self.run_factored(start, lambda part, layer, found: factors.update({(part, layer): found}), whole=True)
        except NotFactored:
            factors = {}
        self.paths = paths  # the trial is no reading
        self._factored = bool(factors)
        specs = {part.name: part for part in self.parts}
        for (name, layer), found in factors.items():
            heads, expected = list(specs[name].heads), weights[name, layer]
            groups = found.query.shape[1] // found.key.shape[1]
            key = found.key[:, [head // groups for head in heads]].float()
            scores = found.scale * found.query[:, heads].float() @ key.transpose(-1, -2)
            attention = (scores - found.normaliser[:, heads, :, None]).exp()
            attention = attention.tril() if specs[name].causal else attention
            same = attention.shape == expected.shape
            # NaN fails as well.
            if not (same and float((attention - expected).abs().max()) <= TOLERANCE[self.dtype]):
                self._factored = False
        return self._factored

    def only(self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> "ModelView":
        """A view of the same model that reads only these layers and heads (numbered from 0) of every part.

        Raises:
            InputError: a layer or head that a part does not have.
        """
        if layers is None and heads is None:
            return self
        view = copy.copy(self)
        view.paths = {"registry": 0, "hooks": 0}
        view.parts = tuple(part.only(layers, heads, self.name) for part in self.parts)
        return view

    def embedding_matrix(self) -> Float32[torch.Tensor, "token d"]:
        """The input embeddings as they are stored, on the CPU."""
        return self._embedding.weight.detach().float().cpu()

    def embedding_output(
        self, token_ids: Int64[torch.Tensor, " token"], position: int = FIXED_POSITION
    ) -> Float32[torch.Tensor, "token d"]:
        """Output of the embedding layer for each token, all put at one fixed position, on the CPU.

        It holds the word, position and token-type embeddings and the layer norm where the family has them. ALBERT's
        and ELECTRA's projection to the width of the blocks is not part of it, so that the space is that of
        `embedding_matrix`. In GPT-2 and Llama it is what enters the first block.
        """
        if not len(token_ids):
            return self.embedding_matrix()[:0]
        found = []
        with torch.inference_mode(), evaluating(self._model):
            for ids in torch.split(token_ids.to(self.device), 4096):
                # What stands before the token does not matter: the embedding layer works token by token. It must
                # not be the padding token, since RoBERTa numbers its positions by counting the others.
                pair = torch.stack([torch.full_like(ids, self._filler_id)] * position + [ids], 1)
                inputs = self._inputs(pair, torch.ones_like(pair))
                output = output_of(self._model, self.family.embedding_layer, inputs)
                found.append(output[:, position].float().cpu())
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
        name = f"{self.name} (random weights, seed {seed})"
        view = ModelView(model.to(self.device).eval(), self.tokenizer, self.family, name)
        view.parts, view._factored = self.parts, self._factored
        return view

    def _inputs(self, input_ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        """What the model is called with, where padding stands on the right."""
        assert input_ids.shape[1] <= self.max_length, "a unit is longer than the model's window"
        input_ids = input_ids.masked_fill(mask == 0, self._pad_id)
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": mask,
            "output_attentions": False,
            "output_hidden_states": False,
        }
        if any(part.query_shift for part in self.parts):
            moved = input_ids.roll(1, 1)
            moved[:, 0] = self._model.config.decoder_start_token_id
            inputs |= {"decoder_input_ids": moved, "decoder_attention_mask": mask}
        if "use_cache" in inspect.signature(self._model.forward).parameters:
            inputs["use_cache"] = False
        return inputs


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
