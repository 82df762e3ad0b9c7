"""Train a small BERT from nothing on Wikipedia, and watch topic structure appear in it.

    python examples/emergence.py --out emergence                    1,850 steps, 10 to 15 minutes of one core
    python examples/emergence.py --out emergence --longer           the same run, on to 18,500 steps
    python examples/emergence.py --out quick --steps 128            a first look
    python examples/emergence.py --out both --summaries summaries.jsonl    more text, see summaries_corpus.py

Four layers 128 wide with four heads, a WordPiece vocabulary of 8,000 made from the text, 16 windows of 128 tokens a
step, masked language modelling (15 % of the tokens), AdamW at a rate of 0.001 that stays as it is after 20 steps, so
that a short run is the beginning of a longer one. A run that was stopped goes on from its last checkpoint when it is
started again.

Beside it, one layer of the paper's kind is trained on documents of the topic model, where the theory is exact.

In --out: topic_structure.jsonl, emergence.png, emergence.json (the numbers), topics.npz, models/checkpoint-N (for
`topicscope probe --checkpoints`), laboratory/ (a run record) and laboratory.png.
"""

import argparse
import contextlib
import hashlib
import itertools
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

import topicscope
from topicscope.experiments import CLS, MASK, PAD, SEP, SPECIALS, token_windows
from topicscope.lab import (
    Checkpoint,
    flatten_optimizer,
    load_checkpoint,
    load_recipe,
    restore_optimizer,
    save_checkpoint,
)
from topicscope.monitoring import MonitorHistory, find_stages
from topicscope.probing.hf import quiet
from topicscope.records import write_json
from topicscope.text import Corpus, corpus_from, open_corpus, passages
from topicscope.theory import growth_rates, stage_one
from topicscope.topics import CorpusPassages, fit, save_topics

STEPS, LONGER = 1850, 18_500
LENGTH, BATCH, MASKED, RATE, WARM_UP = 128, 16, 0.15, 1e-3, 20
EVERY = 50  # steps between checkpoints
KEPT = 64  # models are kept at this step, twice, four times, … as far
TOPICS, MIN_COUNT = 20, 30  # a short training teaches frequent words only
RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "two-stages-population.toml"
GROWN = 3.0


