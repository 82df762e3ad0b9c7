"""Where each family keeps the matrices of a head, and which norms stand around its attention.

A new family is one entry here. Everything is checked by tests/probing/test_circuit_weights.py against what the models
compute.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """Names of modules, relative to the layer unless said otherwise; "" where the family has none.

    attention: what leads from the layer to its attention module.
    maps: the linear maps to queries, keys and values, relative to the attention module; output: that of the output.
        With `fused`, one map holds all three: "thirds": all queries, all keys, all values; "heads": query, key, value
        of one head after the other.
    norm: norm of the layer's input, in pre-norm families. after: norm of the attention's output before it is added.
    query_norm, key_norm: norms of each head's queries and keys.
    final: norm before the output embeddings, relative to the model. Post-norm families have none: what leaves the last
        layer is normalised already.
    project: linear map from the embeddings' width to the layers', relative to the model.
    embedding: module whose output enters the queries' stack, relative to the model; "" for the family's own.
    source_norm: norm of what cross attention attends to, relative to the model.
    gain_from_one: the gain of a norm is 1 + w (Gemma), not w.
    left_out: what else the model adds to a head's scores, and the circuit does not hold.
    """

    attention: str
    maps: tuple[str, ...]
    output: str
    fused: Literal["", "thirds", "heads"] = ""
    norm: str = ""
    after: str = ""
    query_norm: str = ""
    key_norm: str = ""
    final: str = ""
    project: str = ""
    embedding: str = ""
    source_norm: str = ""
    gain_from_one: bool = False
    left_out: str = ""


_ABSOLUTE = "learned positions enter with the embedding layer's output: position 1 for every word"
_ROTARY = "rotary positions: scores are those at relative distance 0"
_RELATIVE = "the bias by relative position"

_BERT = Layout("attention.self", ("query", "key", "value"), "attention.output.dense", left_out=_ABSOLUTE)
_LLAMA = Layout(
    "self_attn",
    ("q_proj", "k_proj", "v_proj"),
    "self_attn.o_proj",
    norm="input_layernorm",
    final="norm",
    left_out=_ROTARY,
)
_QWEN3 = replace(_LLAMA, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm")
_GEMMA = replace(_LLAMA, gain_from_one=True)
_GEMMA2 = replace(_GEMMA, after="post_attention_layernorm", left_out=f"{_ROTARY}; the soft cap of the scores")
_GEMMA3 = replace(_QWEN3, gain_from_one=True, after="post_attention_layernorm")


_BART_MAPS, _BART_EMBEDDING = ("q_proj", "k_proj", "v_proj"), "decoder.layernorm_embedding"
_BART_SELF = Layout("self_attn", _BART_MAPS, "self_attn.out_proj", left_out=_ABSOLUTE)
_BART_CROSS = Layout("encoder_attn", _BART_MAPS, "encoder_attn.out_proj", left_out=_ABSOLUTE)
_BART = {
    "encoder": _BART_SELF,
    "decoder": replace(_BART_SELF, embedding=_BART_EMBEDDING),
    "cross": replace(_BART_CROSS, embedding=_BART_EMBEDDING),
}
_T5_SELF = Layout(
    "layer.0.SelfAttention",
    ("q", "k", "v"),
    "layer.0.SelfAttention.o",
    norm="layer.0.layer_norm",
    left_out=_RELATIVE,
)
_T5 = {
    "encoder": replace(_T5_SELF, final="encoder.final_layer_norm"),
    "decoder": replace(_T5_SELF, final="decoder.final_layer_norm", embedding="decoder.embed_tokens"),
    "cross": Layout(
        "layer.1.EncDecAttention",
        ("q", "k", "v"),
        "layer.1.EncDecAttention.o",
        norm="layer.1.layer_norm",
        final="decoder.final_layer_norm",
        embedding="decoder.embed_tokens",
        source_norm="encoder.final_layer_norm",
    ),
}

# By model type; families with several parts by the part's name as well.
LAYOUTS: dict[str, Layout | dict[str, Layout]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "camembert": _BERT,
    "xlm-roberta": _BERT,
    "electra": replace(_BERT, project="embeddings_project"),
    "albert": Layout(
        "attention",
        ("query", "key", "value"),
        "attention.dense",
        project="encoder.embedding_hidden_mapping_in",
        left_out=_ABSOLUTE,
    ),
    "distilbert": Layout("attention", ("q_lin", "k_lin", "v_lin"), "attention.out_lin", left_out=_ABSOLUTE),
    "mpnet": Layout("attention.attn", ("q", "k", "v"), "attention.attn.o", left_out=f"{_ABSOLUTE}; {_RELATIVE}"),
    "deberta-v2": Layout(
        "attention.self",
        ("query_proj", "key_proj", "value_proj"),
        "attention.output.dense",
        left_out="the scores between content and position: only content with content is here",
    ),
    "modernbert": Layout(
        "attn", ("Wqkv",), "attn.Wo", fused="thirds", norm="attn_norm", final="final_norm", left_out=_ROTARY
    ),
    "bart": _BART,
    "t5": _T5,
    "mt5": _T5,
    "gpt2": Layout("attn", ("c_attn",), "attn.c_proj", fused="thirds", norm="ln_1", final="ln_f", left_out=_ABSOLUTE),
    "gpt_neox": Layout(
        "attention",
        ("query_key_value",),
        "attention.dense",
        fused="heads",
        norm="input_layernorm",
        final="final_layer_norm",
        left_out=_ROTARY,
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gpt_oss": replace(_LLAMA, left_out=f"{_ROTARY}; the learned sinks"),
}
