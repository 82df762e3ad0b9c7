"""The hooks of the example, called as Lightning calls them; Lightning itself is not needed."""

from pathlib import Path
from types import SimpleNamespace

from monitoring.small_runs import THEMES, batches, documents, masked_bert
from scripts import load_script

ROOT = Path(__file__).resolve().parents[2]


def test_the_hooks_of_the_example_measure_updates(tmp_path):
    example = load_script("examples/lightning_hook.py")
    model, tokenizer = masked_bert()
    logged = []
    logger = SimpleNamespace(log_metrics=lambda numbers, step: logged.append((step, len(numbers))))
    trainer, module = SimpleNamespace(max_steps=6, global_step=0, logger=logger), SimpleNamespace(model=model)
    hooks = example.TopicStructureHooks(tokenizer, THEMES, documents(), str(tmp_path))
    hooks._options["budget"] = None
    hooks.on_train_start(trainer, module)
    for number, batch in enumerate(batches(tokenizer, 12)):
        model(**batch)
        trainer.global_step = (number + 1) // 2  # two batches an update
        hooks.on_train_batch_end(trainer, module, None, batch, number)
    hooks.on_train_end(trainer, module)
    assert [step for step, _ in logged] == [0, 1, 2, 3, 4, 6]
    assert min(count for _, count in logged) > 20
