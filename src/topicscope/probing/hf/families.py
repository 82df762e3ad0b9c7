"""The table of model families: where each keeps its attention modules. A new family is one entry here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from topicscope.errors import InputError, UnsupportedModelError


@dataclass(frozen=True)
class PartSpec:
    """One stack of attention of a model that is viewed.

    name: "encoder", "decoder" (self-attention that sees only the past) or "cross" (decoder on encoder).
    causal: position i attends to j <= i only.
    query_shift, key_shift: position i of the queries (keys) holds token i - shift of the text. It is 1 for what a
        sequence-to-sequence decoder reads, since its input is the text moved one to the right.
    key_value_heads: how many key-value heads the query heads share (grouped-query attention); None: one for each.
    sinks: a learned sink takes a part of every row, so that rows sum to less than 1 over the tokens.
    only_layers, only_heads: the layers and heads that are read; None: all of them.
    """

    name: str
    num_layers: int
    num_heads: int
    causal: bool
    query_shift: int = 0
    key_shift: int = 0
    key_value_heads: int | None = None
    sinks: bool = False
    only_layers: tuple[int, ...] | None = None
    only_heads: tuple[int, ...] | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that are read, in the order of the model."""
        return tuple(range(self.num_layers)) if self.only_layers is None else self.only_layers

    @property
    def heads(self) -> tuple[int, ...]:
        """The heads that are read of each layer."""
        return tuple(range(self.num_heads)) if self.only_heads is None else self.only_heads

    def only(self, layers: Sequence[int] | None, heads: Sequence[int] | None, name: str) -> "PartSpec":
        """The part of the model `name` with only these layers and heads read.

        Raises:
            InputError: a layer or head that it does not have.
        """
        for what, numbers, count in (("layers", layers, self.num_layers), ("heads", heads, self.num_heads)):
            if numbers is not None and not (numbers and 0 <= min(numbers) <= max(numbers) < count):
                raise InputError(
                    f"the {self.name} does not have these {what}",
                    received=", ".join(map(str, numbers)) or "none",
                    expected=f"numbers from 0 to {count - 1}",
                    where=name,
                )
        chosen = [None if numbers is None else tuple(sorted(set(numbers))) for numbers in (layers, heads)]
        return replace(self, only_layers=chosen[0], only_heads=chosen[1])

    def key_value_head(self, head: int) -> int:
        """The key-value head that a query head reads."""
        return head if self.key_value_heads is None else head // (self.num_heads // self.key_value_heads)


@dataclass(frozen=True)
class PartPattern:
    """Where a part is found in the base model.

    modules: regular expression for the full names of the attention modules. Their output is a tuple.
    layers: config fields (or numbers) whose product is the number of attention rows. ALBERT calls one module for
        every layer.
    heads: config field (or number) with the query heads (with grouped-query attention, not the key-value heads).
    weights: where the attention weights stand in the output of a module.
    sinks: see `PartSpec`.
    """

    name: str
    modules: str
    causal: bool
    layers: tuple[str | int, ...] = ("num_hidden_layers",)
    heads: str | int = "num_attention_heads"
    query_shift: int = 0
    key_shift: int = 0
    weights: int = 1
    sinks: bool = False

    def spec(self, config: Any) -> PartSpec:
        """The part of a model with this config."""
        fields = (*self.layers, self.heads)
        *layers, heads = (field if isinstance(field, int) else int(getattr(config, field)) for field in fields)
        shared = getattr(config, "num_key_value_heads", None)
        # Gemma 3 as an embedding model looks both ways.
        causal = self.causal and not getattr(config, "use_bidirectional_attention", False)
        return PartSpec(
            self.name,
            prod(layers),
            heads,
            causal,
            self.query_shift,
            self.key_shift,
            None if shared in (None, heads) else int(shared),
            self.sinks,
        )


@dataclass(frozen=True)
class Family:
    """How models of one kind are viewed.

    embedding_layer: module whose output is "the output of the embedding layer".
    positions_after_padding: position numbers start at the padding id + 1 (RoBERTa, MPNet), so that the window is
        shorter than the position table by as many places.
    """

    parts: tuple[PartPattern, ...]
    embedding_layer: str
    positions_after_padding: bool = False


