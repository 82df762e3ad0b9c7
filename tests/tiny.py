"""Tiny random models of every family with tokenizers made on the spot, for the tests.

`tiny.build("bert")` gives (model, tokenizer). The tokenizers know WORDS as whole tokens in their own styles: uncased
WordPiece (BERT, ELECTRA, DistilBERT, MPNet), byte-level BPE (RoBERTa, BART, GPT-2, Llama) and Unigram with "▁"
(ALBERT, T5, Gemma). Other words fall into pieces.
"""

from collections.abc import Callable, Sequence

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

_WORDS = """
the river bank flows under old stone bridge toward sea ship sails carry goods market money trade city king queen castle
war army battle sword music song piano violin concert theatre actor film camera light star planet moon orbit rocket
engine steel metal water ice snow mountain forest tree bird animal fish cafe house garden flower doctor medicine
disease cell protein gene school teacher student book letter word and of in to is was with on
"""
WORDS = tuple(_WORDS.split())
FAMILIES = ("bert", "roberta", "albert", "electra", "distilbert", "mpnet", "bart", "gpt2", "llama")
MORE_FAMILIES = (
    "deberta-v2", "gpt_neox", "mistral", "qwen2", "qwen3", "camembert", "xlm-roberta", "modernbert", "t5", "mt5",
    "gemma", "gemma2", "gemma3_text", "gpt_oss",
)  # fmt: skip
STYLES = {
    "wordpiece": ("bert", "electra", "distilbert", "mpnet", "deberta-v2", "modernbert"),
    "bytes": ("roberta", "bart", "gpt2", "llama", "gpt_neox", "mistral", "qwen2", "qwen3", "gpt_oss"),
    "unigram": ("albert", "camembert", "xlm-roberta", "t5", "mt5", "gemma", "gemma2", "gemma3_text"),
}
MAX_LENGTH = 64
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PUNCTUATION = ".,;:!?'\"()-0123456789"


def style_of(family: str) -> str:
    """Which tokenizer a family has here."""
    return next(style for style, families in STYLES.items() if family in families)


def build(
    family: str, *, seed: int = 0, words: Sequence[str] = WORDS
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A random two-layer model of the family and its tokenizer."""
    tokenizer = tokenizer_for(family, words)
    return model_for(family, len(tokenizer), tokenizer, seed=seed), tokenizer


def tokenizer_for(family: str, words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """The family's style of tokenizer, with its special tokens: GPT-2 has none, Llama only a first one."""
    style = style_of(family)
    if style == "wordpiece":
        return wordpiece(words, ("<s>", "[PAD]", "</s>", "[UNK]", "[MASK]") if family == "mpnet" else BERT_SPECIALS)
    if style == "unigram":
        return unigram(words)
    around = ("", "") if family in ("gpt2", "gpt_neox", "qwen2", "qwen3", "gpt_oss") else ("<s>", "</s>")
    if family in ("llama", "mistral"):
        around = ("<s>", "")
    return byte_bpe(words, around)


BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def wordpiece(words: Sequence[str] = WORDS, specials: Sequence[str] = BERT_SPECIALS) -> PreTrainedTokenizerFast:
    """Uncased WordPiece as in BERT: accents stripped, [CLS] … [SEP]."""
    pieces = [*specials, *_PUNCTUATION, *_LETTERS, *(f"##{c}" for c in _LETTERS), *words]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    first, last = ("[CLS]", "[SEP]") if "[CLS]" in specials else ("<s>", "</s>")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, vocab[first]), (last, vocab[last])]
    )
    return _wrap(backend, pad="[PAD]", unk="[UNK]", cls=first, sep=last, mask="[MASK]")


