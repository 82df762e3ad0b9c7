"""The monitor of a training loop: measures on a grid of steps, within a budget, and leaves the training as it is.

What a user of the callback or the monitor chooses, read and checked before training begins.

One run that is measured: what is set up once, when the next measurement is, and where the numbers go.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.monitoring.history import (
    HISTORY_FILE,
    SCHEMA_VERSION,
    MonitorHistory,
    append_line,
    current,
    read_lines,
)
from topicscope.monitoring.measurement import (
    START_FILE,
    TopicStructureMeter,
    flat_metrics,
    is_first_process,
    preserve_state,
    save_start,
    synchronise,
    unwrap_model,
)
from topicscope.monitoring.probe_set import MonitorTopics, prepare, read_given
from topicscope.monitoring.schedule import Budget, Every, Share, grid, share_of
from topicscope.probing import Documents, Given, corpus_of
from topicscope.probing.hf import ModelView, view_model
from topicscope.records import now
from topicscope.text import Corpus

ON_ERROR = ("log", "raise")
_MOST_FAILURES = 3
_logger = logging.getLogger(__name__)
Log = Callable[[int, Mapping[str, float]], None]


@dataclass(eq=False)
class Settings:
    """See `TopicStructureMonitor`.

    Raises:
        InputError: see `read_given`, `corpus_of`, `grid` and `share_of`; an unknown `on_error`.
    """

    topics: InitVar[MonitorTopics]
    documents: InitVar[Documents]
    every: Every
    budget: InitVar[Share]
    on_error: str
    threshold: float | None
    language: str
    seed: int
    log: Log | None
    given: Given = field(init=False)
    corpus: Corpus = field(init=False)
    share: float | None = field(init=False)

    def __post_init__(self, topics: MonitorTopics, documents: Documents, budget: Share) -> None:
        if self.on_error not in ON_ERROR:
            raise InputError("unknown on_error", received=self.on_error, expected='"log" or "raise"')
        grid(self.every, None)
        self.share, self.given, self.corpus = share_of(budget), read_given(topics), corpus_of(documents)


class Session:
    """Measures the model of a run; nothing here is caught, see `TopicStructureMonitor`.

    due: the next step at which to look, or None. measured: the steps that are in the history.

    Raises:
        TopicscopeError: text, topics or model that cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        model: torch.nn.Module | ModelView,
        tokenizer: PreTrainedTokenizerBase | None,
        out: Path,
        budget: Budget,
        start_step: int,
    ) -> None:
        begun = time.perf_counter()
        self._settings, self._budget, self._start = settings, budget, out / START_FILE
        inner: Any = (
            getattr(model, "_module", getattr(model, "_model", None)) if isinstance(model, ModelView) else model
        )
        self._module = unwrap_model(inner)
        self._view = model if isinstance(model, ModelView) else view_model(self._module, tokenizer)
        out.mkdir(parents=True, exist_ok=True)
        with preserve_state(self._module):
            found = prepare(
                self._view.tokenizer,
                settings.corpus,
                settings.given,
                max_length=self._view.max_length,
                threshold=settings.threshold,
                language=settings.language,
                seed=settings.seed,
            )
            kept, spent = _earlier(out / HISTORY_FILE, start_step)
            self._meter = TopicStructureMeter(self._view, found)
            if start_step == 0:
                self._start.unlink(missing_ok=True)
                save_start(self._view, self._start)
        self.measured = set(kept)
        self._history = out / HISTORY_FILE
        self._skipped = 0
        self._grid = grid(settings.every, budget.total)
        seconds = time.perf_counter() - begun
        budget.spent += spent + seconds
        description = {
            "schema_version": SCHEMA_VERSION,
            "created": now(),
            "start_step": start_step,
            "total_steps": budget.total,
            "every": settings.every,
            "budget": budget.share,
            "setup_seconds": seconds,
            "model": {"name": self._view.name, "type": self._view.model_type, "dtype": self._view.dtype},
            "weights_at_start_known": self._start.is_file(),
            "documents": found.documents,
            "units": len(found.units),
            "words": len(self._meter.words),
            "words_without_token": self._meter.words_without_token,
            "left_out": dict(found.left_out),
            "topics": dict(found.topics),
        }
        append_line(self._history, "run", description)
        self.due: int | None = start_step

    def look(self, step: int) -> None:
        """After `step` updates: measure if the step is due and the budget affords it."""
        if self.due is None or step < self.due:
            return
        self.due = next((due for due in self._grid if due > step), None)
        if self._budget.affords(step):
            self.measure(step)
            return
        self._skipped += 1
        if self._skipped == 1:
            share = f"{self._budget.share or 0:.1%} of the run's time"
            text = f"not measured within {share}, nor further steps until it affords them; budget=None measures all"
            _logger.warning("topic structure, step %d: %s", step, text)
            append_line(self._history, "note", {"step": step, "text": text})

    def measure(self, step: int) -> None:
        """Measure and write, unless the step is in the history."""
        if step in self.measured:
            return
        synchronise(self._module)
        begun = time.perf_counter()
        with preserve_state(self._module):
            head = getattr(self._module, "get_output_embeddings", lambda: None)()
            row = self._meter.measure(self._start, None if head is None else head.weight.detach())
            append_line(self._history, "measurement", {"step": step, "seconds": time.perf_counter() - begun, **row})
            self.measured.add(step)
            if self._settings.log is not None:
                self._settings.log(step, flat_metrics(row))
        self._budget.measured(time.perf_counter() - begun)

    def finish(self, step: int, *, measure: bool) -> None:
        """No step is due any more; measure: the last one, if the budget affords it."""
        self.due = None
        if measure and self._budget.affords(step, last=True):
            self.measure(step)
        if self._skipped:
            note = {"step": step, "skipped": self._skipped, "text": "over the budget of time"}
            append_line(self._history, "note", note)
            self._skipped = 0

    def failed(self, step: int, error: Exception, *, give_up: bool) -> None:
        """Keep that `step` was not measured, and why; go on with the next step of the grid, or not at all."""
        if give_up:
            self.due = None
        with suppress(OSError):  # a full disk may be why
            append_line(self._history, "note", {"step": step, "failure": f"{type(error).__name__}: {error}"})


def _earlier(path: Path, start_step: int) -> tuple[dict[int, dict[str, Any]], float]:
    """Measurements up to `start_step` of the run that is continued, and the seconds it used."""
    if start_step == 0 or not path.is_file():
        return {}, 0.0
    lines, _ = read_lines(path)
    kept, _ = current([*lines, {"kind": "run", "start_step": start_step}])
    return kept, sum(float(line.get("seconds") or line.get("setup_seconds") or 0.0) for line in lines)


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
    budget: the most of the run's time that measurements, the set-up included, may take; None: no bound. Steps that it
        does not afford are skipped; this is logged, and the history has their number. The start is always measured.
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
        settings = Settings(topics, documents, every, budget, on_error, threshold, language, seed, log)
        self._on_error, self._failures = settings.on_error, 0
        self._path, self._done = Path(out) / HISTORY_FILE, start_step
        self._budget = Budget(settings.share, total_steps, every)
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
        measure = measure and self._failures < _MOST_FAILURES
        self._guarded(lambda: session.finish(self._done, measure=measure))
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
