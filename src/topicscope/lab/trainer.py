"""`train`: a recipe in, a record out. Seeds are trained together, in this process.

What is minimised is the data loss of Knowl 6 (the models compute it) plus a true L2 term. Read `train` first, then
`Run`: what the state of a run is, the loop, averaging and ridge, its checkpoints and its record.

Checkpoints survive SIGKILL. One is a safetensors file, and a JSON file that names it once it is whole. The JSON is
written last and atomically, so it always points at a complete pair; the older pair is removed afterwards.
"""

import hashlib
import math
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load, save
from torch import Tensor

from topicscope.errors import InputError, RunError
from topicscope.lab.data import held_out, inputs_of, streams_of, topic_model_of
from topicscope.lab.engine import (
    Engine,
    ReducedEngine,
    TokenEngine,
    by_name,
    check_device,
    check_engine,
    clip_gradients,
    learning_rate,
    make_optimizer,
    set_weights,
    spans_of,
    weights_of,
)
from topicscope.lab.history import Meter, Snapshots, find_stages, measured_steps
from topicscope.lab.recipe import Recipe
from topicscope.lab.transformer import start, why_not_reduced
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import (
    RECIPE,
    RUN,
    SCHEMA_VERSION,
    SUMMARY,
    Manifest,
    RunRecord,
    describe_environment,
    growing_run,
    now,
    output_path,
    read_json,
    require_same,
    write_bytes,
    write_json,
)
from topicscope.topics import TopicModel

Arrays = Mapping[str, np.ndarray]
POINTER = "checkpoint.json"
_CHECKPOINT_VERSION = 1


