"""One figure a claim, drawn from a folder of `topicscope reproduce` alone; nothing is trained or computed anew.

A claim with a figure of its own has an entry in `FIGURES`; any other claim gets the forest of its rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topicscope.records import RunRecord
from topicscope.report import labels
from topicscope.report.forest import draw_rows, forest_figure, whisker
from topicscope.report.labels import MEASURED, PAIRS, PAPER, RANDOM, THEORY
from topicscope.report.reproduction_record import Entry, ReproductionRecord, Row, training_words
from topicscope.report.style import (
    LINES,
    REFERENCE,
    block_map,
    brackets,
    name_rows,
    paper_figure,
    plain,
    shared_legend,
    tidy,
)
from topicscope.report.theory_figures import draw_landscape, mark_optimum
from topicscope.report.training_figures import band, draw_norms

Item = TypeVar("Item")
Drawing = Callable[[ReproductionRecord, str], Figure | None]
"""(record, claim id) -> a figure, or None where the folder lacks what it would show."""


def claim_figure(record: ReproductionRecord, claim: str) -> Figure:
    """The figure of a finished claim."""
    figure = FIGURES[claim][0](record, claim) if claim in FIGURES else None
    return figure or forest_figure(record.claims[claim]["rows"], title=record.about(claim).get("title", claim))


def figure_text(claim: str) -> str:
    """What the figure shows, for those who cannot see it; its numbers stand in the claim's table."""
    return FIGURES[claim][1] if claim in FIGURES else _FOREST


def _filled(panels: Iterable[Axes], items: Iterable[Item]) -> Iterator[tuple[Axes, Item]]:
    """Every item with its panel; panels that are left over stay empty."""
    for axes, item in zip_longest(panels, items):
        if item is None:
            axes.set_axis_off()
        else:
            yield axes, item


def _title_of(entry: Entry, run: RunRecord) -> str:
    return f"{entry['recipe']}: {training_words(run)}"


# ---- curves of training runs

# Shorter runs were made for the first gradients and for stage one alone.
_SHORTEST = 100


