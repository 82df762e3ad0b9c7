"""Heat maps of trained matrices and contours of the attention loss, from saved runs and kept arrays."""

from collections.abc import Sequence
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from topicscope.records import RunRecord
from topicscope.report.forest import PAPER_STYLE, WIDTH, draw_rows
from topicscope.report.reproduction_record import Entry, ReproductionRecord, Row, training_words

_DIVERGING = "PuOr_r"


def value_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """W_V of each run as a heat map, and how far the entry means lie from theory."""
    runs = record.runs(claim)
    if not runs:
        return None
    columns = 3
    lines = -(-len(runs) // columns)
    rows = record.claims[claim]["rows"]
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 2.3 * lines + 2.3), layout="constrained")
        upper, lower = np.asarray(figure.subfigures(2, 1, height_ratios=[2.3 * lines, 2.3]))
        panels = upper.subplots(lines, columns, squeeze=False).ravel()
        for axes in panels[len(runs) :]:
            axes.set_axis_off()
        for axes, (entry, run) in zip(panels, runs, strict=False):
            heat_map(axes, run.weights["W_V"][0], run, title=_value_title(entry, run))
        _deviations(lower.subplots(), rows)
    return figure


def _value_title(entry: Entry, run: RunRecord) -> str:
    training, data = run.config["training"], run.config["data"]
    ridge = (training.get("ridge") or {}).get("W_V")
    length = None if data["source"] == "population" else data["length"]
    words = (
        "N = ∞" if length is None else f"N = {length:,}" if isinstance(length, int) else f"N = {length[0]}-{length[1]}"
    )
    return "\n".join([entry["recipe"], training_words(run), f"{words}, {f'L2 {ridge:g}' if ridge else 'no L2'}"])


def _deviations(axes: Axes, rows: Sequence[Row]) -> None:
    """(measured - theory) / |theory| in per cent, of rows that have both."""
    compared = [row for row in rows if row["criterion"] and row.get("theory") and row["measured"] is not None]
    scaled = [
        dict(row)
        | {
            "measured": 100 * (row["measured"] - row["theory"]) / abs(row["theory"]),
            "error": 100 * (row["error"] or 0.0) / abs(row["theory"]),
            "theory": 0.0,
            "paper": None,
        }
        for row in compared
    ]
    draw_rows(axes, scaled, [row["quantity"] for row in compared])
    axes.set_xlabel("deviation of the mean entry from theory, %, with its 95% CI", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)


def gram_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """W_Eᵀ W_E in units of its mean diagonal: Theorem 1's own setting, then a row for each loss and optimiser."""
    rows: dict[str, list[tuple[float, str, RunRecord]]] = {}
    for _, run in record.runs(claim):
        training = run.config["training"]
        theorem = (run.config.get("arrays") or {}).get("b_pred") == "theorem-1"
        line = "Theorem 1, squared, N = ∞" if theorem else f"{training['loss']}, {training['optimizer']}"
        title = f"{training_words(run)}, step {run.summary['steps']}"
        title = title.replace(", ", ", N = ∞\n" if theorem else "\n", 1)
        rows.setdefault(line, []).append((training["learning_rate"], title, run))
    if not rows:
        return None
    columns = max(map(len, rows.values()))
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(max(columns, 3) * WIDTH / 4, 1.75 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), columns, squeeze=False)
        for line, found in zip(panels, rows.values(), strict=True):
            for axes in line[len(found) :]:
                axes.set_axis_off()
            for axes, (_, title, run) in zip(line, sorted(found, key=lambda item: item[0]), strict=False):
                W_E = run.weights["W_E"][0].astype(np.float64)
                gram = W_E.T @ W_E
                heat_map(axes, gram / np.diag(gram)[1:].mean(), run, title=title)
    return figure