@dataclass(frozen=True)
class Text:
    """What is trained on: windows [window, token], their tokenizer, and where the topics of the words lie."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerFast
    windows: torch.Tensor
    topics: Path


def corpus(summaries: Path | None) -> Corpus:
    """The sample of Wikipedia, and summaries of other articles if there are any."""
    sample = open_corpus("wikipedia-sample")
    if summaries is None:
        return sample
    more = open_corpus(summaries)
    documents = [(document.id, document.text) for document in itertools.chain(sample, more)]
    return corpus_from(documents, name=f"{sample.name} and {more.name}")


def wordpiece(documents: Corpus, size: int = 8000) -> Tokenizer:
    """An uncased WordPiece vocabulary of the text (its trainer breaks ties at random, so it is kept with a run)."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIALS), show_progress=False)
    tokenizer.train_from_iterator((p for document in documents for p in passages(document)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return tokenizer


def prepared(out: Path, documents: Corpus) -> Text:
    """Vocabulary and topics, made once and kept in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    words, topics = out / "tokenizer.json", out / "topics.npz"
    if not words.is_file():
        wordpiece(documents).save(str(words))
    if not topics.is_file():
        save_topics(topics, fit(CorpusPassages(documents), TOPICS, min_count=MIN_COUNT))
    tokenizer = Tokenizer.from_file(str(words))
    windows, _ = token_windows(documents, tokenizer, LENGTH)
    names: dict[str, Any] = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LENGTH, **names)
    return Text(documents, fast, windows, topics)


def new_model(num_tokens: int, seed: int) -> BertForMaskedLM:
    """Random weights; no dropout, so that a step depends on the seed and its number alone."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=num_tokens,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
    )
    return BertForMaskedLM(config)


def batch(windows: torch.Tensor, num_tokens: int, seed: int, step: int) -> tuple[torch.Tensor, ...]:
    """Tokens as shown [window, token], which of them are predicted, and what these are."""
    draw = torch.Generator().manual_seed(seed * 1_000_003 + step)
    tokens = windows[torch.randint(len(windows), (BATCH,), generator=draw)]
    chosen = (torch.rand(tokens.shape, generator=draw) < MASKED) & (tokens >= len(SPECIALS))
    kind = torch.rand(tokens.shape, generator=draw)
    random = torch.randint(len(SPECIALS), num_tokens, tokens.shape, generator=draw)
    shown = tokens.masked_fill(chosen & (kind < 0.8), MASK)
    return torch.where(chosen & (kind >= 0.9), random, shown), chosen, tokens[chosen]


def train(out: Path, text: Text, *, steps: int, seed: int) -> tuple[MonitorHistory, list[float]]:
    """From the last checkpoint, or from nothing, to `steps`; the history, and the loss (nats) of every step."""
    model = new_model(len(text.tokenizer), seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    done, losses = restore(out, model, optimizer)
    monitor = topicscope.TopicStructureMonitor(
        model,
        text.tokenizer,
        topics=text.topics,
        documents=text.corpus,
        out=out,
        total_steps=max(steps, done),
        start_step=done,
        budget=None,  # a record wants every point of the grid; what they took is said at the end
        on_error="raise",
    )
    for step in range(done, steps):
        shown, chosen, targets = batch(text.windows, model.config.vocab_size, seed, step)
        # Only what is predicted reaches the output layer, which would cost more than all the rest.
        loss = cross_entropy(model.cls(model.bert(input_ids=shown).last_hidden_state[chosen]), targets)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        monitor.step(step + 1)
        if (step + 1) % EVERY == 0 or step + 1 == steps:
            save_checkpoint(out, snapshot(model, optimizer, losses, seed))
        if is_kept(step + 1) or step + 1 == steps:
            keep(model, text.tokenizer, out / "models" / f"checkpoint-{step + 1}")
    history = monitor.finish()
    assert history is not None
    return history, losses


def is_kept(step: int) -> bool:
    """Whether the model is kept: after 64, 128, 256, … steps."""
    return step % KEPT == 0 and (step // KEPT).bit_count() == 1


def snapshot(
    model: BertForMaskedLM, optimizer: torch.optim.Optimizer, losses: Sequence[float], seed: int
) -> Checkpoint:
    """Everything that decides the rest of a run."""
    tensors = {f"model/{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    tensors |= {f"optimizer/{name}": tensor for name, tensor in flatten_optimizer(optimizer).items()}
    return Checkpoint(tensors, {"step": len(losses), "losses": list(losses), "seed": seed})


def restore(out: Path, model: BertForMaskedLM, optimizer: torch.optim.Optimizer) -> tuple[int, list[float]]:
    """Steps done and their losses; model and optimiser are put back."""
    kept = load_checkpoint(out)
    if kept is None:
        return 0, []
    model.load_state_dict({n.removeprefix("model/"): t for n, t in kept.tensors.items() if n.startswith("model/")})
    memory = {n.removeprefix("optimizer/"): t for n, t in kept.tensors.items() if n.startswith("optimizer/")}
    restore_optimizer(optimizer, memory)
    return int(kept.state["step"]), [float(loss) for loss in kept.state["losses"]]


def keep(model: BertForMaskedLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """As transformers saves a model."""
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def numbers(history: MonitorHistory, losses: Sequence[float], text: Text, seed: int) -> dict[str, Any]:
    """What came out, beside the history: what was trained on what, and when structure appeared."""
    stages = find_stages(history)
    return {
        "seed": seed,
        "steps": len(losses),
        "loss_first": losses[0],
        "loss_last": sum(losses[-50:]) / len(losses[-50:]),
        "corpus": text.corpus.name,
        "windows": len(text.windows),
        "tokenizer": hashlib.sha256(text.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16],
        "onsets": [onset.as_dict() for onset in stages.onsets],
        "verdict": stages.verdict,
    }


def laboratory(out: Path) -> None:
    """One layer of the paper's kind, everything near zero at first: values, then attention, and what theory says."""
    recipe = load_recipe(RECIPE)
    record = topicscope.train(recipe, out=out / "laboratory", resume=(out / "laboratory").exists())
    setting, history = recipe.setting(), record.history[record.history["step"] > 0]
    assert setting is not None
    step, time = history["step"], recipe.training.learning_rate * history["step"]
    values = stage_one(setting, time.to_numpy())
    figure = Figure(figsize=(6.75, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(step, history["W_V_same"] - history["W_V_different"], "o", ms=3, color="#0072B2", label="trained")
    left.plot(step, values.same - values.different, "-", lw=1, color="#D55E00", label="theory, exact")
    left.set_title("values: $W_V$, same topic - different topic")
    norms = history["W_K_norm"] / float(record.history["W_K_norm"].iloc[0])
    rate = growth_rates(setting, record.weights["W_K"].shape[1]).attention
    begin = norms[norms >= GROWN].index[0]  # from here on growth is exponential, until it is no longer small
    grows = history.loc[begin:][norms.loc[begin:] <= norms.max()]
    theory = GROWN * np.exp(rate * (time.loc[grows.index] - time[begin]))
    right.plot(step, norms, "o", ms=3, color="#0072B2", label="trained")
    right.plot(step.loc[grows.index][theory <= norms.max()], theory[theory <= norms.max()], "-", lw=1, color="#D55E00")
    right.set_yscale("log")
    right.set_title("attention: $‖W_K‖$, times its start")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    left.legend()
    figure.savefig(out / "laboratory.png", dpi=160)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Says how long something took, in seconds of the processor."""
    begun = clock.process_time()
    yield
    print(f"{what}: {clock.process_time() - begun:.0f} CPU seconds", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, draw."""
    parser = argparse.ArgumentParser(description="Watch topic structure appear in a small BERT.")
    parser.add_argument("--out", type=Path, default=Path("emergence"), help="folder of the run")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--longer", action="store_true", help=f"go on to {LONGER:,} steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--summaries", type=Path, help="more text: JSON Lines of examples/summaries_corpus.py")
    parser.add_argument("--no-laboratory", action="store_true")
    options = parser.parse_args(arguments)
    with timed("vocabulary and topics"):
        text = prepared(options.out, corpus(options.summaries))
    with timed("training, measurements included"):
        steps = LONGER if options.longer else options.steps
        history, losses = train(options.out, text, steps=steps, seed=options.seed)
    found = numbers(history, losses, text, options.seed)
    write_json(options.out / "emergence.json", found)
    history.plot("emergence")[1].savefig(options.out / "emergence.png", dpi=160)
    print(found["verdict"])
    if not options.no_laboratory:
        with timed("laboratory"):
            laboratory(options.out)


if __name__ == "__main__":
    main()
