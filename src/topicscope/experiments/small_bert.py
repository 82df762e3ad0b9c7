"""A small BERT trained as a masked language model on a corpus: the one real masked language model that needs no hub.

Text becomes windows of `length` tokens, [CLS] … [SEP], each from one document; a share `mask` of the other tokens is
predicted: 80 % of these read [MASK], 10 % a random token, 10 % themselves (Devlin et al. 2019). AdamW, linear warm-up
over a tenth of the steps, then linear decay to 0. No dropout: the model sees each window a few times only, and so a
step depends on the seed and its number alone, and an interrupted run goes on to the same weights.
"""

import contextlib
import hashlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from topicscope.errors import InputError
from topicscope.lab import (
    Checkpoint,
    flatten_optimizer,
    load_checkpoint,
    remove_checkpoint,
    restore_optimizer,
    save_checkpoint,
)
from topicscope.probing.hf import quiet
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import (
    MODEL,
    NUMBERS_VERSION,
    cache_folder,
    read_json,
    replaced_folder,
    sha256_of_file,
    write_json,
)
from topicscope.text import Corpus, passages

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FINISHED, WEIGHTS = "training.json", "model.safetensors"
_EVERY = 100  # steps between checkpoints: about 15 seconds
_RECENT = 50  # steps whose mean loss is recorded


class SmallBert(BaseModel):
    """Everything that decides the model; one of equal options and text is never trained twice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(ge=1, description="steps of the optimiser")
    vocabulary: int = Field(8000, ge=100, description="tokens at most: the most frequent words")
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    width: int = Field(128, ge=4, description="hidden size; the feed-forward part is four times as wide")
    length: int = Field(64, ge=4, description="tokens of a window, specials included, and longest input")
    batch: int = Field(32, ge=1, description="windows of a step")
    mask: float = Field(0.3, gt=0, lt=1, description="share of the tokens that are predicted")
    learning_rate: float = Field(0.002, gt=0, description="highest rate")
    weight_decay: float = Field(0.01, ge=0)
    seed: int = Field(0, ge=0)


def small_bert(corpus: Corpus, options: SmallBert, folder: Path | None, progress: Progress | None = None) -> Path:
    """The folder of the trained model and its tokenizer, as transformers saves them.

    It lies in `folder` (None: in the user's cache) under a name that holds a hash of options, text and versions.
    A model found there or in the cache is not trained again, an interrupted training goes on where it was, and a
    trained model is also put into the cache, if that can be written. `training.json` tells options, loss and counts.
    """
    name = f"small-bert-{_key(corpus, options)[:16]}"
    cached = cache_folder() / name
    place = cached if folder is None else folder / name
    if not is_finished(place):
        if is_finished(cached):
            _copy(cached, place)
        else:
            _train(corpus, options, place, progress or SilentProgress())
    if not is_finished(cached):
        # A cache that cannot be written is no failure: only the next run in another folder trains again.
        with contextlib.suppress(OSError, InputError):
            _copy(place, cached)
    return place


def is_finished(place: Path) -> bool:
    """Whether a folder holds a whole trained model: its weights have the hash they were saved with."""
    if not ((place / FINISHED).is_file() and (place / WEIGHTS).is_file()):
        return False
    return bool(read_json(place / FINISHED)["sha256"] == sha256_of_file(place / WEIGHTS))


def _key(corpus: Corpus, options: SmallBert) -> str:
    versions = f"{NUMBERS_VERSION} {torch.__version__} {transformers.__version__} {tokenizers.__version__}"
    parts = [options.model_dump_json(), corpus.fingerprint(), versions]
    return hashlib.sha256(b"".join(hashlib.sha256(part.encode()).digest() for part in parts)).hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all; a checkpoint at the target is of no more use."""
    with replaced_folder(target, MODEL, overwrite=True) as staging:
        shutil.copytree(source, staging, dirs_exist_ok=True)


def _train(corpus: Corpus, options: SmallBert, place: Path, progress: Progress) -> None:
    with tracked(progress, "small BERT: tokens", None, "windows"):
        tokenizer = word_tokenizer(corpus, options.vocabulary)
        windows, left_out = token_windows(corpus, tokenizer, options.length)
        progress.update("small BERT: tokens", len(windows))
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=options.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=options.weight_decay)
    first, losses = _restored(place, model, optimizer)
    model.train()
    with tracked(progress, "small BERT", options.steps, "steps"):
        for step in range(first, options.steps):
            losses = [*losses, _step(model, optimizer, windows, options, step)][-_RECENT:]
            progress.update("small BERT", step + 1)
            if (step + 1) % _EVERY == 0:
                tensors = {f"model/{name}": tensor.clone() for name, tensor in model.state_dict().items()}
                tensors |= {f"optimizer/{name}": tensor for name, tensor in flatten_optimizer(optimizer).items()}
                save_checkpoint(place, Checkpoint(tensors, {"step": step + 1, "losses": losses}))
    facts = {
        "options": options.model_dump(),
        "loss": sum(losses) / len(losses),
        "loss_steps": len(losses),
        "windows": len(windows),
        "tokens_left_out": left_out,
        "unknown_share": float((windows == UNK).double().mean()),
        "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint()},
    }
    model.train(False)
    _save(model, tokenizer, options, place, facts)
    remove_checkpoint(place)


