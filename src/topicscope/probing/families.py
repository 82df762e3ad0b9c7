"""The table of model families: where each keeps its attention modules. A new family is one entry here."""

from dataclasses import dataclass
from typing import Any

from topicscope.errors import UnsupportedModelError


@dataclass(frozen=True)
class PartSpec:
    """One stack of attention of a model that is viewed.

    name: "encoder", "decoder" (self-attention that sees only the past) or "cross" (decoder on encoder).
    causal: position i attends to j <= i only.
    query_shift, key_shift: position i of the queries (keys) holds token i - shift of the text. It is 1 for what a
        sequence-to-sequence decoder reads, since its input is the text moved one to the right.
    """

    name: str
    num_layers: int
    num_heads: int
    causal: bool
    query_shift: int = 0
    key_shift: int = 0


@dataclass(frozen=True)
class PartPattern:
    """Where a part is found in the base model.

    modules: regular expression for the full names of the attention modules. Their output is (output, weights, …).
    layers: config fields whose product is the number of attention rows. ALBERT calls one module for every layer.
    heads: config field with the number of query heads (with grouped-query attention, not the key-value heads).
    """

    name: str
    modules: str
    causal: bool
    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: str = "num_attention_heads"
    query_shift: int = 0
    key_shift: int = 0

    def spec(self, config: Any) -> PartSpec:
        """The part of a model with this config."""
        num_layers = 1
        for field in self.layers:
            num_layers *= getattr(config, field)
        heads = getattr(config, self.heads)
        return PartSpec(self.name, num_layers, heads, self.causal, self.query_shift, self.key_shift)


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

    @property
    def shifts_text(self) -> bool:
        """Whether a decoder reads the text moved one to the right, beside an encoder that reads it as it is."""
        return any(part.query_shift for part in self.parts)


def _encoder(modules: str, layers: tuple[str, ...] = ("num_hidden_layers",), *, after_padding: bool = False) -> Family:
    return Family((PartPattern("encoder", modules, False, layers),), "embeddings", after_padding)


def _decoder(modules: str, embedding_layer: str) -> Family:
    return Family((PartPattern("decoder", modules, True),), embedding_layer)


_BERT = _encoder(r"encoder\.layer\.\d+\.attention\.self")
_ROBERTA = _encoder(r"encoder\.layer\.\d+\.attention\.self", after_padding=True)
_LLAMA = _decoder(r"layers\.\d+\.self_attn", "embed_tokens")

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mpnet": _encoder(r"encoder\.layer\.\d+\.attention\.attn", after_padding=True),
    "distilbert": _encoder(r"transformer\.layer\.\d+\.attention"),
    "albert": _encoder(
        r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+\.attention", ("num_hidden_layers", "inner_group_num")
    ),
    "deberta-v2": _encoder(r"encoder\.layer\.\d+\.attention\.self"),
    "bart": Family(
        (
            PartPattern(
                "encoder", r"encoder\.layers\.\d+\.self_attn", False, ("encoder_layers",), "encoder_attention_heads"
            ),
            PartPattern(
                "decoder",
                r"decoder\.layers\.\d+\.self_attn",
                True,
                ("decoder_layers",),
                "decoder_attention_heads",
                query_shift=1,
                key_shift=1,
            ),
            PartPattern(
                "cross",
                r"decoder\.layers\.\d+\.encoder_attn",
                False,
                ("decoder_layers",),
                "decoder_attention_heads",
                query_shift=1,
            ),
        ),
        "encoder.layernorm_embedding",
    ),
    "gpt2": _decoder(r"h\.\d+\.attn", "drop"),
    "gpt_neox": _decoder(r"layers\.\d+\.attention", "emb_dropout"),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}

_REASONS = {
    "mamba": "it has no attention",
    "mamba2": "it has no attention",
    "rwkv": "it has no attention",
    "t5": "its decoder is not described in the table of families yet",
    "mt5": "its decoder is not described in the table of families yet",
}


def family_of(config: Any, name: str) -> Family:
    """The family of a model by its config.

    Raises:
        UnsupportedModelError: a model type outside the table, or an encoder that was configured as a decoder.
    """
    model_type = str(getattr(config, "model_type", "") or type(config).__name__)
    family = FAMILIES.get(model_type)
    if family is None:
        reason = _REASONS.get(model_type, "it is not known which of its modules compute attention weights")
        raise UnsupportedModelError(
            f"a model of type {model_type!r} cannot be viewed: {reason}",
            received=name,
            expected=", ".join(sorted(FAMILIES)),
            advice="probe a model of one of these types, or add the type to FAMILIES in topicscope/probing/families.py",
        )
    if family.embedding_layer == "embeddings" and getattr(config, "is_decoder", False):
        raise UnsupportedModelError(
            f"a model of type {model_type!r} that was configured as a decoder cannot be viewed: "
            "the table describes it as an encoder that sees both sides",
            received=f"{name} with is_decoder=True",
            expected="is_decoder=False",
        )
    return family
