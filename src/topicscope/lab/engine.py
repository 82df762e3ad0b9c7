"""Two ways to train S seeds of one model, with the same numbers: stacked on token counts, or one plain module a seed.

On token counts the one-layer model has the losses and gradients of the token level, only faster. The training loop sees
only engines: losses of the next batch by seed, matrices by name with a first axis [seed]. The update rules over these
matrices follow: stages and schedules, optimisers, clipping.

Axes: seed, document, group (see `TokenCounts`), token (D types), d (width), a (width of the keys).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from topicscope.errors import InputError
from topicscope.lab.data import HeldOut
from topicscope.lab.recipe import Recipe, Stage, Training
from topicscope.lab.transformer import Loss, ModelConfig, Start, TopicTransformer, why_not_reduced
from topicscope.synthetic import BatchStream, MaskedBatch, TokenCounts


@dataclass(frozen=True, eq=False)
class CountTensors:
    """`TokenCounts` of one batch shared by all seeds (first axis 1) or of one batch for each seed.

    Ragged groups are filled up with groups of weight 0, which add nothing to loss or gradient.
    """

    inputs: Float[Tensor, "seed document token"]
    document: Int[Tensor, "seed group"]
    query: Int[Tensor, "seed group"]
    targets: Float[Tensor, "seed group token"]

    @cached_property
    def log_shares(self) -> Float[Tensor, "seed group token"]:
        """log x_d of each group's document; -∞ where a token is not attended, 0 throughout if nothing is."""
        logs = self.inputs.log()
        if self.attends is not None:
            logs = logs.masked_fill(self.inputs.sum(-1, keepdim=True) == 0, 0)
        return _gather(logs, self.document)

    @cached_property
    def attends(self) -> Float[Tensor, "seed group one"] | None:
        """0 for the groups of documents in which nothing is attended, else 1; None where there is no such document."""
        some = self.inputs.sum(-1, keepdim=True) > 0
        return None if bool(some.all()) else _gather(some.to(self.inputs), self.document)

    @classmethod
    def of(
        cls, counts: Sequence[TokenCounts], dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> "CountTensors":
        """Stack one batch a seed."""
        stacked = {}
        for name, kind in (("inputs", dtype), ("document", torch.int64), ("query", torch.int64), ("targets", dtype)):
            arrays = [getattr(c, name) for c in counts]
            if len(arrays) == 1:
                stacked[name] = torch.from_numpy(arrays[0]).unsqueeze(0).to(device, kind)
                continue
            longest = max(len(array) for array in arrays)
            # Converted while copied: a pass over memory less for every step of a stacked run.
            out = torch.empty((len(arrays), longest, *arrays[0].shape[1:]), dtype=kind)
            for row, array in zip(out.numpy(), arrays, strict=True):
                row[: len(array)] = array
                row[len(array) :] = 0
            stacked[name] = out.to(device)
        return cls(**stacked)


def _gather(table: Float[Tensor, "seed document any"], document: Int[Tensor, "seed group"]) -> Tensor:
    """The table's row for each group."""
    first = table.shape[1] * torch.arange(len(table), device=table.device)
    flat = table.flatten(0, 1).index_select(0, (document + first.unsqueeze(1)).flatten())
    return flat.view(*document.shape, table.shape[-1])


class ReducedTransformer(nn.Module):
    """S models of one config, each with its own start; parameters as in `TopicTransformer` with a first axis [seed].

    With x_d the shares of token types attended in a document, M = W_pred W_V W_E and for a query that shows token u
    P_gk ∝ x_dk exp(S_uk), S_uk = (W_Q W_E)_u·(W_K W_E)_k/√d_a (uniform attention: P = x_d):

        z_g = M P_g + b_pred

    by_query: whether counts must be grouped by the shown token; it matters only where attention is not uniform.

    Raises:
        InputError: the config's outputs are not functions of counts (`why_not_reduced`).
    """

    W_E: Tensor
    W_K: Tensor
    W_Q: Tensor
    W_V: Tensor
    W_pred: Tensor
    b_pred: Tensor

    def __init__(self, config: ModelConfig, starts: Sequence[Start]) -> None:
        super().__init__()
        reason = why_not_reduced(config)
        if reason is not None:
            raise InputError(
                "this model cannot be trained on token counts",
                received=reason,
                expected="one layer and one head, with nothing but embedding, attention, values and head",
                advice="use TopicTransformer",
            )
        self.config = config
        self.frozen = starts[0].frozen
        self.by_query = config.attention == "trained"
        # An identity or a diagonal in W_V's place, never trained: entry by entry instead of a matrix product.
        fixed = "W_V" in self.frozen and config.embedding == "one-hot" and config.head == "tied"
        self._diagonal = fixed and all(
            torch.equal(matrix, torch.diag(matrix.diagonal())) for matrix in (s.parameters["W_V"] for s in starts)
        )
        for name in starts[0].parameters:
            stacked = torch.stack([s.parameters[name] for s in starts])
            if name in self.frozen:
                self.register_buffer(name, stacked)
            else:
                self.register_parameter(name, nn.Parameter(stacked))

    def weights(self) -> dict[str, Tensor]:
        """Every matrix by name [seed …], frozen ones too; detached, sharing memory."""
        return {name: value.detach() for name, value in self.state_dict(keep_vars=True).items()}

    def data_loss(self, counts: CountTensors, loss: Loss) -> Float[Tensor, " seed"]:
        """The data loss of each seed; seeds are independent, so `.sum().backward()` gives each its own gradient."""
        one_hot, scores = self.config.embedding == "one-hot", None
        if self.by_query:  # before the values: gradients by W_E are summed in the order in which products are made
            q, k = (self.W_Q, self.W_K) if one_hot else (self.W_Q @ self.W_E, self.W_K @ self.W_E)
            scores = q.mT @ k / math.sqrt(self.W_K.shape[1])  # S, [seed query key]
        if self._diagonal:
            values = self.W_V.diagonal(dim1=1, dim2=2).unsqueeze(1)  # of a diagonal M only the diagonal, [seed 1 token]
        else:
            values = self.W_V if one_hot else self.W_V @ self.W_E
            if self.config.head == "trained":
                values = self.W_pred @ values
            elif not one_hot:
                values = self.W_E.mT @ values  # M, [seed out in]
        value: Tensor = _CountLoss.apply(values, scores, self.b_pred, counts, loss)  # type: ignore[no-untyped-call]
        return value


def grouped_loss(
    logits: Float[Tensor, "seed group token"],
    targets: Float[Tensor, "#seed group token"],
    loss: Loss,
) -> tuple[Float[Tensor, " seed"], Float[Tensor, "seed group token"]]:
    """Σ_g Σ_i y_gi ℓ(z_g, e_i) per seed, and its gradient by the logits. With n_g = Σ_i y_gi:

    cross-entropy   n_g lse(z_g) - y_g·z_g              gradient n_g softmax(z_g) - y_g
    squared         n_g ‖z_g‖² - 2 y_g·z_g + n_g        gradient 2 (n_g z_g - y_g)
    """
    n = targets.sum(-1, keepdim=True)
    fit = (targets * logits).sum((1, 2))
    if loss == "squared":
        scaled = n * logits
        return (scaled * logits).sum((1, 2)) - 2 * fit + n.sum((1, 2)), (scaled - targets).mul_(2)
    top = logits.amax(-1, keepdim=True)
    exponential = (logits - top).exp_()
    total = exponential.sum(-1, keepdim=True)
    value = (n * (total.log() + top)).sum((1, 2)) - fit
    return value, exponential.mul_(n / total).sub_(targets)


class _CountLoss(torch.autograd.Function):
    """The loss by M, S and b, with gradients written by hand; autograd carries them on to W_E, W_K, W_Q, W_V, W_pred.

    With G = ∂L/∂z [group token]:  ∂L/∂M = Gᵀ P,  ∂L/∂b = Σ_g G_g,  and through the softmax, with R = G M,
    ∂L/∂S_u = Σ_{g: query u} P_g ∘ (R_g - P_g·R_g).
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, scores: Tensor | None, bias: Tensor, counts: CountTensors, loss: Loss
    ) -> Tensor:
        query = None if scores is None else _flat_query(scores, counts)
        pattern = counts.inputs if scores is None or query is None else _pattern(scores, query, counts)
        diagonal = values.shape[1] == 1 < values.shape[2]
        if diagonal:
            logits = torch.addcmul(bias.unsqueeze(1), pattern, values)
        else:
            logits = torch.baddbmm(bias.unsqueeze(1), pattern.expand(len(values), -1, -1), values.mT)
        result, by_logits = grouped_loss(logits, counts.targets, loss)
        needs_values, needs_scores, needs_bias = ctx.needs_input_grad[:3]
        by_values = by_logits.mT @ pattern if needs_values else None
        by_scores = None
        if needs_scores:
            by_pattern = by_logits * values if diagonal else by_logits @ values
            by_scores = _scores_gradient(pattern, by_pattern, scores, query)
        ctx.gradients = (by_values, by_scores, by_logits.sum(1) if needs_bias else None)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (each,) = outer
        scaled = [
            None if gradient is None else gradient * each.reshape(-1, *[1] * (gradient.ndim - 1))
            for gradient in ctx.gradients
        ]
        return (*scaled, None, None)


def _pattern(scores: Tensor, query: Tensor, counts: CountTensors) -> Float[Tensor, "seed group token"]:
    """P: softmax over keys of S_u + log x_d."""
    rows = scores.flatten(0, 1).index_select(0, query)
    pattern = torch.softmax(rows.view(len(scores), -1, rows.shape[-1]) + counts.log_shares, dim=-1)
    return pattern if counts.attends is None else pattern * counts.attends


def _scores_gradient(pattern: Tensor, by_pattern: Tensor, scores: Tensor | None, query: Tensor | None) -> Tensor:
    assert scores is not None
    assert query is not None
    by_rows = pattern * by_pattern
    by_rows.addcmul_(pattern, by_rows.sum(-1, keepdim=True), value=-1)
    flat = torch.zeros_like(scores).flatten(0, 1)
    return flat.index_add_(0, query, by_rows.flatten(0, 1)).view_as(scores)


def _flat_query(scores: Tensor, counts: CountTensors) -> Int[Tensor, " all"]:
    """Row of each seed's query in scores.flatten(0, 1), with the seeds of a shared batch written out."""
    first = scores.shape[1] * torch.arange(len(scores), device=scores.device)
    return (counts.query + first.unsqueeze(1)).flatten()


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


Engine = ReducedEngine | TokenEngine
"""S models of one recipe. `modules` hold the parameters; every other access is by name, stacked [seed …].

`parameters`: those that are trained, by name: one stacked tensor, or one tensor a seed.
"""


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


def by_name(engine: Engine, parts: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
    """Parameters, or what belongs to each, by name, [seed …]; differentiable."""
    apart = isinstance(engine, TokenEngine)
    return {name: torch.stack(list(values)) if apart else values[0] for name, values in parts.items()}


def weights_of(engine: Engine) -> dict[str, Tensor]:
    """Every matrix by name, frozen ones too, [seed …]; copies."""
    states = [module.state_dict() for module in engine.modules]
    stacked = by_name(engine, {name: [state[name] for state in states] for name in states[0]})
    return {name: value.clone() for name, value in stacked.items()}


def set_weights(engine: Engine, weights: Mapping[str, Tensor]) -> None:
    """Put `weights_of`'s matrices back."""
    for seed, module in enumerate(engine.modules):
        apart = isinstance(engine, TokenEngine)
        module.load_state_dict({name: value[seed] if apart else value for name, value in weights.items()})


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
    match training.schedule:  # without a default, so that a type checker misses a schedule that is added
        case "constant":
            return span.learning_rate
        case "linear":
            return span.learning_rate * (1 - progress)
        case "cosine":
            return span.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


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
