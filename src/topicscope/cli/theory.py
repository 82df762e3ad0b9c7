"""`topicscope theory`: closed forms for any setting, beside the bounds and whether they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import numpy as np
from cyclopts import Parameter

from topicscope import theory
from topicscope.cli.output import Json, print_json, print_lines, print_table
from topicscope.errors import InputError
from topicscope.options import Whole
from topicscope.records import write_bytes
from topicscope.report import landscape_figure, stages_figure, to_png
from topicscope.synthetic import Setting, Weighting
from topicscope.theory import Value

app = cyclopts.App(
    name="theory", help="Closed forms for any setting: optima, bounds, dynamics.", help_format="plaintext"
)
_LARGEST_MEASURED = 400  # words; a matrix statement is measured on the whole matrix
_MATRIX_KINDS = ("minimiser", "trajectory")
_THEOREMS = {theorem.id: theorem for theorem in theory.THEOREMS}

Output = Annotated[Path | None, Parameter(name=("--output", "-o"))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """The setting: T topics of v words, τ active, and the masking rates."""

    topics: Whole
    "T, number of topics."
    words_per_topic: Whole
    "v, words of each topic."
    topics_per_document: Whole
    "τ, active topics of a document, 1 to T."
    p_mask: float = 0.15
    "Share of positions selected, between 0 and 1."
    p_correct: float = 0.1
    "Share of the selected positions left as they are."
    p_random: float = 0.1
    "Share of the selected positions replaced by a random word."
    document_length: Whole | None = None
    "N, tokens a document; infinite unless given."
    weighting: Weighting = "document"
    "Whether each document or each selected token counts the same."

    def setting(self) -> Setting:
        """The validated setting."""
        given = asdict(self)
        return Setting(num_topics=given.pop("topics"), **given)


@app.command
def value_matrix(options: SettingOptions, *, ridge: float = 0.0, json: Json = False) -> None:
    """Theorem 2: the optimal value matrix under uniform attention.

    Args:
        ridge: weight of the penalty ‖W‖²; 0 means its vanishing limit.
    """
    setting = options.setting()
    blocks = theory.value_matrix_blocks(setting, ridge)
    quantities = _rates(setting) | {
        "W, [MASK] column": blocks.mask_column,
        "W, different topic": blocks.different,
        "W, same topic": blocks.same,
        "W, diagonal": blocks.diagonal,
        "same - different": blocks.same - blocks.different,
        "least loss": theory.value_matrix_loss(setting),
    }
    checks = ["value-matrix"] + ([] if setting.document_length is None else ["finite-value-matrix"])
    _show("value matrix", setting, quantities, checks, json)


@app.command
def embedding(options: SettingOptions, *, dimension: Whole | None = None, json: Json = False) -> None:
    """Theorem 1: the optimal tied embeddings under uniform attention.

    Args:
        dimension: of the embedding; T unless given.
    """
    setting = options.setting()
    best = theory.embedding_optimum(setting, setting.num_topics if dimension is None else dimension)
    quantities = _rates(setting) | {
        "dimension": float(len(best.embedding)),
        "loss": best.loss,
        "excess": best.excess,
        "excess, free bias": best.excess_free_bias,
        "same - different": best.gap,
        "bias of a word": float(theory.embedding_bias(setting)[1]),
    }
    _show("embedding", setting, quantities, ["embedding", "low-rank-embedding"], json)


@app.command
def attention(options: SettingOptions, *, value: Value = "block", json: Json = False) -> None:
    """Theorems 3 and 4: the optimal topic-wise attention weights, and the bounds on them.

    Args:
        value: the frozen value matrix, Theorem 2's blocks or the diagonal one.
    """
    setting = options.setting()
    best = theory.topicwise_attention_optimum(setting, value)
    quantities: dict[str, float | None] = {
        "α, same topic": best.alpha,
        "β, same word": best.beta,
        "γ, topic average": best.gamma,
        "loss": best.loss,
        "lower bound": best.lower_bound,
        "upper bound": best.upper_bound,
    }
    if value == "block":
        quantities["limit of γ, T → ∞"] = theory.block_limit(setting)
    else:
        quantities["bound on α"] = best.alpha_bound
        alpha, beta = theory.diagonal_limit(setting)
        quantities |= {"limit of α, T → ∞": alpha, "limit of β, T → ∞": beta}
    _show(f"attention, {value} value matrix", setting, quantities, [f"{value}-attention"], json)


@app.command
def landscape(
    options: SettingOptions,
    *,
    value: Value = "block",
    alpha_max: float = 20.0,
    beta_max: float = 20.0,
    points: Whole = 41,
    output: Output = None,
    json: Json = False,
) -> None:
    """The exact loss over a grid of attention weights, at any document length.

    Args:
        value: the frozen value matrix, Theorem 2's blocks or the diagonal one.
        alpha_max: the grid covers α from 0 to this.
        beta_max: the grid covers β from 0 to this.
        points: of the grid, a side.
        output: a PNG to draw.
    """
    setting = options.setting()
    if points < 2 or not (alpha_max > 0 and beta_max > 0):
        raise InputError(
            "the grid is empty",
            received=f"points = {points}, alpha_max = {alpha_max}, beta_max = {beta_max}",
            expected="points >= 2, alpha_max > 0, beta_max > 0",
        )
    alphas, betas = np.linspace(0, alpha_max, points), np.linspace(0, beta_max, points)
    loss = theory.attention_landscape(setting, alphas, betas, value)
    best = theory.topicwise_attention_optimum(setting, value)
    i, j = np.unravel_index(int(loss.argmin()), loss.shape)
    quantities = {
        "least on the grid": float(loss[i, j]),
        "at α": float(alphas[i]),
        "at β": float(betas[j]),
        "optimum": best.loss,
        "optimal α": best.alpha,
        "optimal β": best.beta,
        "uniform attention": float(theory.topicwise_attention_loss(setting, 1.0, 1.0, value)),
    }
    if output is not None:
        figure = landscape_figure(
            alphas, betas, loss, optimum=(best.alpha, best.beta), title=f"{value} value matrix, {_describe(setting)}"
        )
        write_bytes(output, to_png(figure))
    grid = {"alphas": alphas.tolist(), "betas": betas.tolist(), "loss": loss.tolist()}
    _show(f"landscape, {value} value matrix", setting, quantities, [], json, output, {"grid": grid})


@app.command
def dynamics(
    options: SettingOptions,
    *,
    sigma: float = 0.01,
    attention_dimension: Whole | None = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Knowl 5 in numbers: gradients at the start, the two stages and their rates.

    Args:
        sigma: standard deviation of the initial weights.
        attention_dimension: d_a, rows of W_K and W_Q; V + 1 unless given.
        output: a PNG to draw.
    """
    setting = options.setting()
    norms = theory.initial_gradient_norms(setting, sigma)
    d_a = setting.vocabulary_size + 1 if attention_dimension is None else attention_dimension
    rates = theory.growth_rates(setting, d_a)
    block, diagonal = theory.stage_two_drift(setting), theory.stage_two_drift(setting, "diagonal")
    quantities = {
        "‖∂L/∂W_V‖ at start": norms.value,
        "‖∂L/∂W_V‖, σ → 0": norms.value_at_zero,
        "‖∂L/∂W_K‖ at start": norms.key,
        "ratio": norms.ratio,
        "2λ0, mask rate": rates.value_mask,
        "2λ1, topic rate": rates.value_topic,
        "ρ, block": rates.attention,
        "ρ, diagonal": rates.attention_diagonal,
        "2λ1/ρ": rates.separation,
        "block drift, same topic": block.same_topic,
        "block drift, different": block.different_topic,
        "diagonal drift, same word": diagonal.same_word,
        "diagonal drift, same topic": diagonal.same_topic,
        "diagonal drift, different": diagonal.different_topic,
    }
    if output is not None:
        slowest = min(rate for rate in (rates.value_mask, rates.value_topic) if rate > 0)
        growth = 1 / rates.attention if rates.attention > 0 else float("inf")
        last = max(10 / slowest, 2 * growth if np.isfinite(growth) else 0.0)
        times = np.geomspace(0.01 / max(rates.value_mask, rates.value_topic), last, 400)
        path = theory.stage_one(setting, times)
        entries = {"same topic": path.same, "different topic": path.different, "[MASK] column": path.mask_column}
        figure = stages_figure(times, entries, path.loss, growth_start=growth, title=_describe(setting))
        write_bytes(output, to_png(figure))
    _show("dynamics", setting, quantities, ["stage-one", "stage-two"], json, output)