def byte_bpe(words: Sequence[str] = WORDS, around: tuple[str, str] = ("<s>", "</s>")) -> PreTrainedTokenizerFast:
    """Cased byte-level BPE; offsets include the leading space, as GPT-2's do. "Ġword" and "word" are two tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=5000,
        special_tokens=["<s>", "<pad>", "</s>", "<mask>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # One line a word, bare and spaced, so that both forms become tokens.
    backend.train_from_iterator([form for word in words for form in (word, f" {word}")], trainer)
    ids = {token: backend.token_to_id(token) for token in ("<s>", "</s>")}
    first, last = around
    template = " ".join(part for part in (first, "$A", last) if part)
    backend.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=template, special_tokens=list(ids.items())),
        ]
    )
    pad = "<pad>" if last else None  # GPT-2 and Llama have no padding token
    return _wrap(backend, bos="<s>", eos="</s>", pad=pad, mask="<mask>" if last else None)


def unigram(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Unigram with "▁" for a space, lower case and without accents, as in ALBERT."""
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys(specials, 0.0)
    pieces |= {f"▁{word}": -5.0 for word in words}
    pieces |= dict.fromkeys(("▁", *_LETTERS, *_PUNCTUATION), -12.0)
    backend = Tokenizer(models.Unigram(list(pieces.items()), unk_id=1, byte_fallback=False))
    backend.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    ids = list(pieces)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids.index("[CLS]")), ("[SEP]", ids.index("[SEP]"))]
    )
    return _wrap(backend, pad="<pad>", unk="<unk>", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def model_for(family: str, vocab_size: int, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0) -> PreTrainedModel:
    """A random model of the family: two layers (ALBERT: one called three times), four heads, width 32."""
    pad = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    common = {"vocab_size": vocab_size, "pad_token_id": pad, "bos_token_id": 0, "eos_token_id": 2}
    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    roberta_positions = {"max_position_embeddings": MAX_LENGTH + pad + 1}
    positions = {"max_position_embeddings": MAX_LENGTH}
    t = transformers
    grouped = wide | positions | {"num_key_value_heads": 2}
    t5 = common | {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    t5 |= {"decoder_start_token_id": pad, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
    makers: dict[str, Callable[[], PreTrainedModel]] = {
        "bert": lambda: t.BertModel(t.BertConfig(**common, **wide, **positions)),
        "roberta": lambda: t.RobertaModel(t.RobertaConfig(**common, **wide, **roberta_positions)),
        "camembert": lambda: t.CamembertModel(t.CamembertConfig(**common, **wide, **roberta_positions)),
        "xlm-roberta": lambda: t.XLMRobertaModel(t.XLMRobertaConfig(**common, **wide, **roberta_positions)),
        "albert": lambda: t.AlbertModel(
            t.AlbertConfig(**common, **(wide | {"num_hidden_layers": 3}), **positions, embedding_size=16)
        ),
        "electra": lambda: t.ElectraModel(t.ElectraConfig(**common, **wide, **positions, embedding_size=16)),
        "distilbert": lambda: t.DistilBertModel(
            t.DistilBertConfig(**common, dim=32, n_layers=2, n_heads=4, hidden_dim=64, **positions)
        ),
        "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**common, **wide, max_position_embeddings=MAX_LENGTH + 2)),
        "deberta-v2": lambda: t.DebertaV2Model(
            t.DebertaV2Config(
                **common, **wide, **positions, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16
            )
        ),
        "bart": lambda: t.BartModel(
            t.BartConfig(
                **common,
                **positions,
                d_model=32,
                encoder_layers=2,
                decoder_layers=3,
                encoder_attention_heads=4,
                decoder_attention_heads=2,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                decoder_start_token_id=2,
                forced_eos_token_id=2,
            )
        ),
        "modernbert": lambda: t.ModernBertModel(
            t.ModernBertConfig(
                **common,
                **(wide | {"num_hidden_layers": 3}),
                **positions,
                cls_token_id=2,
                sep_token_id=3,
                local_attention=6,
                global_attn_every_n_layers=2,
            )
        ),
        "t5": lambda: t.T5Model(t.T5Config(**t5)),
        "mt5": lambda: t.MT5Model(t.MT5Config(**t5)),
        "gemma": lambda: t.GemmaModel(t.GemmaConfig(**common, **grouped, head_dim=8)),
        "gemma2": lambda: t.Gemma2Model(
            t.Gemma2Config(
                **common, **grouped, head_dim=8, sliding_window=6, attn_logit_softcapping=0.5, query_pre_attn_scalar=8
            )
        ),
        "gemma3_text": lambda: t.Gemma3TextModel(
            t.Gemma3TextConfig(
                **common,
                **grouped,
                head_dim=8,
                sliding_window=6,
                query_pre_attn_scalar=8,
                layer_types=["sliding_attention", "full_attention"],
            )
        ),
        "gpt_oss": lambda: t.GptOssModel(
            t.GptOssConfig(
                **common,
                **grouped,
                head_dim=8,
                sliding_window=6,
                num_local_experts=2,
                num_experts_per_tok=1,
                rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            )
        ),
        "gpt2": lambda: t.GPT2Model(t.GPT2Config(**common, n_positions=MAX_LENGTH, n_embd=32, n_layer=2, n_head=4)),
        "gpt_neox": lambda: t.GPTNeoXModel(t.GPTNeoXConfig(**common, **wide, **positions)),
        "llama": lambda: t.LlamaModel(t.LlamaConfig(**common, **grouped)),
        "mistral": lambda: t.MistralModel(t.MistralConfig(**common, **grouped, sliding_window=6)),
        "qwen2": lambda: t.Qwen2Model(t.Qwen2Config(**common, **grouped)),
        "qwen3": lambda: t.Qwen3Model(t.Qwen3Config(**common, **grouped, head_dim=8)),
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return makers[family]().eval()


def _wrap(backend: Tokenizer, **tokens: str | None) -> PreTrainedTokenizerFast:
    named = {f"{name}_token": token for name, token in tokens.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=MAX_LENGTH, **named)
