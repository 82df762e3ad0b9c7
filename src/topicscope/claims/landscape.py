"""The loss over the attention weights (α, β) for several settings: minima, and the ridge."""

from dataclasses import replace

import numpy as np

from topicscope.claims.claim import Claim, Context, Criterion, Row, above, below, exact_row
from topicscope.progress import tracked
from topicscope.synthetic import Setting
from topicscope.theory import Value, attention_landscape, topicwise_attention_loss, topicwise_attention_optimum

_P = (0.15, 0.1, 0.1)
# (T, v, τ): the paper's T = v = 10 with more topics a document, then more topics and more words.
SHAPES = ((10, 10, 2), (10, 10, 3), (10, 10, 5), (20, 10, 2), (10, 20, 2), (40, 10, 4))
LENGTHS = (None, 100)
_VALUES: tuple[Value, ...] = ("block", "diagonal")


def measure(context: Context) -> list[Row]:
    """Both value matrices at every shape and length; quick: three shapes."""
    shapes = SHAPES[:3] if context.quick else SHAPES
    rows = []
    with tracked(context.progress, "landscape", len(shapes), "settings"):
        for number, shape in enumerate(shapes):
            for length in LENGTHS:
                setting = replace(Setting(*shape, *_P), document_length=length)
                rows += [*minimum_rows(setting, "block"), *minimum_rows(setting, "diagonal")]
                keep_landscapes(context, setting, f"{number}-{'infinite' if length is None else length}")
            rows.append(ridge_row(Setting(*shape, *_P), "block"))
            context.progress.update("landscape", number + 1)
    return rows


def minimum_rows(setting: Setting, value: Value) -> list[Row]:
    """The least loss on a grid around the exact optimum, and what the optimum says of attention.

    Block: γ* = ((v-1)α + β)/v, weight inside a topic. Diagonal: β*, weight of the same word, and α*/β*.
    """
    best = topicwise_attention_optimum(setting, value)
    grid = attention_landscape(setting, *_grid(best.alpha, best.beta), value)
    name = _name(setting, value)
    rows = [
        exact_row(
            "grid",
            f"(least loss on a grid - loss at the optimum) / (1 - loss), {name}",
            (grid.min() - best.loss) / (1 - best.loss),
        )
    ]
    if value == "block":
        return [*rows, exact_row("inside", f"γ*, {name}", best.gamma, alpha=best.alpha, beta=best.beta)]
    word = exact_row("word", f"β*, {name}", best.beta)
    return [*rows, word, exact_row("suppressed", f"α* / β*, {name}", best.alpha / best.beta)]


def ridge_row(setting: Setting, value: Value) -> Row:
    """Spread of the loss along γ = γ*, from α = 0 to β = 0, relative to what attention gains over γ = 1."""
    v = setting.words_per_topic
    gamma = topicwise_attention_optimum(setting, "block").gamma
    alphas = np.linspace(0, gamma * v / (v - 1), 11)
    losses = topicwise_attention_loss(setting, alphas, np.maximum(gamma * v - (v - 1) * alphas, 0.0), value)
    gain = float(topicwise_attention_loss(setting, 1.0, 1.0, value)) - float(losses.min())
    return exact_row(
        "ridge", f"spread of the loss along the ridge / gain, {_name(setting, value)}", np.ptp(losses) / max(gain, 1e-9)
    )


def keep_landscapes(context: Context, setting: Setting, name: str) -> None:
    """Both losses around the optimum, for the figure; α and β on one scale for the block, whose ridge runs across."""
    for value in _VALUES:
        best = topicwise_attention_optimum(setting, value)
        larger = max(best.alpha, best.beta)
        ends = (larger, larger) if value == "block" else (max(best.alpha, 1.0), best.beta)
        alphas, betas = (np.linspace(0, 2 * end, 81) for end in ends)
        context.keep(
            f"landscape-{value}-{name}",
            _name(setting, value),
            {"alpha": alphas, "beta": betas, "loss": attention_landscape(setting, alphas, betas, value)},
            value=value,
            words_per_topic=setting.words_per_topic,
            optimum={"alpha": best.alpha, "beta": best.beta, "gamma": best.gamma},
        )


def _grid(alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights from 0 to four times the optimum (at least 4), 41 of each."""
    return np.linspace(0, 4 * max(alpha, 1.0), 41), np.linspace(0, 4 * max(beta, 1.0), 41)


def _name(setting: Setting, value: Value) -> str:
    length = "∞" if setting.document_length is None else setting.document_length
    return f"{value} W_V, T={setting.num_topics} v={setting.words_per_topic} τ={setting.topics_per_document} N={length}"


CLAIM = Claim(
    id="landscape",
    title="The loss over attention weights has its minimum at topic-wise attention",
    where="Figures 7-8, Theorems 3 and 4",
    assertion="Beyond the asymptotic theorems too, the loss over (α, β) is least where same-topic (block W_V) or "
    "same-word (diagonal W_V) attention is larger than attention to other topics.",
    recipes=(),
    theory=("attention_landscape", "topicwise_attention_optimum"),
    criteria=(
        # A minimiser knows its place to about the root of rounding only, so "larger" is asked to be by 1 %.
        above("inside", "block: optimal weight inside a topic", 1.01),
        above("word", "diagonal: optimal weight of the same word", 1.01),
        below("suppressed", "diagonal: weight of other words of the topic against that of the same word", 0.1),
        below("ridge", "block at N = ∞: the loss depends on the average weight inside a topic only", 1e-9),
        Criterion(
            "grid",
            "no point of a grid lies below the optimum, and the best one lies near it",
            lambda row: -1e-12 <= row["measured"] <= 0.01,
        ),
    ),
    measure=measure,
)
