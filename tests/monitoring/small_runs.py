"""Small trainings to be watched: a two-layer BERT or GPT-2 on documents of three themes, the same every time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import DataCollatorForLanguageModeling, PreTrainedModel, PreTrainedTokenizerFast, Trainer

import tiny
from topicscope import TopicStructureCallback

THEMES = {
    "water": ["river", "bridge", "sea", "ship", "sails", "ice", "snow", "fish"],
    "war": ["king", "queen", "castle", "war", "army", "battle", "sword", "city"],
    "art": ["music", "song", "piano", "violin", "concert", "theatre", "actor", "film"],
}
STEPS = 12


def documents(number: int = 24, seed: int = 0) -> list[tuple[str, str]]:
    """Documents of two themes each, a sentence a line."""
    rng = np.random.default_rng(seed)
    found = []
    for d in range(number):
        pool = [word for theme in rng.choice(list(THEMES), 2, replace=False) for word in THEMES[theme]]
        lines = [" ".join(rng.choice(pool, rng.integers(6, 14))) + "." for _ in range(4)]
        found.append((f"doc{d}", "\n".join(lines)))
    return found


def masked_bert(dropout: float = 0.1) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """A BERT with its head for masked words, and dropout, which needs random numbers."""
    tokenizer = tiny.tokenizer_for("bert")
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=tiny.MAX_LENGTH,
        hidden_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.BertForMaskedLM(config), tokenizer


def batches(tokenizer: PreTrainedTokenizerFast, steps: int, size: int = 8) -> list[dict[str, torch.Tensor]]:
    """Fixed batches of token ids and labels for a causal or a masked head."""
    lines = [line for _, text in documents(40, seed=1) for line in text.split("\n")]
    found = []
    for step in range(steps):
        chosen = [lines[(step * size + i) % len(lines)] for i in range(size)]
        batch = dict(tokenizer(chosen, return_tensors="pt", padding=True))
        found.append(batch | {"labels": batch["input_ids"].clone()})
    return found


def loop(
    model: torch.nn.Module,
    steps: list[dict[str, torch.Tensor]],
    after: Callable[[], None] = lambda: None,
    *,
    autocast: bool = False,
    accumulate: int = 1,
) -> list[float]:
    """A plain loop with dropout and shuffled masks; returns the losses. `after` is called after each update."""
    torch.manual_seed(5)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for number, batch in enumerate(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            kept = torch.rand(batch["labels"].shape) < 0.5
            loss = model(**batch | {"labels": batch["labels"].masked_fill(kept, -100)}).loss
        loss.backward()
        losses.append(loss.item())
        if (number + 1) % accumulate == 0:
            optimiser.step()
            optimiser.zero_grad()
            after()
    return losses


def trained(folder: Path, callbacks: list[Any], *, resume: bool = False, **options: Any) -> Trainer:
    """A Trainer's run of `STEPS` steps."""
    transformers.set_seed(0)
    model, tokenizer = masked_bert()
    lines = [line for _, text in documents(40, seed=1) for line in text.split("\n")]
    rows = [{"input_ids": tokenizer(line)["input_ids"]} for line in lines]
    chosen: dict[str, Any] = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    trainer = Trainer(
        model,
        transformers.TrainingArguments(output_dir=str(folder), **chosen | options),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer),
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    for callback in callbacks:
        if isinstance(callback, TopicStructureCallback):
            callback.trainer = trainer
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """To the last bit."""
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
