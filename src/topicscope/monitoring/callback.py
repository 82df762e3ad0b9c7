"""The monitor as a callback of the Hugging Face Trainer."""

import copy
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformers import (
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from topicscope.errors import InputError
from topicscope.monitoring.history import MonitorHistory
from topicscope.monitoring.monitor import Log, Settings, TopicStructureMonitor
from topicscope.monitoring.probe_set import MonitorTopics
from topicscope.monitoring.schedule import Every, Share
from topicscope.probing import Documents

_INTEGRATIONS: Any = tuple(INTEGRATION_TO_CALLBACK.values())
_logger = logging.getLogger(__name__)


class TopicStructureCallback(TrainerCallback):
    """Logs the topic structure of a model while a `Trainer` trains it.

        trainer.add_callback(TopicStructureCallback(topics="words.csv", documents="texts.jsonl", trainer=trainer))

    Numbers go to topic_structure.jsonl in `out`, the Trainer's output folder unless given, and to what the Trainer
    reports to (TensorBoard, MLflow, …) under names such as topics/layer_03/attention_ratio.
    trainer: the Trainer whose integrations get the numbers; it may be set later, as `callback.trainer`. tokenizer: the
    Trainer's processing_class unless given. The planned steps are the Trainer's, and a run that resumes from a
    checkpoint continues its history. Everything else as in `TopicStructureMonitor`.

    Raises:
        InputError: topics, documents or options that cannot be used.
    """

    def __init__(
        self,
        topics: MonitorTopics,
        documents: Documents,
        *,
        trainer: Trainer | None = None,
        every: Every = "log",
        budget: Share = "2%",
        on_error: str = "log",
        out: str | Path | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        threshold: float | None = None,
        language: str = "en",
        seed: int = 0,
        log: Log | None = None,
    ) -> None:
        found = Settings(topics, documents, every, budget, on_error, threshold, language, seed, log)
        self._options: dict[str, Any] = {"topics": found.given, "documents": found.corpus, "every": every}
        self._options |= {"budget": budget, "on_error": on_error}
        self._options |= {"threshold": threshold, "language": language, "seed": seed}
        self._user_log = log
        self.trainer = trainer
        self._out, self._tokenizer = out, tokenizer
        self.monitor: TopicStructureMonitor | None = None

    @property
    def history(self) -> MonitorHistory:
        """What was measured so far.

        Raises:
            InputError: training has not begun, or this process does not measure.
        """
        if self.monitor is None:
            raise InputError("nothing was measured yet", expected="trainer.train() first, in the first process")
        return self.monitor.history

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Prepare documents and topics, and measure the start."""
        if not state.is_world_process_zero:
            return
        if self.trainer is None and args.report_to:
            _logger.warning(
                "topic structure goes to a file, not to %s: give TopicStructureCallback(…, trainer=trainer), or set "
                "callback.trainer before trainer.train()",
                ", ".join(args.report_to),
            )
        processor = kwargs.get("processing_class")
        tokenizer = self._tokenizer or getattr(processor, "tokenizer", processor)
        model: Any = kwargs.get("model")
        self.monitor = TopicStructureMonitor(
            model,
            tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None,
            **self._options,
            out=str(args.output_dir) if self._out is None else self._out,
            total_steps=state.max_steps,
            start_step=state.global_step,
            log=partial(self._log, args, state, control, model),
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure if the step is due."""
        if self.monitor is not None:
            self.monitor.step(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the history; the model may by now be another one, the best of all."""
        if self.monitor is not None:
            self.monitor.finish(measure=False)

    def _log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any,
        step: int,
        metrics: Mapping[str, float],
    ) -> None:
        """Hand numbers to the integrations alone: Trainer.log would reset what is due, and fill progress bars."""
        callbacks = [] if self.trainer is None else self.trainer.callback_handler.callbacks
        for reporter in callbacks:
            if isinstance(reporter, _INTEGRATIONS):
                reporter.on_log(args, state, copy.copy(control), logs=dict(metrics), model=model)
        if self._user_log is not None:
            self._user_log(step, metrics)
