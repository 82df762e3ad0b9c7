"""Two ways to train S seeds of one model, with the same numbers: stacked on token counts, or one plain module a seed.

The loop sees only this: losses of the next batch by seed, matrices by name with a first axis [seed].
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from topicscope.errors import InputError
from topicscope.lab.data import HeldOut
from topicscope.lab.parameters import Start, start, why_not_reduced
from topicscope.lab.recipe import Recipe
from topicscope.lab.reduced import CountTensors, ReducedTransformer
from topicscope.lab.transformer import TopicTransformer
from topicscope.synthetic import BatchStream, MaskedBatch
from topicscope.topics import TopicModel


@runtime_checkable
class Engine(Protocol):
    """S models of one recipe. `modules` hold the parameters; every other access is by name, stacked [seed …].

    parameters: those that are trained, by name: one stacked tensor, or one tensor a seed.
    """

    name: str
    modules: Sequence[nn.Module]
    frozen: frozenset[str]
    parameters: dict[str, list[nn.Parameter]]

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch, differentiable; seeds do not share parameters."""
        ...

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents, without gradient."""
        ...


def build_engine(
    recipe: Recipe, topic_model: TopicModel, num_tokens: int, seeds: Sequence[int], arrays: Mapping[str, np.ndarray]
) -> Engine:
    """The fast engine where it is exact and the recipe allows it, else the plain one.

    Raises:
        InputError: as `check_engine` and `check_device`.
    """
    check_engine(recipe)
    check_device(recipe.training.device)
    dtype = getattr(torch, recipe.training.dtype)
    starts = [start(recipe.model, num_tokens, topic_model, arrays, seed, dtype) for seed in seeds]
    if why_not_reduced(recipe.model) is None and recipe.training.engine != "token":
        return ReducedEngine(recipe, starts)
    return TokenEngine(recipe, starts)


def check_engine(recipe: Recipe) -> None:
    """Make sure that there is an engine that can train this recipe.

    Raises:
        InputError: the recipe asks for an engine that cannot train it.
    """
    reason, wanted = why_not_reduced(recipe.model), recipe.training.engine
    only_counts = recipe.data.source in ("population", "counts")
    if reason is not None and (wanted == "reduced" or only_counts):
        raise InputError(
            "this model cannot be trained on token counts",
            received=reason,
            expected="one layer and one head, with nothing but embedding, attention, values and head",
            advice='use training.engine = "auto" and data.source = "fresh"',
        )
    if wanted == "token" and only_counts:
        raise InputError(f'data.source = "{recipe.data.source}" has no tokens', advice='use training.engine = "auto"')


def check_device(name: str) -> None:
    """Make sure that torch has a device.

    Raises:
        InputError: it has not.
    """
    try:
        torch.zeros(1).to(name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            "no such device",
            received=name,
            expected='"cpu", or a device torch has: ' + str(error)[:200],
        ) from error


class ReducedEngine:
    """All seeds in one module on token counts."""

    name = "reduced"

    def __init__(self, recipe: Recipe, starts: Sequence[Start]) -> None:
        t = recipe.training
        self._model = ReducedTransformer(recipe.model, starts).to(t.device)
        self.modules: Sequence[nn.Module] = [self._model]
        self.frozen = self._model.frozen
        self.parameters = {name: [parameter] for name, parameter in self._model.named_parameters()}
        self._loss, self._unchanging = t.loss, recipe.data.source == "population" or t.batch_size == "all"
        self._kind: tuple[torch.dtype, str] = (getattr(torch, t.dtype), t.device)
        self._constant: CountTensors | None = None

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch; one that never changes is turned into tensors once."""
        counts = self._constant
        if counts is None:
            batches = [stream.next_counts(by_query=self._model.by_query) for stream in streams]
            counts = CountTensors.of(batches, *self._kind)
            self._constant = counts if self._unchanging else None
        return self._model.data_loss(counts, self._loss)

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents."""
        with torch.no_grad():
            return self._model.data_loss(CountTensors.of([held_out.counts], *self._kind), self._loss)


class TokenEngine:
    """One plain module a seed."""

    name = "token"

    def __init__(self, recipe: Recipe, starts: Sequence[Start]) -> None:
        t = recipe.training
        self.models = [TopicTransformer(recipe.model, s).to(t.device) for s in starts]
        self.modules: Sequence[nn.Module] = self.models
        self.frozen = self.models[0].frozen
        by_seed = [dict(model.named_parameters()) for model in self.models]
        self.parameters = {name: [parameters[name] for parameters in by_seed] for name in by_seed[0]}
        self._loss, self._weighting = t.loss, t.weighting

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch."""
        return self._losses([stream.next_batch() for stream in streams] * (len(self.models) // len(streams)))

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents."""
        assert held_out.batch is not None
        with torch.no_grad():
            return self._losses([held_out.batch] * len(self.models))

    def _losses(self, batches: Sequence[MaskedBatch]) -> Tensor:
        """Data loss [seed] of one batch a seed."""
        pairs = zip(self.models, batches, strict=True)
        return torch.stack([model.data_loss(batch, self._loss, self._weighting) for model, batch in pairs])


def parameters_of(engine: Engine) -> dict[str, Tensor]:
    """The trainable parameters by name, [seed …], differentiable."""
    return {name: _stacked(engine, parts) for name, parts in engine.parameters.items()}


def gradients_of(engine: Engine) -> dict[str, Tensor]:
    """The gradients that the last backward pass left, by name, [seed …]."""
    found = {name: [p.grad for p in parts if p.grad is not None] for name, parts in engine.parameters.items()}
    return {name: _stacked(engine, parts) for name, parts in found.items() if parts}


def weights_of(engine: Engine) -> dict[str, Tensor]:
    """Every matrix by name, frozen ones too, [seed …]; copies."""
    states = [module.state_dict() for module in engine.modules]
    return {name: _stacked(engine, [state[name] for state in states]).clone() for name in states[0]}


def set_weights(engine: Engine, weights: Mapping[str, Tensor]) -> None:
    """Put `weights_of`'s matrices back."""
    for seed, module in enumerate(engine.modules):
        by_seed = engine.name == "token"
        module.load_state_dict({name: value[seed] if by_seed else value for name, value in weights.items()})


def _stacked(engine: Engine, parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)) if engine.name == "token" else parts[0]