@app.command
def bayes(options: SettingOptions, *, json: Json = False) -> None:
    """What any model can reach at best, and how far each stage of the model comes."""
    setting = options.setting()
    quantities = {
        "uniform attention": theory.value_matrix_loss(setting),
        "block attention": theory.topicwise_attention_optimum(setting, "block").loss,
        "diagonal attention": theory.topicwise_attention_optimum(setting, "diagonal").loss,
        "Bayes": theory.bayes_loss(setting),
        "cross-entropy infimum, uniform attention": float(
            np.log(setting.topics_per_document * setting.words_per_topic)
        ),
        "Bayes cross-entropy": theory.bayes_loss(setting, "cross_entropy"),
    }
    _show("Bayes", setting, quantities, ["bayes"], json)


def _rates(setting: Setting) -> dict[str, float | None]:
    return {"a": setting.a, "r": setting.r, "m": setting.m, "κ": setting.kappa}


def _describe(setting: Setting) -> str:
    length = "∞" if setting.document_length is None else f"{setting.document_length} ({setting.weighting})"
    return (
        f"T={setting.num_topics} v={setting.words_per_topic} τ={setting.topics_per_document} "
        f"p=({setting.p_mask:g}, {setting.p_correct:g}, {setting.p_random:g}) N={length}"
    )


