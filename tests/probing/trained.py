"""Small models, trained here on topic-model text until they show its structure, and kept for later.

T = 10 topics of v = 10 words, τ = 3 in a document of N = 100 words, width 64. Objectives: "masked" (masked language
model, a tenth of the chosen words replaced at random), "causal" (the next word) and "sequence" (sequence to sequence:
the masked text in, the text out). A model is drawn from a fixed seed and stored in the temporary folder under a key
that names the recipe, this file and the libraries.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers as t
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from probing import topic_text

TOPICS = topic_text.words_of(10, 10)
PER_DOCUMENT, LENGTH, WINDOW = 3, 100, 128
BATCH, RATE = 16, 2e-3
# Of the words, the share that must be told; of those, the shares replaced at random and left as they are.
CHOSEN, RANDOM, KEPT = 0.15, 0.1, 0.1


@dataclass(frozen=True)
class Training:
    """How one model is trained."""

    family: str
    objective: str
    steps: int
    layers: int = 1
    seed: int = 0

    @property
    def name(self) -> str:
        """For tables and the names of tests."""
        return f"{self.family}-{self.objective}"


def model_and_tokenizer(training: Training) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The trained base model; from the temporary folder if it was trained before."""
    tokenizer = topic_text.tokenizer(training.family, TOPICS, WINDOW)
    path = _kept(training)
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        model = _model(training, tokenizer)
        if path.is_file():
            model.load_state_dict(load_file(path))
        else:
            _train(model, tokenizer, training)
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_suffix(f".{os.getpid()}")  # several test processes may want the same model
            save_file({name: value.clone() for name, value in model.state_dict().items()}, half)
            half.replace(path)
    return model.base_model.eval(), tokenizer


def _kept(training: Training) -> Path:
    recipe = [repr(training), Path(__file__).read_text(), torch.__version__, t.__version__]
    key = hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"topicscope-tests-{os.getuid()}" / f"{training.name}-{key}.safetensors"


def _model(training: Training, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    common = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id or 1, "bos_token_id": 0}
    common["eos_token_id"] = 2
    size = {"hidden_size": 64, "num_hidden_layers": training.layers, "num_attention_heads": 4, "intermediate_size": 128}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": WINDOW + 2}
    bert = common | size | still
    makers = {
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**bert)),
        "roberta": lambda: t.RobertaForMaskedLM(t.RobertaConfig(**bert)),
        "albert": lambda: t.AlbertForMaskedLM(t.AlbertConfig(**bert, embedding_size=64)),
        "electra": lambda: t.ElectraForMaskedLM(t.ElectraConfig(**bert, embedding_size=64)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(
                **common, n_positions=WINDOW, n_embd=64, n_layer=training.layers, n_head=4, resid_pdrop=0.0,
                embd_pdrop=0.0, attn_pdrop=0.0,
            )
        ),
        "bart": lambda: t.BartForConditionalGeneration(
            t.BartConfig(
                **common, max_position_embeddings=WINDOW, d_model=64, encoder_layers=training.layers,
                decoder_layers=training.layers, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=128, decoder_ffn_dim=128, dropout=0.0, decoder_start_token_id=2, forced_eos_token_id=2,
            )
        ),
    }  # fmt: skip
    return makers[training.family]()


def _train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, training: Training) -> None:
    generator = torch.Generator().manual_seed(training.seed)
    ids = {w: tokenizer.encode(f" {w}", add_special_tokens=False) for words in TOPICS for w in words}
    assert all(len(found) == 1 for found in ids.values()), "every word is one token"
    vocabulary = torch.tensor([[ids[w][0] for w in words] for words in TOPICS])
    around = tokenizer.encode("")
    first, last = around[:1], around[1:]
    mask_id = tokenizer.convert_tokens_to_ids("[MASK]" if "[MASK]" in tokenizer.get_vocab() else "<mask>")
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(training.steps):
        chosen = torch.rand(BATCH, len(TOPICS), generator=generator).argsort(1)[:, :PER_DOCUMENT]
        which = torch.randint(PER_DOCUMENT, (BATCH, LENGTH), generator=generator)
        text = vocabulary[chosen.gather(1, which), torch.randint(vocabulary.shape[1], which.shape, generator=generator)]
        told = torch.rand(text.shape, generator=generator) < CHOSEN
        how = torch.rand(text.shape, generator=generator)
        noise = vocabulary.flatten()[torch.randint(vocabulary.numel(), text.shape, generator=generator)]
        changed = torch.where(how < RANDOM, noise, torch.where(how < RANDOM + KEPT, text, mask_id))
        masked = torch.where(told, changed, text)
        loss = _loss(
            model, training, _framed(text, first, last), _framed(masked, first, last), _framed(told, first, last)
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def _framed(rows: torch.Tensor, first: list[int], last: list[int]) -> torch.Tensor:
    """With the special tokens around; a mask gets False there."""
    edges = [torch.tensor([edge], dtype=torch.int64).expand(len(rows), -1) for edge in (first, last)]
    if rows.dtype == torch.bool:
        edges = [torch.zeros_like(edge, dtype=torch.bool) for edge in edges]
    return torch.cat([edges[0], rows, edges[1]], 1)


def _loss(
    model: PreTrainedModel, training: Training, text: torch.Tensor, masked: torch.Tensor, told: torch.Tensor
) -> torch.Tensor:
    if training.objective == "causal":
        return model(input_ids=text, labels=text).loss
    if training.objective == "sequence":
        return model(input_ids=masked, labels=text).loss
    if training.family == "bart":
        logits = model.lm_head(model.model.encoder(input_ids=masked).last_hidden_state) + model.final_logits_bias
    else:
        logits = model(input_ids=masked).logits
    return torch.nn.functional.cross_entropy(logits[told], text[told])