def _restored(place: Path, model: BertForMaskedLM, optimizer: torch.optim.Optimizer) -> tuple[int, list[float]]:
    """Steps done and recent losses of an interrupted training, whose state is put back; 0 and none of a new one."""
    kept = load_checkpoint(place)
    if kept is None:
        return 0, []
    parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "optimizer": {}}
    for name, tensor in kept.tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    model.load_state_dict(parts["model"])
    restore_optimizer(optimizer, parts["optimizer"])
    return int(kept.state["step"]), [float(loss) for loss in kept.state["losses"]]


def _save(model: BertForMaskedLM, tokenizer: Tokenizer, options: SmallBert, place: Path, facts: dict[str, Any]) -> None:
    """training.json comes last: where it stands, all is there."""
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as staging:
        with quiet():
            model.save_pretrained(staging)
        wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=tokenizer,
            model_max_length=options.length,
            **{f"{name.strip('[]').lower()}_token": name for name in SPECIALS},
        )
        wrapped.save_pretrained(staging)
        for path in Path(staging).iterdir():
            path.replace(place / path.name)
    write_json(place / FINISHED, facts | {"sha256": sha256_of_file(place / WEIGHTS)})
    MODEL.write_list(place)


def word_tokenizer(corpus: Corpus, size: int) -> Tokenizer:
    """An uncased tokenizer whose tokens are the corpus's `size` - 5 most frequent words and marks; others are [UNK].

    Counted rather than learnt: the trainers of `tokenizers` break ties at random, from one process to the next.
    """
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for document in corpus:
        for text in passages(document):
            counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    words = sorted(counts.keys() - set(SPECIALS), key=lambda word: (-counts[word], word))
    vocabulary = {word: i for i, word in enumerate([*SPECIALS, *words][:size])}
    # WordPiece without "##" pieces: a word is one token or unknown.
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIALS[UNK]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return tokenizer


def token_windows(corpus: Corpus, tokenizer: Tokenizer, length: int) -> tuple[Int64[torch.Tensor, "window token"], int]:
    """Windows [window, length] and the number of tokens left out: the last ones of every document.

    Raises:
        InputError: no document is as long as a window.
    """
    rows, left_out = [], 0
    for document in corpus:
        encoded = tokenizer.encode_batch(list(passages(document)), add_special_tokens=False)
        ids = [token for passage in encoded for token in passage.ids]
        starts = range(0, len(ids) - (length - 2) + 1, length - 2)
        rows += [[CLS, *ids[start : start + length - 2], SEP] for start in starts]
        left_out += len(ids) - len(starts) * (length - 2)
    if not rows:
        raise InputError("no document is as long as a window", received=f"{left_out} tokens", expected=f"{length - 2}")
    return torch.tensor(rows), left_out


def _step(
    model: BertForMaskedLM,
    optimizer: torch.optim.Optimizer,
    windows: Int64[torch.Tensor, "window token"],
    options: SmallBert,
    step: int,
) -> float:
    """One step of the optimiser; its batch and mask follow from seed and step alone. Returns the loss in nats."""
    draw = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    tokens = windows[torch.randint(len(windows), (options.batch,), generator=draw)]
    chosen = (torch.rand(tokens.shape, generator=draw) < options.mask) & (tokens >= len(SPECIALS))
    kind = torch.rand(tokens.shape, generator=draw)
    random = torch.randint(len(SPECIALS), model.config.vocab_size, tokens.shape, generator=draw)
    shown = tokens.masked_fill(chosen & (kind < 0.8), MASK)
    shown = torch.where(chosen & (kind >= 0.9), random, shown)
    warm_up = max(1, options.steps // 10)
    rate = min((step + 1) / warm_up, (options.steps - step) / max(1, options.steps - warm_up))
    for group in optimizer.param_groups:
        group["lr"] = options.learning_rate * min(rate, 1.0)
    # Only predicted positions reach the output layer: with 8,000 tokens it would cost more than all the rest.
    predictions = model.cls(model.bert(input_ids=shown).last_hidden_state[chosen])
    loss = cross_entropy(predictions, tokens[chosen])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())
