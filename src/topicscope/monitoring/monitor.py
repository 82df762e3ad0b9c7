"""The monitor of a training loop: measures on a grid of steps, within a budget, and leaves the training as it is."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch
from transformers import PreTrainedTokenizerBase

from topicscope.monitoring.history import HISTORY_FILE, MonitorHistory
from topicscope.monitoring.isolation import is_first_process
from topicscope.monitoring.probe_set import MonitorTopics
from topicscope.monitoring.schedule import Budget, Every, Share
from topicscope.monitoring.session import Session
from topicscope.monitoring.settings import Log, Settings
from topicscope.probing import Documents
from topicscope.probing.hf import ModelView

_logger = logging.getLogger(__name__)
_MOST_FAILURES = 3


class TopicStructureMonitor:
    """Topic structure of a model while a plain PyTorch loop trains it.

        monitor = TopicStructureMonitor(model, tokenizer, topics=…, documents=…, out="runs/1", total_steps=1000)
        for batch in batches:
            …
            optimizer.step()
            monitor.step()
        history = monitor.finish()

    model: a Hugging Face model (also inside DistributedDataParallel or torch.compile), or a `live_view` of any other.
    topics: topics, a topics file or word list, {label: words}, or a number of topics to fit on the documents.
    documents: 30-40 are enough; of more than `MAX_UNITS` passages a seeded sample is read.
    out: folder of topic_structure.jsonl and of the weights at the start. What is there is continued.
    total_steps: planned updates. None: the run so far stands for the planned run, so that a measurement waits until
        the budget affords it.
    every: "log", a grid of √2-fold steps, or every so many. The start is always measured, and so is the last step.
    budget: the most of the run's time that measurements, the set-up included, may take; None: no bound. What is thinned
        is logged and stands in the history. The measurement at the start is always made, and counts.
    on_error: "log": a failure is logged once and training goes on; "raise": it is raised.
    start_step: updates that were made before (training resumed from a checkpoint). What was measured later is left.
    threshold: ambiguity threshold, see `probe`; None: 0.001, or what makes 20 words a topic in a small vocabulary.
    log: called with the step and named numbers after each measurement, e.g. to write them to TensorBoard.

    Each measurement is made in evaluation mode, without gradients and autocast, in the model's precision, and leaves
    modes, random states, attention kernel and configuration as they were. In distributed training only rank 0 measures.

    Raises:
        InputError: topics, documents or options that cannot be used. What else fails is left to `on_error`.
    """

    def __init__(
        self,
        model: torch.nn.Module | ModelView,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        topics: MonitorTopics,
        documents: Documents,
        out: str | Path,
        total_steps: int | None = None,
        every: Every = "log",
        budget: Share = "2%",
        on_error: str = "log",
        start_step: int = 0,
        threshold: float | None = None,
        language: str = "en",
        seed: int = 0,
        log: Log | None = None,
    ) -> None:
        settings = Settings.checked(
            topics,
            documents,
            every=every,
            budget=budget,
            on_error=on_error,
            threshold=threshold,
            language=language,
            seed=seed,
            log=log,
        )
        self._on_error, self._failures = settings.on_error, 0
        self._path, self._done = Path(out) / HISTORY_FILE, start_step
        self._budget = Budget(settings.share, total_steps)
        self._session: Session | None = None

        def set_up() -> None:
            self._session = Session(settings, model, tokenizer, Path(out), self._budget, start_step)

        if is_first_process():
            self._guarded(set_up)
            self._look()
        self._clock = time.perf_counter()

    def step(self, step: int | None = None) -> None:
        """To be called after each update; step: how many were made, one more than before unless it is given."""
        begun = time.perf_counter()
        done = self._done + 1 if step is None else step
        if done <= self._done:  # a batch of accumulated gradients, say
            return
        self._budget.step_took((begun - self._clock) / (done - self._done))
        self._done = done
        self._look()
        self._clock = time.perf_counter()  # what was measured here is no time of the training

    def finish(self, *, measure: bool = True) -> MonitorHistory | None:
        """Measure the last step, if that was not done and the budget affords it, and read the history.

        None in processes that do not measure, and where nothing could be written.
        """
        session = self._session
        if session is None:
            return None
        if measure and self._failures < _MOST_FAILURES and session.affords_one_more(self._done):
            self._guarded(lambda: session.measure(self._done))
        session.due = None
        return self.history

    def __enter__(self) -> "TopicStructureMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(measure=error is None)

    @property
    def history(self) -> MonitorHistory:
        """What was measured so far.

        Raises:
            InputError: nothing was written, as in processes that do not measure.
        """
        return MonitorHistory.load(self._path)

    @property
    def share(self) -> float:
        """Seconds that were used, set-up included, over those of the planned run; NaN before the first step."""
        return self._budget.spent / (self._budget.step_seconds * (self._budget.total or max(self._done, 1)))

    def _look(self) -> None:
        session = self._session
        if session is not None:
            self._guarded(lambda: session.look(self._done))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run it; a failure is raised or, the first time, logged. After a few failures nothing more is tried."""
        begun = time.perf_counter()
        try:
            action()
        except Exception as error:
            if self._on_error == "raise":
                raise
            self._failures += 1
            if self._failures == 1:
                where = f"topic structure was not measured at step {self._done}, training goes on: {error}"
                _logger.warning(where, exc_info=True)
            self._budget.spent += time.perf_counter() - begun
            if self._session is not None:
                self._session.failed(self._done, error, give_up=self._failures >= _MOST_FAILURES)
