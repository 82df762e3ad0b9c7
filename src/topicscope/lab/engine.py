"""Two ways to train S seeds of one model, with the same numbers: stacked on token counts, or one plain module a seed.

The loop sees only this: losses of the next batch by seed, matrices by name with a first axis [seed].
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from topicscope.errors import InputError
from topicscope.lab.config import why_not_reduced
from topicscope.lab.data import HeldOut
from topicscope.lab.parameters import Start, start
from topicscope.lab.recipe import Recipe
from topicscope.lab.reduced import CountTensors, ReducedTransformer
from topicscope.lab.transformer import TopicTransformer
from topicscope.synthetic import BatchStream, Population
from topicscope.topics import TopicModel


@runtime_checkable
class Engine(Protocol):
    """S models of one recipe. `modules` hold the parameters; every other access is by name, stacked [seed …]."""

    name: str
    modules: Sequence[nn.Module]
    frozen: frozenset[str]

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch, differentiable; seeds do not share parameters."""
        ...

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents, without gradient."""
        ...

    def trainable(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by name: one stacked tensor, or one tensor a seed."""
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
        self.model = ReducedTransformer(recipe.model, starts).to(recipe.training.device)
        self.modules: Sequence[nn.Module] = [self.model]
        self.frozen = self.model.frozen
        self._recipe = recipe
        self._constant: CountTensors | None = None

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch."""
        return self.model.data_loss(self._next_counts(streams), self._recipe.training.loss)

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents."""
        with torch.no_grad():
            counts = CountTensors.of([held_out.counts], *self._kind())
            return self.model.data_loss(counts, self._recipe.training.loss)

    def trainable(self) -> dict[str, list[nn.Parameter]]:
        """Stacked parameters by name."""
        return {name: [parameter] for name, parameter in self.model.trainable().items()}

    def _next_counts(self, streams: Sequence[BatchStream]) -> CountTensors:
        # A batch that never changes is turned into tensors once.
        whole = isinstance(streams[0], Population) or self._recipe.training.batch_size == "all"
        if not whole:
            return CountTensors.of([s.next_counts(by_query=self.model.by_query) for s in streams], *self._kind())
        if self._constant is None:
            self._constant = CountTensors.of([streams[0].next_counts(by_query=self.model.by_query)], *self._kind())
        return self._constant

    def _kind(self) -> tuple[torch.dtype, str]:
        return getattr(torch, self._recipe.training.dtype), self._recipe.training.device


class TokenEngine:
    """One plain module a seed."""

    name = "token"

    def __init__(self, recipe: Recipe, starts: Sequence[Start]) -> None:
        self.models = [TopicTransformer(recipe.model, s).to(recipe.training.device) for s in starts]
        self.modules: Sequence[nn.Module] = self.models
        self.frozen = self.models[0].frozen
        self._recipe = recipe

    def next_losses(self, streams: Sequence[BatchStream]) -> Tensor:
        """Data loss [seed] of the next batch."""
        batches = [stream.next_batch() for stream in streams] * (len(self.models) // len(streams))
        t = self._recipe.training
        return torch.stack(
            [m.data_loss(batch, t.loss, t.weighting) for m, batch in zip(self.models, batches, strict=True)]
        )

    def losses(self, held_out: HeldOut) -> Tensor:
        """Data loss [seed] on held-out documents."""
        assert held_out.batch is not None
        t = self._recipe.training
        with torch.no_grad():
            return torch.stack([m.data_loss(held_out.batch, t.loss, t.weighting) for m in self.models])

    def trainable(self) -> dict[str, list[nn.Parameter]]:
        """One parameter a seed, by name."""
        return {name: [m.trainable()[name] for m in self.models] for name in self.models[0].trainable()}


def parameters_of(engine: Engine) -> dict[str, Tensor]:
    """The trainable parameters by name, [seed …], differentiable."""
    return {name: _stacked(engine, parts) for name, parts in engine.trainable().items()}


def gradients_of(engine: Engine) -> dict[str, Tensor]:
    """The gradients that the last backward pass left, by name, [seed …]."""
    found = {name: [p.grad for p in parts if p.grad is not None] for name, parts in engine.trainable().items()}
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