def stages_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """‖W_V‖, ‖W_K‖ and ‖W_Q‖ over steps for every run that was long enough to show stages."""
    runs = [
        (entry, run)
        for entry, run in record.runs(claim)
        if run.summary["steps"] >= _SHORTEST and not (entry["recipe"].endswith("population") and entry["overrides"])
    ]
    if not runs:
        return None
    columns = min(2, len(runs))
    lines = -(-len(runs) // columns)
    with paper_figure(None, 0.4 + 2.2 * lines) as figure:
        for axes, (entry, run) in _filled(figure.subplots(lines, columns, squeeze=False).ravel(), runs):
            draw_norms(axes, run, ("W_V", "W_K", "W_Q"))
            axes.set_title(_title_of(entry, run), fontsize=7.5)
        shared_legend(figure, 5)
    return figure


_SOURCES = (("measured", "error", -0.12, MEASURED, "o"), ("paper", "paper_error", 0.12, PAPER, "*"))


def classes_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """Attention by class: our mean beside the paper's, then the run's way there."""
    # Rows are called "same word, block W_V, step 500".
    groups: dict[str, dict[str, Row]] = {}
    names = {name.replace("_", " "): name for name in PAIRS}
    for row in record.claims[claim]["rows"]:
        quantity, _, how = row["quantity"].partition(", ")
        if quantity in names and how:
            groups.setdefault(how, {})[names[quantity]] = row
    runs = record.runs(claim)
    if not groups or not runs:
        return None
    with paper_figure(None, 4.4) as figure:
        upper, lower = figure.subplots(2, max(len(groups), len(runs)), squeeze=False)
        for axes, (how, rows) in _filled(upper, groups.items()):
            # Measured and printed means as points, since bars need a zero to stand on, which a logarithm has not.
            for number, name in enumerate(PAIRS):
                row = rows.get(name, {})
                for source, error, shift, color, marker in _SOURCES:
                    if row.get(source) is not None:
                        x, half = number + shift, row.get(error) or 0.0
                        whisker(axes, x, row[source], upright=half, marker=marker, color=color, label=source)
            axes.set(yscale="log", xlim=(-0.5, len(PAIRS) - 0.5), ylabel="mean attention")
            axes.set_xticks(range(len(PAIRS)), [label.replace(" ", "\n") for label in PAIRS.values()])
            axes.set_title(how, fontsize=7.5)
            tidy(axes)
        for axes, (entry, run) in _filled(lower, runs):
            for number, (name, label) in enumerate(PAIRS.items()):
                band(axes, run.history, f"attention_{name}", label, number)
            axes.set_title(_title_of(entry, run), fontsize=7.5)
            axes.set(xlabel="step", ylabel="mean attention", yscale="log")
            tidy(axes)
        shared_legend(figure, 5)
    return figure


# ---- trained matrices, and the loss over attention weights


def value_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """W_V of each run as a heat map, and how far the entry means lie from theory."""
    runs = record.runs(claim)
    if not runs:
        return None
    lines = -(-len(runs) // 3)
    with paper_figure(None, 2.3 * lines + 2.3) as figure:
        upper, lower = np.asarray(figure.subfigures(2, 1, height_ratios=[2.3 * lines, 2.3]))
        for axes, (entry, run) in _filled(upper.subplots(lines, 3, squeeze=False).ravel(), runs):
            _words_map(axes, run.weights["W_V"][0], run, _value_title(entry, run))
        _deviations(lower.subplots(), record.claims[claim]["rows"])
    return figure


def _value_title(entry: Entry, run: RunRecord) -> str:
    training, data = run.config["training"], run.config["data"]
    ridge = (training.get("ridge") or {}).get("W_V")
    length = None if data["source"] == "population" else data["length"]
    words = (
        "N = ∞" if length is None else f"N = {length:,}" if isinstance(length, int) else f"N = {length[0]}-{length[1]}"
    )
    return "\n".join([entry["recipe"], training_words(run), f"{words}, {f'L2 {ridge:g}' if ridge else 'no L2'}"])


def _words_map(axes: Axes, matrix: np.ndarray, run: RunRecord, title: str) -> None:
    """A matrix over tokens, [MASK] first, with its topics."""
    T, v = run.config["data"]["num_topics"], run.config["data"]["words_per_topic"]
    tokens = 1 + T * v
    topic = np.repeat(np.arange(-1, T), [1, *[v] * T])
    block_map(axes, matrix[:tokens, :tokens], brackets(topic, np.arange(tokens + 1)))
    axes.set_title(title, fontsize=6.5, pad=14)


def _deviations(axes: Axes, rows: Sequence[Row]) -> None:
    """(measured - theory) / |theory| in per cent, of rows that have both."""
    compared = [row for row in rows if row["criterion"] and row.get("theory") and row["measured"] is not None]
    scaled = []
    for row in compared:
        unit = abs(row["theory"]) / 100
        away, error = (row["measured"] - row["theory"]) / unit, (row["error"] or 0.0) / unit
        scaled.append(dict(row) | {"measured": away, "error": error, "theory": 0.0, "paper": None})
    draw_rows(axes, scaled)
    axes.set_xlabel("deviation of the mean entry from theory, %, with its 95% CI", fontsize=7)


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
    with paper_figure(None, 1.75 * len(rows)) as figure:
        figure.set_figwidth(max(columns, 3) * figure.get_figwidth() / 4)
        for line, found in zip(figure.subplots(len(rows), columns, squeeze=False), rows.values(), strict=True):
            for axes, (_, title, run) in _filled(line, sorted(found, key=lambda item: item[0])):
                W_E = run.weights["W_E"][0].astype(np.float64)
                gram = W_E.T @ W_E
                _words_map(axes, gram / np.diag(gram)[1:].mean(), run, title)
    return figure


def landscape_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """The loss over (α, β): both value matrices, infinite and finite documents, one row for each T, v and τ."""
    # A row for each T, v and τ; in it the block matrix before the diagonal one, N = ∞ before N = 100.
    lines: dict[str, list[tuple[Entry, dict[str, np.ndarray]]]] = {}
    for entry, arrays in record.arrays(claim):
        shape = entry["title"].partition(", ")[2].rpartition(" N=")[0]
        lines.setdefault(shape, []).append((entry, arrays))
    if not lines:
        return None
    with paper_figure(None, 1.75 * len(lines)) as figure:
        panels = figure.subplots(len(lines), max(map(len, lines.values())), squeeze=False)
        for line, found in zip(panels, lines.values(), strict=True):
            for axes, (entry, arrays) in _filled(line, sorted(found, key=lambda item: item[0]["value"])):
                _contours(axes, entry, arrays)
            line[0].set_ylabel("α, same topic", fontsize=7)
        for axes in panels[-1]:
            axes.set_xlabel("β, same word", fontsize=7)
    return figure


def _contours(axes: Axes, entry: Entry, arrays: dict[str, np.ndarray]) -> None:
    alphas, betas = arrays["alpha"], arrays["beta"]
    draw_landscape(axes, alphas, betas, arrays["loss"])
    best, v = entry["optimum"], entry["words_per_topic"]
    if entry["value"] == "block" and entry["title"].endswith("N=∞"):  # finite documents have no ridge
        along = np.linspace(0, betas[-1], 50)
        axes.plot(along, (best["gamma"] * v - along) / (v - 1), "--", color="white", lw=1.0)
    mark_optimum(axes, best["alpha"], best["beta"])
    axes.set(xlim=(betas[0], betas[-1]), ylim=(alphas[0], alphas[-1]))
    axes.set_title(entry["title"].replace(" W_V, ", "\n"), fontsize=6.5)
    axes.tick_params(labelsize=6, length=2)
    axes.locator_params(nbins=4)


# ---- effects and shares, from rows alone


def log_ratio_figure(record: ReproductionRecord, claim: str) -> Figure:
    """Logarithms of attention ratios on one axis, with 0 for no preference; then the held-out losses."""

    def is_log(row: Row) -> bool:
        return str(row["quantity"]).startswith("log(")

    ordered = sorted(record.claims[claim]["rows"], key=lambda row: not is_log(row))
    title = "log(same topic / different topic), 0 = no preference; below, held-out loss beside its least value"
    return forest_figure(ordered, title=title, group=is_log, references={True: 0.0})


def coefficients_figure(record: ReproductionRecord, claim: str) -> Figure:
    """Partial effects: one axis for each quantity that was regressed, with 0 for no effect."""

    def kind(row: Row) -> str:  # "log attention, MiniLM on Wikipedia: same-topic, …" -> "log attention"
        return str(row["quantity"]).partition(":")[0].partition(",")[0]

    rows = [row for row in record.claims[claim]["rows"] if "shuffled topics" not in row["quantity"]]
    kinds = list(dict.fromkeys(map(kind, rows)))
    ordered = sorted(rows, key=lambda row: kinds.index(kind(row)))
    return forest_figure(ordered, title="Partial effects, 0 = none", group=kind, references=dict.fromkeys(kinds, 0.0))


# How a quantity begins, and the value that says "no difference".
_AMBIGUOUS = {"attention same / different": 1.0, "log ratio of attention": 0.0, "cosine": 0.0, "mean W_V": 0.0}


def ambiguous_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """Ambiguous words: attention ratios, log ratios, cosines and W_V on an axis each; other rows are in the table."""

    def beginning(row: Row) -> str:
        return next((name for name in _AMBIGUOUS if row["quantity"].startswith(name)), "")

    rows = [row for row in record.claims[claim]["rows"] if beginning(row)]
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: list(_AMBIGUOUS).index(beginning(row)))
    title = "Words that share a topic against words that do not; dashed: no difference"
    return forest_figure(ordered, title=title, group=beginning, references=_AMBIGUOUS)


_SHARE = re.compile(
    r"(R² of [^,]+(?:, (?:word pairs|positions|mean over each topic's keys))?|share of the rest [^,]+), (.+)"
)


def variance_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """R² of every kind as points, a line for each model and step; rows that are no shares are left to the table."""
    lines: dict[str, list[tuple[str, Row]]] = {}
    for row in record.claims[claim]["rows"]:
        found = _SHARE.fullmatch(row["quantity"])
        if found and row["measured"] is not None:
            lines.setdefault(found[2], []).append((found[1], row))
    if not lines:
        return None
    kinds = list(dict.fromkeys(kind for points in lines.values() for kind, _ in points))
    with paper_figure(None, 1.0 + 0.4 * len(lines)) as figure:
        axes = figure.subplots()
        for place, points in enumerate(lines.values()):
            for kind, row in points:
                number, error = kinds.index(kind), row["error"] or 0.0
                y = place + ((number + 0.5) / len(kinds) - 0.5) * 0.7
                color, _, marker = LINES[number % len(LINES)]
                whisker(
                    axes, row["measured"], y, across=(error, error), marker=marker, color=color, size=4.0, label=kind
                )
        axes.axvline(0, **REFERENCE | {"ls": "-"})
        axes.set_xlabel("share of attention's variance within queries")
        name_rows(axes, [plain(how) for how in lines], size=7.0)
        shared_legend(figure, 2, fontsize=6.5)
    return figure


# How a quantity begins, the panel's title, and the value of no difference. Dot products, whose size is each model's
# own, are left to the table.
_COLUMNS = (
    ("attention", "attention, same / different", 1.0),
    ("cosine of embeddings, S/D", "cosine, same / different", 1.0),
    ("cosine of embeddings, same - different", "cosine, same − different", 0.0),
)
_MARKERS = ("o", "s", "^", "D", "v")


def models_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """The paper's table: a line for each model, a marker for each threshold, random weights and the paper beside."""
    rows = [row for row in record.claims[claim]["rows"] if "model" in row and row.get("threshold") is not None]
    models = list(dict.fromkeys(row["model"] for row in rows))
    thresholds = sorted({float(row["threshold"]) for row in rows})
    if not models:
        return None
    with paper_figure(None, 1.0 + 0.42 * len(models)) as figure:
        panels = figure.subplots(1, len(_COLUMNS), sharey=True)
        for axes, (name, title, nothing) in zip(panels, _COLUMNS, strict=True):
            axes.axvline(nothing, **REFERENCE)
            for row in rows:
                if row["quantity"].partition(": ")[2].startswith(name):
                    _draw_model(axes, row, models.index(row["model"]), thresholds)
            axes.set_title(title)
            name_rows(axes, [plain(model) for model in models], size=7.0)
        shared_legend(figure, 5, fontsize=7)
    return figure


def _draw_model(axes: Axes, row: Row, place: int, thresholds: list[float]) -> None:
    number = thresholds.index(float(row["threshold"]))
    y = place + (number - (len(thresholds) - 1) / 2) * 0.22
    if row["measured"] is not None:
        error, marker = row["error"] or 0.0, _MARKERS[number % len(_MARKERS)]
        color, label = MEASURED, f"measured, θ = {thresholds[number]:g}"
        if row["quantity"].endswith(labels.CONTROL):
            color, label = RANDOM, labels.CONTROL
        whisker(axes, row["measured"], y, across=(error, error), marker=marker, color=color, size=4.0, label=label)
    if row["paper"] is not None:
        axes.plot(row["paper"], y, "*", color=PAPER, ms=6, label="paper")


_SIDES = (("inside", "inside its assumptions", MEASURED, "o"), ("outside", "outside", THEORY, "s"))


def settings_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """The share of random settings in which each theorem holds, inside and outside its assumptions."""
    theorems: dict[str, dict[str, Row]] = {}
    for row in record.claims[claim]["rows"]:
        name, found, rest = row["quantity"].partition(": share that holds ")
        if found:
            theorems.setdefault(name, {})[rest.split()[0]] = row
    if not theorems:
        return None
    with paper_figure(None, 0.9 + 0.45 * len(theorems)) as figure:
        axes = figure.subplots()
        for place, rows in enumerate(theorems.values()):
            for shift, (side, label, color, marker) in zip((-0.15, 0.15), _SIDES, strict=True):
                row = rows.get(side)
                if row is None:
                    continue
                share = row["measured"]
                down = share - row.get("lowest_share", share)
                whisker(axes, share, place + shift, across=(down, 0.0), marker=marker, color=color, label=label)
                text = f"{share:.1%} of {row['settings']}"
                axes.annotate(text, (share, place + shift), (8, 0), textcoords="offset points", va="center", fontsize=7)
        axes.set_xlim(0, 1.22)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("share of random settings in which the theorem holds")
        name_rows(axes, list(theorems))
        shared_legend(figure, 2)
    return figure


_FOREST = (
    "Every row of the table as a point with its 95% CI; a diamond is theory, a star the paper, a cross a value "
    "whose criterion is not met."
)
_CLASSES = (
    "Mean attention by class of word pair at the end, with 95% CIs, beside the paper's numbers; below, along training."
)
FIGURES: Mapping[str, tuple[Drawing, str]] = {
    "theory-holds": (
        settings_figure,
        "For each theorem the share of random settings in which it holds, inside and outside its assumptions; the line "
        "below a dot reaches to the lower 97.5 % limit of the share.",
    ),
    "value-block": (
        value_figure,
        "Heat maps of the trained value matrix of the first seed, topics between the ticks: orange positive, purple "
        "negative. Below: deviation of the entry means from theory with 95% CIs.",
    ),
    "embedding-block": (
        gram_figure,
        "Heat maps of the embeddings' Gram matrix of the first seed in units of its mean diagonal entry, by loss, "
        "optimiser and learning rate. Blocks along the diagonal are topics.",
    ),
    "two-stage": (
        stages_figure,
        "Norms of the value, key and query matrices over steps, both axes logarithmic, step 0 at the left; the band "
        "spans the seeds. Vertical lines: end of stage one (dotted) and begin of stage two (dashed), means over seeds.",
    ),
    "attention-block": (classes_figure, _CLASSES),
    "attention-diagonal": (classes_figure, _CLASSES),
    "landscape": (
        landscape_figure,
        "Contours of the loss over the attention weights α (same topic) and β (same word), dark is low; the star is "
        "the exact optimum, the dashed line the ridge of equal average weight inside a topic.",
    ),
    "joint-training": (log_ratio_figure, _FOREST),
    "pretrained-table": (
        models_figure,
        "For each model and threshold the ratios of attention and of embedding cosines, and the difference of cosines, "
        "with 95% CIs; grey: random weights; star: the paper. Models that were not run have the star alone.",
    ),
    "ambiguous-words": (ambiguous_figure, _FOREST),
    "co-occurrence": (coefficients_figure, _FOREST),
    "topicwise-assumption": (
        variance_figure,
        "The share of attention's variance within queries that the classes of word pairs explain, for each model and "
        "step, with 95% CIs, beside shuffled classes.",
    ),
}
"""What draws a claim, and what its figure shows for those who cannot see it."""
