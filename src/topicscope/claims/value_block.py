"""Theorem 2: the value matrix under uniform attention becomes block-wise.

Why heat maps of W_V show a block, a diagonal, or something between: at finite N the optimum without L2 carries a spike
on the diagonal, about as high as the block itself however large N is, and an L2 term λ takes it away once λ N is large.
`spike_rows` shows the exact height for several N and λ, `finite_rows` that training goes there.
"""

from dataclasses import replace

import numpy as np

from topicscope.claims.claim import (
    Claim,
    Context,
    Row,
    above,
    below,
    entry_means,
    exact_row,
    measured_row,
    near,
    setting_of,
)
from topicscope.lab import make_recipe
from topicscope.records import RunRecord
from topicscope.synthetic import Setting
from topicscope.theory import ValueMatrixBlocks, value_matrix_blocks

_PARTS = {
    "mask_column": "[MASK] column W_i0",
    "different": "different topic W_diff",
    "same": "same topic W_same",
    "diagonal": "word itself W_ii",
}


# L2 terms beside none: one that leaves half of the spike at N = 100, one that leaves an eighth.
RIDGES = (1e-4, 1e-3)
SETTING = Setting(10, 10, 3, 0.15, 0.1, 0.1)  # of the recipe value-matrix


def measure(context: Context) -> list[Row]:
    """Population, a true ridge at N = 10⁶, finite documents of N = 100, exact spikes, and cross-entropy."""
    rows = population_rows(context)
    # The theorem as the paper states it: with an L2 term, and words drawn as counts.
    sampled = context.train("theorem-2-sampled", *(("training.steps=600",) if context.quick else ()))
    rows += _entry_rows("ridge", "ridge 1e-5, N = 10⁶", sampled, _theory(sampled))
    return [*rows, *finite_rows(context), *spike_rows(), *cross_entropy_rows(context)]


def population_rows(context: Context) -> list[Row]:
    """N = ∞, squared loss, no ridge: entry means, and the furthest single entry."""
    record = context.train("theorem-2")
    exact = _theory(record)
    # Means could hide anything inside a block; the furthest entry of any seed cannot.
    furthest = np.abs(record.weights["W_V"] - exact.matrix(setting_of(record))).max() / exact.same
    return [
        *_entry_rows("theorem", "N = ∞", record, exact),
        exact_row("furthest", "largest |W_V - W*| of any entry and seed, in units of W_same", furthest),
    ]


def finite_rows(context: Context) -> list[Row]:
    """N = 100: the unregularised optimum is unique, and carries a diagonal spike on the block; L2 makes it smaller."""
    steps = ("training.steps=1500",) if context.quick else ()
    rows = []
    for ridge in (0.0, *RIDGES):
        record = context.train("value-matrix", *steps, *((f"training.ridge={{W_V = {ridge}}}",) if ridge else ()))
        means, exact = entry_means(record), _theory(record)
        spike = np.array(means["diagonal"]) - means["same"]
        how = f"at N = 100{f', L2 {ridge:g}' if ridge else ''}"
        rows += _entry_rows("finite", how.removeprefix("at "), record, exact, ("same", "diagonal"))
        rows.append(measured_row(None, f"diagonal spike {how}", spike, theory=exact.diagonal - exact.same))
    return rows


def spike_rows() -> list[Row]:
    """(W_ii - W_same) / (W_same - W_diff) at the exact optimum: 0 is Theorem 2's block, 1 a diagonal twice as high."""
    rows = []
    for length in (100, 10_000, None):
        for ridge in (0.0, 1e-6, *RIDGES):
            blocks = value_matrix_blocks(replace(SETTING, document_length=length), ridge)
            height = (blocks.diagonal - blocks.same) / (blocks.same - blocks.different)
            words = f"N = {'∞' if length is None else f'{length:,}'}, {f'L2 {ridge:g}' if ridge else 'no L2'}"
            rows.append(exact_row(None, f"exact optimum, diagonal spike / block height, {words}", height))
    return rows


def cross_entropy_rows(context: Context) -> list[Row]:
    """Cross-entropy, by the sign of W_same and W_diff: its infimum is not attained, so there are no values to reach."""
    rows = []
    for optimizer, rate, ridge in (("adam", 0.01, 0.0), ("sgd", 1.0, 0.0), ("adam", 0.01, RIDGES[0])):
        changed = ("training.loss=cross-entropy", f"training.optimizer={optimizer}", f"training.learning_rate={rate}")
        penalty = (f"training.ridge={{W_V = {ridge}}}",) if ridge else ()
        means = entry_means(context.train("value-matrix", *changed, "training.steps=300", *penalty))
        how = f"cross-entropy, {optimizer} {rate:g}{f', L2 {ridge:g}' if ridge else ''}"
        rows.append(measured_row("gap", f"W_same - W_diff, {how}", np.array(means["same"]) - means["different"]))
        rows.append(measured_row("negative", f"W_diff, {how}", means["different"]))
    return rows


def _theory(record: RunRecord) -> ValueMatrixBlocks:
    return value_matrix_blocks(setting_of(record), make_recipe(record.config).training.ridge.get("W_V", 0.0))


def _entry_rows(
    criterion: str, how: str, record: RunRecord, exact: ValueMatrixBlocks, parts: tuple[str, ...] = tuple(_PARTS)
) -> list[Row]:
    means = entry_means(record)
    return [
        measured_row(criterion, f"{_PARTS[part]}, {how}", means[part], theory=float(getattr(exact, part)))
        for part in parts
    ]


CLAIM = Claim(
    id="value-block",
    title="Under uniform attention the value matrix becomes block-wise",
    where="Theorem 2 (Knowl 2), heat maps of W_V",
    assertion="As the L2 term vanishes the optimal W_V is W_diff < 0 between topics, W_same = W_diff + c3/v inside a "
    "topic, and constant in the [MASK] column.",
    recipes=("theorem-2", "theorem-2-sampled", "value-matrix"),
    theory=("value_matrix_blocks",),
    criteria=(
        near("theorem", "entry means at N = ∞", 0.02),
        below("furthest", "furthest entry at N = ∞", 0.05),
        near("ridge", "entry means with a true ridge", 0.05),
        near(
            "finite",
            "same-topic and diagonal entries at N = 100, with and without L2, which are other optima",
            0.05,
            decisive=False,
        ),
        above("gap", "same topic above different topic under cross-entropy", 0.0),
        below("negative", "different-topic entries under cross-entropy", 0.0, decisive=False),
    ),
    measure=measure,
)
