"""Update rules, learning-rate schedules, clipping and iterate averaging, for seeds stacked or apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from topicscope.lab.recipe import Stage, Training


@dataclass(frozen=True)
class Span:
    """One stage in steps: updates number first .. last - 1 move only the matrices of `train` (None: all)."""

    first: int
    last: int
    train: tuple[str, ...] | None
    learning_rate: float


def spans_of(training: Training) -> list[Span]:
    """The schedule in steps; every stage has at least one, so that shortened runs still visit each."""
    stages: Sequence[Stage] = training.stages
    if not stages:
        return [Span(0, training.steps, None, training.learning_rate)]
    ends, done = [], 0.0
    for number, stage in enumerate(stages, start=1):
        done += stage.share
        ends.append(max(round(done * training.steps), number))
    ends[-1] = max(training.steps, len(stages))
    return [
        Span(first, last, stage.train, stage.learning_rate or training.learning_rate)
        for first, last, stage in zip([0, *ends[:-1]], ends, stages, strict=True)
    ]


def learning_rate(training: Training, span: Span, step: int) -> float:
    """η of update number `step`: linear warm-up, then constant, cosine or linear decay to 0 at the stage's end."""
    at, length = step - span.first, span.last - span.first
    if at < training.warmup:
        return span.learning_rate * (at + 1) / (training.warmup + 1)
    progress = (at - training.warmup) / max(length - training.warmup, 1)
    if training.schedule == "cosine":
        return span.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return span.learning_rate * (1 - progress) if training.schedule == "linear" else span.learning_rate


def make_optimizer(
    training: Training, span: Span, parameters: Mapping[str, Sequence[nn.Parameter]]
) -> torch.optim.Optimizer:
    """The update rule over the matrices that move in this stage. All of these rules act entry by entry, so stacked
    seeds do not see one another."""
    moving = [p for name, parts in parameters.items() if span.train is None or name in span.train for p in parts]
    if training.optimizer == "sgd":
        return torch.optim.SGD(moving, lr=span.learning_rate, momentum=training.momentum)
    decay = training.weight_decay if training.optimizer == "adamw" else 0.0
    return torch.optim.AdamW(moving, lr=span.learning_rate, weight_decay=decay, fused=True)


def clip_gradients(parameters: Mapping[str, Sequence[nn.Parameter]], limit: float, *, by_seed: bool) -> None:
    """Scale each seed's whole gradient down to norm `limit` where it is longer.

    by_seed: each name holds one tensor a seed; otherwise one tensor with a first axis [seed].
    """
    columns = list(zip(*parameters.values(), strict=True))
    for parts in columns:
        gradients = [p.grad for p in parts if p.grad is not None]
        flat = [g.flatten(0 if by_seed else 1) for g in gradients]
        norm = torch.stack([g.square().sum(-1) for g in flat]).sum(0).sqrt()
        scale = (limit / norm.clamp(min=limit)).reshape(-1 if not by_seed else ())
        for g in gradients:
            g.mul_(scale if by_seed else scale.reshape(-1, *[1] * (g.ndim - 1)))


class IterateAverage:
    """The mean of the iterates of the last share of the steps, in float64."""

    def __init__(self, training: Training) -> None:
        self.begin = training.steps - math.floor(training.average * training.steps)
        self.count = 0
        self.sums: dict[str, Tensor] = {}

    def add(self, step: int, weights: Mapping[str, Sequence[Tensor]]) -> None:
        """Take the iterate after `step` updates, if it belongs to the last share. Names hold one or more tensors."""
        if step <= self.begin:
            return
        self.count += 1
        for name, parts in weights.items():
            for index, part in enumerate(parts):
                key = f"{name}/{index}"
                if key in self.sums:
                    self.sums[key] += part.detach()
                else:
                    self.sums[key] = part.detach().to(torch.float64, copy=True)

    def apply(self, weights: Mapping[str, Sequence[Tensor]]) -> None:
        """Put the mean into the parameters; nothing happens without averaging."""
        if not self.count:
            return
        with torch.no_grad():
            for name, parts in weights.items():
                for index, part in enumerate(parts):
                    part.copy_(self.sums[f"{name}/{index}"] / self.count)
