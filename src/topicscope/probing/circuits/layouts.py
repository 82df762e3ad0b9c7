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
    query, key, value, output: the linear maps. With `fused`, `query` names the one map that holds all three:
        "thirds": all queries, all keys, all values; "heads": query, key, value of one head after the other.
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
    query: str
    key: str = ""
    value: str = ""
    output: str = ""
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

_BERT = Layout(
    "attention.self",
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    left_out=_ABSOLUTE,
)
_LLAMA = Layout(
    "self_attn",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    norm="input_layernorm",
    final="norm",
    left_out=_ROTARY,
)
_QWEN3 = replace(_LLAMA, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm")
_GEMMA = replace(_LLAMA, gain_from_one=True)
_GEMMA2 = replace(_GEMMA, after="post_attention_layernorm", left_out=f"{_ROTARY}; the soft cap of the scores")
_GEMMA3 = replace(_QWEN3, gain_from_one=True, after="post_attention_layernorm")


def _sequence_to_sequence(
    left_out: str, self_attention: str, cross_attention: str, names: tuple[str, str, str, str], decoder_embedding: str
) -> dict[str, Layout]:
    """The three kinds of attention; names: of queries, keys, values and output inside each attention module."""

    def of(attention: str, embedding: str) -> Layout:
        query, key, value, output = (f"{attention}.{name}" for name in names)
        return Layout(attention, query, key, value, output, embedding=embedding, left_out=left_out)

    return {
        "encoder": of(self_attention, ""),
        "decoder": of(self_attention, decoder_embedding),
        "cross": of(cross_attention, decoder_embedding),
    }


_BART = _sequence_to_sequence(
    _ABSOLUTE, "self_attn", "encoder_attn", ("q_proj", "k_proj", "v_proj", "out_proj"), "decoder.layernorm_embedding"
)
_T5_PLAIN = _sequence_to_sequence(
    _RELATIVE, "layer.0.SelfAttention", "layer.1.EncDecAttention", ("q", "k", "v", "o"), "decoder.embed_tokens"
)
_T5 = {
    "encoder": replace(_T5_PLAIN["encoder"], norm="layer.0.layer_norm", final="encoder.final_layer_norm"),
    "decoder": replace(_T5_PLAIN["decoder"], norm="layer.0.layer_norm", final="decoder.final_layer_norm"),
    "cross": replace(
        _T5_PLAIN["cross"],
        norm="layer.1.layer_norm",
        final="decoder.final_layer_norm",
        source_norm="encoder.final_layer_norm",
        left_out="",
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
        "attention.query",
        "attention.key",
        "attention.value",
        "attention.dense",
        project="encoder.embedding_hidden_mapping_in",
        left_out=_ABSOLUTE,
    ),
    "distilbert": Layout(
        "attention",
        "attention.q_lin",
        "attention.k_lin",
        "attention.v_lin",
        "attention.out_lin",
        left_out=_ABSOLUTE,
    ),
    "mpnet": Layout(
        "attention.attn",
        "attention.attn.q",
        "attention.attn.k",
        "attention.attn.v",
        "attention.attn.o",
        left_out=f"{_ABSOLUTE}; {_RELATIVE}",
    ),
    "deberta-v2": Layout(
        "attention.self",
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
        "attention.output.dense",
        left_out="the scores between content and position: only content with content is here",
    ),
    "modernbert": Layout(
        "attn", "attn.Wqkv", output="attn.Wo", fused="thirds", norm="attn_norm", final="final_norm", left_out=_ROTARY
    ),
    "bart": _BART,
    "t5": _T5,
    "mt5": _T5,
    "gpt2": Layout(
        "attn", "attn.c_attn", output="attn.c_proj", fused="thirds", norm="ln_1", final="ln_f", left_out=_ABSOLUTE
    ),
    "gpt_neox": Layout(
        "attention",
        "attention.query_key_value",
        output="attention.dense",
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