def heat_map(axes: Axes, matrix: np.ndarray, run: RunRecord, *, title: str) -> None:
    """A matrix over tokens, [MASK] first; colours symmetric about 0, saturating at the 98th percentile of |entry|.

    The percentile keeps a strong diagonal from hiding the blocks; the colour bar has arrows where entries lie beyond.
    """
    T, v = run.config["data"]["num_topics"], run.config["data"]["words_per_topic"]
    words = matrix[: 1 + T * v, : 1 + T * v]
    off = words[~np.eye(len(words), dtype=bool)]
    limit = max(float(np.quantile(np.abs(off), 0.98)), 1e-12)
    image = axes.imshow(words, cmap=_DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest", rasterized=True)
    edges = np.arange(T + 1) * v + 0.5
    axes.set_xticks(edges, [])
    axes.set_yticks(edges, [])
    axes.tick_params(length=2, width=0.5)
    above, below = bool((words > limit).any()), bool((words < -limit).any())
    extend: Literal["both", "max", "min", "neither"] = (
        "both" if above and below else "max" if above else "min" if below else "neither"
    )
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)), extend=extend)
    bar.set_ticks([-limit, 0.0, limit], labels=[f"{-limit:.2g}", "0", f"{limit:.2g}"])
    bar.ax.tick_params(labelsize=6, length=2)
    axes.set_title(title, fontsize=6.5, loc="left")


def landscape_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """The loss over (α, β): both value matrices, infinite and finite documents, one row for each T, v and τ."""
    kept = record.arrays(claim)
    if not kept:
        return None
    # A row for each T, v and τ; in it the block matrix before the diagonal one, N = ∞ before N = 100.
    lines: dict[str, list[tuple[Entry, dict[str, np.ndarray]]]] = {}
    for entry, arrays in kept:
        shape = entry["title"].partition(", ")[2].rpartition(" N=")[0]
        lines.setdefault(shape, []).append((entry, arrays))
    columns = max(map(len, lines.values()))
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 1.75 * len(lines)), layout="constrained")
        panels = figure.subplots(len(lines), columns, squeeze=False)
        for line, found in zip(panels, lines.values(), strict=True):
            for axes in line[len(found) :]:
                axes.set_axis_off()
            for axes, (entry, arrays) in zip(line, sorted(found, key=lambda item: item[0]["value"]), strict=False):
                _contours(axes, entry, arrays)
            line[0].set_ylabel("α, same topic", fontsize=7)
        for axes in panels[-1]:
            axes.set_xlabel("β, same word", fontsize=7)
    return figure


def _contours(axes: Axes, entry: Entry, arrays: dict[str, np.ndarray]) -> None:
    alphas, betas, loss = arrays["alpha"], arrays["beta"], arrays["loss"]
    low, high = float(loss.min()), float(loss.max())
    # Levels crowd near the minimum: a landscape is flat there and steep at its edge.
    levels = low + max(high - low, 1e-12) * np.linspace(0, 1, 22) ** 2.5
    filled = axes.contourf(betas, alphas, loss, levels=levels, cmap="viridis", norm=BoundaryNorm(levels.tolist(), 256))
    filled.set_rasterized(True)
    best, v = entry["optimum"], entry["words_per_topic"]
    if entry["value"] == "block" and entry["title"].endswith("N=∞"):  # finite documents have no ridge
        along = np.linspace(0, betas[-1], 50)
        ridge = (best["gamma"] * v - along) / (v - 1)
        axes.plot(along, ridge, "--", color="white", lw=1.0)
    axes.plot(best["beta"], best["alpha"], "*", color="#D55E00", ms=9, mec="white", mew=0.7, clip_on=False, zorder=4)
    axes.set(xlim=(betas[0], betas[-1]), ylim=(alphas[0], alphas[-1]))
    axes.set_title(entry["title"].replace(" W_V, ", "\n"), fontsize=6.5, loc="left")
    axes.tick_params(labelsize=6, length=2)
    axes.locator_params(nbins=4)