def train(
    recipe: Recipe,
    *,
    seeds: int = 1,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    topic_model: TopicModel | None = None,
    arrays: Arrays | None = None,
    references: Arrays | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> RunRecord:
    """Minimise E (1/|M|) Σ_{j∈M} ℓ(X̂_j, X_j) + Σ_W λ_W ‖W‖²_F (Knowl 6) for several seeds at once.

    recipe: see `topicscope.lab.load_recipe`. seeds: number of runs; run s starts and draws from seed + s.
    out: folder for the record and for checkpoints; nothing is written without one. resume: continue there, to the
        same numbers as an unbroken run on the same machine; a finished run is read instead.
    topic_model: topics of one's own, any phi and alpha, instead of those of the recipe's [data].
    arrays: start or frozen values by parameter name, such as a W_V from `topicscope.theory`; W_V is [out, in].
    references: matrices whose distance is followed in the history, by parameter name.

    Raises:
        InputError: parts of the recipe exclude each other, an array or a file is missing, or the folder holds something
            else: another recipe, other seeds, a run with other topics or another saved set.
        RunError: the loss is no longer finite; names the step and the last good checkpoint.
    """
    target = None if out is None else output_path(out)
    if seeds < 1:
        raise InputError("impossible number of seeds", received=seeds, expected="at least 1")
    inputs = inputs_of(recipe, topic_model)
    given = {"arrays": arrays or {}, "references": references or {}}
    for what, wanted in (("arrays", recipe.arrays), ("references", recipe.references)):
        for name in [name for name in wanted if name not in given[what]]:
            raise InputError(
                f"the recipe wants {name} from a closed form ({wanted[name]}), which training cannot compute itself",
                expected=f"{what}={{'{name}': array}}",
                advice="use topicscope.theory, or `topicscope train`, which resolves it",
            )
    if target is None and resume:
        raise InputError("resume needs a folder", expected="out")
    folder, shown = None, progress or SilentProgress()
    with ExitStack() as stack:
        if target is not None:
            read = [recipe.path(name) for name in (recipe.data.phi, recipe.data.file) if name is not None]
            growing = growing_run(target, RUN, resume=resume, overwrite=overwrite, inputs=read)
            under_way = stack.enter_context(growing)
            folder = under_way.folder
            finished = finished_run(recipe, seeds, inputs, folder) if resume else None
            if finished is not None:
                return replace(finished, folder=target)
        numbers = [recipe.training.seed + s for s in range(seeds)]
        run = Run(recipe, numbers, inputs, topic_model, given["arrays"], given["references"])
        if folder is not None:
            if under_way.resumed:
                run.restore(folder)
            begun = {"schema_version": SCHEMA_VERSION, "recipe": recipe.model_dump()}
            write_json(folder / RECIPE, begun | ({"inputs": inputs} if inputs else {}))
        with tracked(shown, recipe.name, run.total, "steps"):
            run.go(folder, shown)
        record = run.record(command)
        if folder is not None:
            record.write(folder)
            remove_checkpoint(folder)
    return replace(record, folder=target)


def finished_run(recipe: Recipe, seeds: int, inputs: dict[str, str], folder: Path) -> RunRecord | None:
    """The record in `folder`, if the run there was finished.

    Raises:
        InputError: it is of another recipe, of other seeds or other inputs.
    """
    if not (folder / SUMMARY).is_file():
        return None
    record = RunRecord.load(folder)
    wanted = {"recipe": recipe.model_dump(mode="json"), "seeds": seeds, "inputs": inputs}
    given = record.manifest.sources.get("inputs", {})
    require_same(wanted, {"recipe": record.config, "seeds": record.summary["seeds"], "inputs": given}, folder)
    remove_checkpoint(folder)  # in case the run was killed after its last word
    return record


class Run:
    """The state of a run between two steps; everything in it is in a checkpoint or follows from the recipe."""

    def __init__(
        self,
        recipe: Recipe,
        seeds: list[int],
        inputs: dict[str, str],
        topic_model: TopicModel | None,
        arrays: Arrays,
        references: Arrays,
    ) -> None:
        t = recipe.training
        self.recipe, self.seeds, self.inputs = recipe, seeds, inputs
        self.topic_model = topic_model or topic_model_of(recipe)
        self.streams = streams_of(recipe, self.topic_model, self.seeds)
        check_engine(recipe)
        check_device(t.device)
        num_tokens, dtype = self.streams[0].num_tokens, getattr(torch, t.dtype)
        starts = [start(recipe.model, num_tokens, self.topic_model, arrays, seed, dtype) for seed in self.seeds]
        # The fast engine where it is exact and the recipe allows it, else the plain one.
        fast = why_not_reduced(recipe.model) is None and t.engine != "token"
        self.engine: Engine = ReducedEngine(recipe, starts) if fast else TokenEngine(recipe, starts)
        self.spans = spans_of(t)
        self.total = self.spans[-1].last
        self.parameters = self.engine.parameters
        check_names("training.ridge", t.ridge, self.parameters)
        for stage in t.stages:
            check_names("training.stages.train", stage.train, self.parameters)
        if not self.parameters:
            raise InputError(
                "nothing to train: every part of the model is frozen", expected="at least one trained matrix"
            )
        attention = recipe.model.attention == "trained"
        data = held_out(recipe, self.topic_model, by_query=attention)
        self.meter = Meter(self.engine, self.topic_model, data, references, self.seeds, attention=attention)
        self.snapshots = Snapshots(self.topic_model, self.engine.frozen, self.total)
        self.averaged = 0  # iterates that the sums below are of, in float64
        self.sums: dict[str, Tensor] = {}
        digest = hashlib.sha256()
        for name, value in sorted(weights_of(self.engine).items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        self.digest = digest.hexdigest()
        self.step = 0
        self.seconds = 0.0
        self.rows: list[dict[str, Any]] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.final: list[dict[str, Any]] = []

    def go(self, folder: Path | None, progress: Progress) -> None:
        """From the present step to the end."""
        t, began = self.recipe.training, time.monotonic() - self.seconds
        measured = set(measured_steps(self.recipe.history, self.total))
        averaged_from = t.steps - math.floor(t.average * t.steps)
        single = {f"{name}/{i}": part for name, parts in self.parameters.items() for i, part in enumerate(parts)}
        while True:
            span = next((s for s in self.spans if s.last > self.step), self.spans[-1])
            if self.optimizer is None or self.step == span.first:
                self.optimizer = make_optimizer(t, span, self.parameters)
            losses = self.engine.next_losses(self.streams)
            objective = losses
            for name, weight in t.ridge.items():
                # The squared norm itself, so its gradient is 2 λ W (Knowl 2): no decoupled decay, no unsquared norm.
                matrix = by_name(self.engine, {name: self.parameters[name]})[name]
                objective = objective + weight * matrix.flatten(1).square().sum(1)
            if not bool(torch.isfinite(objective).all()):
                raise self._diverged(objective, folder)
            for module in self.engine.modules:
                module.zero_grad(set_to_none=True)
            objective.sum().backward()  # type: ignore[no-untyped-call]
            rate = learning_rate(t, span, self.step)
            if self.step in measured:
                update = {"batch_loss": losses.detach(), "objective": objective.detach()}
                self.rows += self.meter.measure(self.step, update | {"learning_rate": [rate] * len(self.seeds)})
            if self.step == self.total:
                break
            if self.step in self.snapshots.steps:
                self.snapshots.take(self.step, weights_of(self.engine))
            if t.clip is not None:
                clip_gradients(self.parameters, t.clip, by_seed=self.engine.name == "token")
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            self.step += 1
            if self.step > averaged_from:
                self.averaged += 1
                for name, part in single.items():
                    if name in self.sums:
                        self.sums[name] += part.detach()
                    else:
                        self.sums[name] = part.detach().to(torch.float64, copy=True)
            if folder is not None and self.step % t.checkpoint_every == 0 and self._finite():
                self.seconds = time.monotonic() - began
                save_checkpoint(folder, self._checkpoint())
            if self.step % 20 == 0 or self.step == self.total:
                progress.update(self.recipe.name, self.step)
        if self.averaged:
            with torch.no_grad():
                for name, part in single.items():
                    part.copy_(self.sums[name] / self.averaged)
        if not self._finite():
            raise self._diverged(objective, folder)
        self.snapshots.take(self.step, weights_of(self.engine))
        self.final = self.meter.measure(self.step)
        self.seconds = time.monotonic() - began

    def restore(self, folder: Path) -> None:
        """Go to the last checkpoint in `folder`, if there is one."""
        wanted = {"recipe": self.recipe.model_dump(mode="json")}
        if (folder / RECIPE).is_file():
            begun = read_json(folder / RECIPE)
            given = {"recipe": begun["recipe"], "inputs": begun.get("inputs", {})}
            require_same(wanted | {"inputs": self.inputs}, given, folder)
        checkpoint = load_checkpoint(folder)
        if checkpoint is None:
            return
        state, tensors = checkpoint.state, checkpoint.tensors
        given = {name: state[name] for name in ("recipe", "seeds")}
        require_same(wanted | {"seeds": len(self.seeds)}, given, folder)
        if state["start"] != self.digest:
            raise InputError(
                "the run in this folder started from other matrices",
                received=str(folder),
                advice="hand in the same arrays, or start again in another folder",
            )
        set_weights(self.engine, _under(tensors, "weights"))
        for stream, saved in zip(self.streams, state["streams"], strict=True):
            stream.restore(saved)
        self.step, self.seconds, self.rows = state["step"], state["seconds"], state["rows"]
        self.averaged = state["averaged"]
        device = self.recipe.training.device
        self.snapshots.restore({name: value.numpy() for name, value in _under(tensors, "snapshots").items()})
        self.sums = {name: value.to(device) for name, value in _under(tensors, "average").items()}
        span = next((s for s in self.spans if s.first < self.step < s.last), None)
        if span is not None:
            self.optimizer = make_optimizer(self.recipe.training, span, self.parameters)
            restore_optimizer(self.optimizer, _under(tensors, "optimizer"))

    def _checkpoint(self) -> "Checkpoint":
        assert self.optimizer is not None
        groups = {
            "weights": weights_of(self.engine),
            "optimizer": flatten_optimizer(self.optimizer),
            "average": self.sums,
            "snapshots": {name: torch.from_numpy(value) for name, value in self.snapshots.arrays().items()},
        }
        tensors = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "seeds": len(self.seeds),
            "recipe": self.recipe.model_dump(),
            "start": self.digest,
            "streams": [stream.state() for stream in self.streams],
            "averaged": self.averaged,
            "rows": self.rows,
        }
        return Checkpoint(tensors, state)

    def _finite(self) -> bool:
        """A checkpoint must be a good one: the last update may have broken what the next loss would show."""
        return all(bool(torch.isfinite(part).all()) for parts in self.parameters.values() for part in parts)

    def _diverged(self, objective: Tensor, folder: Path | None) -> RunError:
        """The error for a loss or a weight that is not finite: where, and what there is to go back to."""
        bad = [seed for seed, value in zip(self.seeds, objective.tolist(), strict=True) if not math.isfinite(value)]
        kept = folder is not None and (folder / POINTER).is_file()
        return RunError(
            f"training diverged at step {self.step}",
            received=f"loss no longer finite for seed {bad or self.seeds}",
            where=f"last good checkpoint: {folder / POINTER if kept and folder else 'none was written'}",
            advice="lower training.learning_rate, add training.warmup or training.clip, or use "
            "training.dtype = 'float64'",
        )

    def record(self, command: str | None) -> RunRecord:
        """What the finished run leaves."""
        recipe, history = self.recipe, pd.DataFrame(self.rows).astype(float).astype({"seed": int, "step": int})
        summary: dict[str, Any] = {
            "name": recipe.name,
            "description": recipe.description,
            "seeds": len(self.seeds),
            "steps": self.total,
            "seconds": round(self.seconds, 3),
            "engine": self.engine.name,
            "engine_reason": why_not_reduced(recipe.model),
            "frozen": sorted(self.engine.frozen),
            "documents_skipped": sum(getattr(stream, "skipped", 0) for stream in self.streams),
            "final": self.final,
        }
        if {"W_V", "W_K", "W_Q"} <= set(self.parameters):
            runs = [find_stages(rows) for _, rows in history.groupby("seed")]
            summary["stages"] = [{"seed": s, **stages.as_dict()} for s, stages in zip(self.seeds, runs, strict=True)]
        manifest = Manifest(
            created=now(),
            command=command,
            environment=describe_environment(),
            options={"seeds": self.seeds, "threads": torch.get_num_threads()},
            sources={
                "start": f"sha256:{self.digest}",
                "arrays": recipe.arrays,
                "references": recipe.references,
                "topics": {"number": self.topic_model.num_topics, "words": len(self.topic_model.vocabulary)},
                **({"inputs": self.inputs} if self.inputs else {}),
            },
        )
        weights = {name: value.cpu().numpy() for name, value in weights_of(self.engine).items()}
        return RunRecord(recipe.model_dump(), manifest, history, weights, summary, self.snapshots.arrays())


def _under(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{group}/"): value for name, value in tensors.items() if name.startswith(f"{group}/")}


def check_names(what: str, names: Collection[str], trainable: Collection[str]) -> None:
    """Refuse to regularise or move a matrix that is not trained: it would silently do nothing.

    Raises:
        InputError: naming the matrices that are trained.
    """
    wrong = sorted(set(names) - set(trainable))
    if wrong:
        raise InputError(
            f"{what} names a matrix that is not trained", received=wrong, expected=f"some of {sorted(trainable)}"
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything that decides the rest of a run: tensors by name, and plain data (step, generators, history, ...)."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the pair and remove older tensors; returns the JSON's path."""
    name = f"checkpoint-{checkpoint.state['step']:08d}.safetensors"
    write_bytes(folder / name, save({key: value.contiguous() for key, value in checkpoint.tensors.items()}))
    write_json(folder / POINTER, {"schema_version": _CHECKPOINT_VERSION, "tensors": name, "state": checkpoint.state})
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != name:
            old.unlink()
    return folder / POINTER


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint, or None if the run was stopped before its first one.

    Raises:
        InputError: another schema version.
    """
    if not (folder / POINTER).is_file():
        return None
    document = read_json(folder / POINTER)
    if document.get("schema_version") != _CHECKPOINT_VERSION:
        raise InputError(
            "unknown schema version of a checkpoint",
            received=document.get("schema_version"),
            expected=_CHECKPOINT_VERSION,
            where=str(folder / POINTER),
            advice="start the run again without --resume, in another folder",
        )
    return Checkpoint(load((folder / document["tensors"]).read_bytes()), document["state"])


def remove_checkpoint(folder: Path) -> None:
    """Clear up after a finished run, the pointer first."""
    (folder / POINTER).unlink(missing_ok=True)
    for old in folder.glob("checkpoint-*.safetensors"):
        old.unlink()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory (moments, step counts) as named tensors."""
    memory = optimizer.state_dict()["state"]
    return {
        f"{index}/{key}": value
        for index, values in memory.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizer` took."""
    document = optimizer.state_dict()
    memory: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        memory.setdefault(int(index), {})[key] = value
    document["state"] = memory
    optimizer.load_state_dict(document)
