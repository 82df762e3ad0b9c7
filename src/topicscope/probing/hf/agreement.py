"""The trial that decides how attention is read: a model's factors against its weights, on a few tokens."""

import math
from collections.abc import Callable, Sequence

import torch

from topicscope.probing.hf.families import PartSpec
from topicscope.probing.hf.sdpa import Factors, NotFactored, OnFactors
from topicscope.probing.tokens import Batch

TRIAL_TOKENS = 32
# Largest difference of two probabilities that are the same but for rounding in the model's precision.
TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}


OnAttention = Callable[[str, int, torch.Tensor], None]


def why_not_factored(
    run: Callable[[Batch, OnAttention], object],
    run_whole: Callable[[Batch, OnFactors], None],
    batch: Batch,
    parts: Sequence[PartSpec],
    dtype: str,
) -> str:
    """Why attention cannot be read in factors; "" where on the batch's first tokens they say the same as the weights.

    run, run_whole: `ModelView.run` and `ModelView.run_factored` to the end of the model.

    Raises:
        RunError: as `ModelView.run`.
    """
    start = _beginning(batch)
    weights: dict[tuple[str, int], torch.Tensor] = {}
    run(start, lambda part, layer, attention: weights.update({(part, layer): attention.clone()}))
    specs, differences = {part.name: part for part in parts}, []

    def compare(part: str, layer: int, factors: Factors) -> None:
        differences.append(_difference(factors, weights[part, layer], specs[part]))

    try:
        run_whole(start, compare)
    except NotFactored as reason:
        return str(reason)
    worst = max(differences)
    return "" if worst <= TOLERANCE[dtype] else f"its factors are off by {worst:.2g}"


def _beginning(batch: Batch) -> Batch:
    """The first tokens of the first unit, without padding."""
    tokens = batch.attention_mask[0].bool()
    ids, mask = batch.input_ids[:1, tokens], batch.attention_mask[:1, tokens]
    return Batch(ids[:, :TRIAL_TOKENS], mask[:, :TRIAL_TOKENS], batch.unit_index[:1])


def _difference(factors: Factors, weights: torch.Tensor, part: PartSpec) -> float:
    """max |exp(s q_i·k_j - ℓ_i) - A_ij| over the heads that are read; weights A [b, h, q, k]. NaN is infinite."""
    heads = list(part.heads)
    groups = factors.query.shape[1] // factors.key.shape[1]
    key = factors.key[:, [head // groups for head in heads]].float()
    scores = factors.scale * factors.query[:, heads].float() @ key.transpose(-1, -2)
    found = (scores - factors.normaliser[:, heads, :, None]).exp()
    found = found.tril() if part.causal else found
    if found.shape != weights.shape:
        return math.inf
    difference = float((found - weights).abs().max())
    return math.inf if math.isnan(difference) else difference
