"""Golden monitoring: a monitor of eight steps in a plain loop, and a series of three checkpoints."""

from pathlib import Path
from typing import Any

import torch
import transformers

import topicscope
from golden import adapter
from golden.material import CORPUS, THEMES, TOPICS, save_model, texts
from golden.recording import Recorder, succeed

STEPS = 8


def record_monitor(recorder: Recorder) -> None:
    """The history of a small masked BERT, and its losses."""
    recorder.put("monitor/losses", monitored(Path("monitor")))
    recorder.put_folder("monitor/folder", Path("monitor"))


def monitored(out: Path, steps: int = STEPS) -> list[float]:
    """A watched training and its losses; without a budget, which would depend on the clock."""
    model, tokenizer = _masked_bert()
    batches = _batches(tokenizer)[:steps]
    documents = [(f"doc{i}", text) for i, text in enumerate(texts(24))]
    monitor = topicscope.TopicStructureMonitor(
        model, tokenizer, topics=THEMES, documents=documents, out=out, total_steps=steps, budget=None,
        on_error="raise",
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        monitor.step()
    assert monitor.finish() is not None
    return losses


def record_series(recorder: Recorder) -> None:
    """Three checkpoints of random weights, as a Trainer's folder holds them."""
    for step in (5, 40, 300):
        save_model(Path("checkpoints") / f"checkpoint-{step}", seed=step)
    with adapter.undrawn():
        succeed(
            "probe", "--checkpoints", "checkpoints", "--corpus", CORPUS, "--topics", TOPICS, "--threshold", 0.35,
            "--controls", 0, "--permutations", 40, "--profile", 0, "--progress", "none", "--out", "series",
        )  # fmt: skip
    recorder.put_folder("series", Path("series"))


def record_watching(recorder: Recorder) -> None:
    """Both."""
    record_monitor(recorder)
    record_series(recorder)


def _masked_bert() -> tuple[Any, Any]:
    tokenizer = adapter.find("tiny tokenizer")("bert")
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(config).train(), tokenizer


def _batches(tokenizer: Any) -> list[dict[str, torch.Tensor]]:
    lines = [line for text in texts(16, seed=1) for line in text.split("\n\n")]
    found = []
    for step in range(STEPS):
        batch = dict(tokenizer(lines[4 * step : 4 * step + 4], return_tensors="pt", padding=True, truncation=True))
        found.append(batch | {"labels": batch["input_ids"].clone()})
    return found