def _sequence_to_sequence(
    modules: tuple[str, str, str],
    encoder: tuple[str, str],
    decoder: tuple[str, str],
    embedding_layer: str,
    weights: int = 1,
) -> Family:
    """modules of encoder, decoder and cross attention; config fields (layers, heads) of the two stacks."""
    parts = (
        PartPattern("encoder", modules[0], False, encoder[:1], encoder[1], weights=weights),
        PartPattern("decoder", modules[1], True, decoder[:1], decoder[1], 1, 1, weights),
        PartPattern("cross", modules[2], False, decoder[:1], decoder[1], query_shift=1, weights=weights),
    )
    return Family(parts, embedding_layer)


_BERT = Family((PartPattern("encoder", r"encoder\.layer\.\d+\.attention\.self", causal=False),), "embeddings")
_ROBERTA = replace(_BERT, positions_after_padding=True)
_MPNET = PartPattern("encoder", r"encoder\.layer\.\d+\.attention\.attn", causal=False)
_ALBERT = PartPattern(
    "encoder",
    r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+\.attention",
    causal=False,
    layers=("num_hidden_layers", "inner_group_num"),
)
_LLAMA = PartPattern("decoder", r"layers\.\d+\.self_attn", causal=True)
# T5 hands out (output, position bias, weights) and has its dropout, not a norm, after the embeddings.
_T5 = _sequence_to_sequence(
    (
        r"encoder\.block\.\d+\.layer\.0\.SelfAttention",
        r"decoder\.block\.\d+\.layer\.0\.SelfAttention",
        r"decoder\.block\.\d+\.layer\.1\.EncDecAttention",
    ),
    ("num_layers", "num_heads"),
    ("num_decoder_layers", "num_heads"),
    "encoder.embed_tokens",
    weights=2,
)

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mpnet": Family((_MPNET,), "embeddings", positions_after_padding=True),
    "distilbert": Family((PartPattern("encoder", r"transformer\.layer\.\d+\.attention", causal=False),), "embeddings"),
    "albert": Family((_ALBERT,), "embeddings"),
    "deberta-v2": _BERT,
    "modernbert": Family((PartPattern("encoder", r"layers\.\d+\.attn", causal=False),), "embeddings"),
    "bart": _sequence_to_sequence(
        (r"encoder\.layers\.\d+\.self_attn", r"decoder\.layers\.\d+\.self_attn", r"decoder\.layers\.\d+\.encoder_attn"),
        ("encoder_layers", "encoder_attention_heads"),
        ("decoder_layers", "decoder_attention_heads"),
        "encoder.layernorm_embedding",
    ),
    "t5": _T5,
    "mt5": _T5,
    "gpt2": Family((PartPattern("decoder", r"h\.\d+\.attn", causal=True),), "drop"),
    "gpt_neox": Family((PartPattern("decoder", r"layers\.\d+\.attention", causal=True),), "emb_dropout"),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), Family((_LLAMA,), "embed_tokens")
    ),
    "gpt_oss": Family((replace(_LLAMA, sinks=True),), "embed_tokens"),
}

# Types that are refused by name before anything is loaded.
REFUSED = {
    "mamba": "it has no attention",
    "mamba2": "it has no attention",
    "rwkv": "it has no attention",
    "gemma3": "it reads images as well; its text model alone (type 'gemma3_text') can be probed",
}
# Longest input, in tokens, of a model that states no number of positions: what such models are trained on.
RELATIVE_WINDOW = 512


def family_of(config: Any, name: str) -> Family | None:
    """The family of a model by its config; None for a type outside the table (see `discovery.discovered_family`).

    Raises:
        UnsupportedModelError: a type that is known not to work, or an encoder that was configured as a decoder.
    """
    model_type = str(getattr(config, "model_type", "") or type(config).__name__)
    if model_type in REFUSED:
        raise UnsupportedModelError(
            f"a model of type {model_type!r} cannot be viewed: {REFUSED[model_type]}",
            received=name,
            expected=f"{', '.join(sorted(FAMILIES))}, or another type whose modules hand out attention weights",
        )
    family = FAMILIES.get(model_type)
    encoder = family is not None and not any(part.causal for part in family.parts)
    if encoder and getattr(config, "is_decoder", False):
        raise UnsupportedModelError(
            f"a model of type {model_type!r} that was configured as a decoder cannot be viewed: "
            "the table describes it as an encoder that sees both sides",
            received=f"{name} with is_decoder=True",
            expected="is_decoder=False",
        )
    return family
