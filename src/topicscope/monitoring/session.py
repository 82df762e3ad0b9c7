"""One run that is measured: what is set up once, when the next measurement is, and where the numbers go."""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from topicscope.monitoring.history import HISTORY_FILE, SCHEMA_VERSION, HistoryWriter, current, read_lines
from topicscope.monitoring.isolation import synchronise, untouched, unwrapped
from topicscope.monitoring.measurement import Meter, flat_metrics
from topicscope.monitoring.probe_set import ProbeSet, prepare
from topicscope.monitoring.schedule import Budget, Plan, grid
from topicscope.monitoring.settings import Settings
from topicscope.monitoring.weights import START_FILE, save_start
from topicscope.probing.hf import ModelView, view_model
from topicscope.records import now

_logger = logging.getLogger(__name__)


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
        self._module = unwrapped(inner)
        self._view = model if isinstance(model, ModelView) else view_model(self._module, tokenizer)
        out.mkdir(parents=True, exist_ok=True)
        with untouched(self._module):
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
            # A resumed run goes on with as many documents as it had come down to.
            documents = min([found.documents, *(int(row["documents"]) for row in kept.values())])
            self._meter = Meter(self._view, found, documents=documents)
            if start_step == 0:
                self._start.unlink(missing_ok=True)
                save_start(self._view, self._start)
        self.measured = set(kept)
        self._writer = HistoryWriter(out / HISTORY_FILE)
        self._said = ("", documents)
        seconds = time.perf_counter() - begun
        budget.spent += spent + seconds
        self._writer.write("run", self._description(found, start_step, seconds))
        self.due: int | None = start_step

    def look(self, step: int) -> None:
        """After `step` updates: measure if the step is due and the budget affords it."""
        if self.due is None or step < self.due:
            return
        begun = time.perf_counter()
        plan = self._budget.plan(step, self._remaining(step), self._meter.documents)
        self._say(plan, step)
        if plan.documents < self._meter.documents and plan.steps:
            self._meter.take(plan.documents)
        later = [s for s in plan.steps if s > step]
        self.due = later[0] if later else next(self._grid_after(step), None)
        self._budget.spent += time.perf_counter() - begun
        if plan.steps[:1] == (step,):
            self.measure(step)

    def measure(self, step: int) -> None:
        """Measure and write, unless the step is in the history."""
        if step in self.measured:
            return
        synchronise(self._module)
        begun = time.perf_counter()
        with untouched(self._module):
            head = getattr(self._module, "get_output_embeddings", lambda: None)()
            row = self._meter.measure(self._start, None if head is None else head.weight.detach())
            self._writer.write("measurement", {"step": step, "seconds": time.perf_counter() - begun, **row})
            self.measured.add(step)
            if self._settings.log is not None:
                self._settings.log(step, flat_metrics(row))
        self._budget.measured(self._meter.documents, time.perf_counter() - begun)

    def affords_one_more(self, step: int) -> bool:
        """Whether a measurement is within the budget."""
        return self._budget.cost(self._meter.documents) <= self._budget.left(step)

    def failed(self, step: int, error: Exception, *, give_up: bool) -> None:
        """Keep that `step` was not measured, and why; go on with the next step of the grid, or not at all."""
        self.due = None if give_up else next(self._grid_after(step), None)
        with suppress(OSError):  # a full disk may be why
            self._writer.write("note", {"step": step, "failure": f"{type(error).__name__}: {error}"})

    def _grid_after(self, step: int) -> Iterator[int]:
        return (s for s in grid(self._settings.every, self._budget.total) if s > step)

    def _remaining(self, step: int) -> Iterator[int]:
        return chain([step], self._grid_after(step))

    def _say(self, plan: Plan, step: int) -> None:
        """Log and keep what the budget takes away, when it begins to and whenever it takes documents or all."""
        said = ("" if not plan.left_out else "some" if plan.steps else "all", plan.documents)
        if not plan.left_out or said == self._said:
            return
        self._said = said
        text = f"within {self._budget.share or 0:.1%} of the planned run's time there is no room for {plan.left_out}"
        _logger.warning("topic structure, step %d: %s", step, text)
        self._writer.write("note", {"step": step, "thinned": plan.left_out, "text": text})

    def _description(self, found: ProbeSet, start_step: int, seconds: float) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "created": now(),
            "start_step": start_step,
            "total_steps": self._budget.total,
            "every": self._settings.every,
            "budget": self._budget.share,
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


def _earlier(path: Path, start_step: int) -> tuple[dict[int, dict[str, Any]], float]:
    """Measurements up to `start_step` of the run that is continued, and the seconds it used."""
    if start_step == 0 or not path.is_file():
        return {}, 0.0
    lines, _ = read_lines(path)
    kept, _ = current([*lines, {"kind": "run", "start_step": start_step}])
    return kept, sum(float(line.get("seconds") or line.get("setup_seconds") or 0.0) for line in lines)