def _check(name: str, setting: Setting) -> dict[str, Any]:
    """One theorem measured, or only its assumptions read where the matrix would be too large."""
    theorem = _THEOREMS[name]
    small = setting.vocabulary_size <= _LARGEST_MEASURED or theorem.kind not in _MATRIX_KINDS
    if small:
        report = theorem.check(setting)
        broken, status, deviation = report.violated_assumptions, report.status, report.deviation
    else:
        unmeasured = replace(theorem, deviation=lambda _: float("nan")).check(setting)
        broken, deviation = unmeasured.violated_assumptions, float("nan")
        status = f"not measured: more than {_LARGEST_MEASURED} words"
        status += f" (violated: {'; '.join(broken)})" if broken else ""
    return {
        "theorem": name,
        "reference": theorem.reference,
        "status": status,
        "violated_assumptions": list(broken),
        "deviation": deviation,
        "tolerance": theorem.tolerance,
    }


def _show(
    what: str,
    setting: Setting,
    quantities: Mapping[str, float | None],
    checks: Sequence[str],
    as_json: bool,
    output: Path | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """The quantities and the checks, as one JSON document or as tables."""
    measured = [_check(name, setting) for name in checks]
    if as_json:
        document = {"setting": setting.as_dict(), "quantities": dict(quantities), "checks": measured}
        print_json(document | dict(extra or {}) | ({} if output is None else {"output": str(output)}))
        return
    rows = [(name, None if x is None else f"{x:.10g}") for name, x in quantities.items()]
    print_lines([f"{what}: {_describe(setting)}"])
    print_table("", ("quantity", "value"), rows)
    if measured:
        print_table(
            "", ("statement", "reference", "status"), [(c["theorem"], c["reference"], c["status"]) for c in measured]
        )
    if output is not None:
        print_lines([f"drawn: {output}"])
