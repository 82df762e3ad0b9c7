"""Watch topic structure in PyTorch Lightning: call the monitor from a hook.

Needs `lightning`, which topicscope itself does not.

trainer = lightning.Trainer(max_steps=1000, callbacks=[topic_structure(tokenizer, "words.csv", "texts.jsonl", "run")])
trainer.fit(module)  # module.model is the Hugging Face model
"""

from typing import Any

from topicscope import TopicStructureMonitor


class TopicStructureHooks:
    """The hooks; `topic_structure` makes a Lightning callback of them."""

    def __init__(self, tokenizer: Any, topics: Any, documents: Any, out: str) -> None:
        self._tokenizer, self._options = tokenizer, {"topics": topics, "documents": documents, "out": out}
        self.monitor: TopicStructureMonitor | None = None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        total = trainer.max_steps if trainer.max_steps > 0 else None
        self.monitor = TopicStructureMonitor(
            module.model,
            self._tokenizer,
            total_steps=total,
            start_step=trainer.global_step,
            log=lambda step, numbers: trainer.logger and trainer.logger.log_metrics(numbers, step),
            **self._options,
        )

    def on_train_batch_end(self, trainer: Any, module: Any, *batch: Any) -> None:
        # Lightning counts updates; with accumulated gradients most batches make none.
        assert self.monitor is not None
        self.monitor.step(trainer.global_step)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        assert self.monitor is not None
        self.monitor.finish()


def topic_structure(tokenizer: Any, topics: Any, documents: Any, out: str) -> Any:
    """A Lightning callback."""
    import lightning

    class TopicStructure(TopicStructureHooks, lightning.Callback):
        pass

    return TopicStructure(tokenizer, topics, documents, out)
