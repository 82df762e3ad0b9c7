"""Figures drawn from rows alone: effects on one axis, shares of variance, and the table of pretrained models."""

import re

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topicscope.report.forest import MEASURED, PAPER, PAPER_STYLE, WIDTH, forest_figure, plain, whisker
from topicscope.report.reproduction_record import ReproductionRecord, Row

# Okabe-Ito colours with hatches, so that no meaning hangs on colour alone.
_FILLS = (
    ("#0072B2", ""),
    ("#E69F00", "////"),
    ("#009E73", "...."),
    ("#CC79A7", "xxxx"),
    ("#999999", "----"),
    ("#56B4E9", "++++"),
)
_SHARE = re.compile(
    r"(R² of [^,]+(?:, (?:word pairs|positions|mean over each topic's keys))?|share of the rest [^,]+), (.+)"
)
_MARKERS = ("o", "s", "^", "D", "v")


def log_ratio_figure(record: ReproductionRecord, claim: str) -> Figure:
    """Logarithms of attention ratios on one axis, with 0 for no preference; then the held-out losses."""
    rows = record.claims[claim]["rows"]
    ordered = sorted(rows, key=lambda row: not row["quantity"].startswith("log("))
    title = "log(same topic / different topic), 0 = no preference; below, held-out loss beside its least value"
    return forest_figure(
        ordered, title=title, group=lambda row: row["quantity"].startswith("log("), references={True: 0.0}
    )


def coefficients_figure(record: ReproductionRecord, claim: str) -> Figure:
    """Partial effects: one axis for each quantity that was regressed, with 0 for no effect."""
    rows = [row for row in record.claims[claim]["rows"] if "shuffled topics" not in row["quantity"]]
    kinds = list(dict.fromkeys(map(_kind, rows)))
    ordered = sorted(rows, key=lambda row: kinds.index(_kind(row)))
    return forest_figure(ordered, title="Partial effects, 0 = none", group=_kind, references=dict.fromkeys(kinds, 0.0))


def _kind(row: Row) -> str:
    """ "log attention, MiniLM on Wikipedia: same-topic, …" -> "log attention"."""
    return str(row["quantity"]).partition(":")[0].partition(",")[0]


def ambiguous_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """Ambiguous words: attention ratios, log ratios, cosines and W_V on an axis each; other rows are in the table."""
    rows = [row for row in record.claims[claim]["rows"] if _beginning(row) is not None]
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: list(_AMBIGUOUS).index(_beginning(row) or ""))
    title = "Words that share a topic against words that do not; dashed: no difference"
    return forest_figure(ordered, title=title, group=_beginning, references=_AMBIGUOUS)


# How a quantity begins, and the value that says "no difference".
_AMBIGUOUS = {"attention same / different": 1.0, "log ratio of attention": 0.0, "cosine": 0.0, "mean W_V": 0.0}


def _beginning(row: Row) -> str | None:
    return next((name for name in _AMBIGUOUS if row["quantity"].startswith(name)), None)


def variance_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """R² as bars, a group for each model and step; rows that are no shares are left to the table."""
    groups: dict[str, list[tuple[str, Row]]] = {}
    for row in record.claims[claim]["rows"]:
        found = _SHARE.fullmatch(row["quantity"])
        if found and row["measured"] is not None:
            groups.setdefault(found[2], []).append((found[1], row))
    if not groups:
        return None
    kinds = list(dict.fromkeys(kind for bars in groups.values() for kind, _ in bars))
    count = sum(map(len, groups.values())) + len(groups)
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 1.2 + 0.13 * count), layout="constrained")
        axes = figure.subplots()
        place, ticks, drawn = 0.0, [], set()
        for bars in groups.values():
            ticks.append(place + (len(bars) - 1) / 2)
            for kind, row in bars:
                color, hatch = _FILLS[kinds.index(kind) % len(_FILLS)]
                label = None if kind in drawn else kind
                drawn.add(kind)
                axes.barh(place, row["measured"], 0.9, color=color, hatch=hatch, edgecolor="white", label=label)
                half = row["error"] or 0.0
                axes.errorbar(row["measured"], place, xerr=half, fmt="none", ecolor="#1a1a1a", capsize=2, lw=1)
                place += 1
            place += 1
        axes.set_yticks(ticks, [plain(how) for how in groups])
        axes.set(ylim=(place - 1, -1), xlabel="share of attention's variance within queries")
        axes.axvline(0, color="#555555", lw=0.8)
        axes.grid(axis="x", color="#e3e3e3", lw=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=7)
        figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=6.5)
    return figure


# How a quantity begins, the panel's title, and the value of no difference. Dot products, whose size is each model's
# own, are left to the table.
_COLUMNS = (
    ("attention", "attention, same / different", 1.0),
    ("cosine of embeddings, S/D", "cosine, same / different", 1.0),
    ("cosine of embeddings, same - different", "cosine, same − different", 0.0),
)


def models_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """Knowl 7's measures: a line for each model, a marker for each threshold, random weights and the paper beside."""
    rows = [row for row in record.claims[claim]["rows"] if "model" in row and row.get("threshold") is not None]
    models = list(dict.fromkeys(row["model"] for row in rows))
    thresholds = sorted({float(row["threshold"]) for row in rows})
    if not models:
        return None
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 1.0 + 0.42 * len(models)), layout="constrained")
        panels = figure.subplots(1, len(_COLUMNS), sharey=True)
        for axes, (name, title, nothing) in zip(panels, _COLUMNS, strict=True):
            axes.axvline(nothing, color="#555555", lw=0.8, ls="--")
            for row in rows:
                if row["quantity"].partition(": ")[2].startswith(name):
                    _draw_model(axes, row, models.index(row["model"]), thresholds)
            axes.set_title(title, fontsize=8, loc="left")
            axes.set_yticks(range(len(models)), [plain(model) for model in models], fontsize=7)
            axes.set_ylim(len(models) - 0.5, -0.5)
            axes.grid(axis="x", color="#e3e3e3", lw=0.5)
            axes.tick_params(axis="y", length=0)
            axes.spines[["top", "right", "left"]].set_visible(False)
        _model_legend(figure, thresholds)
    return figure


def _draw_model(axes: Axes, row: Row, place: int, thresholds: list[float]) -> None:
    number = thresholds.index(float(row["threshold"]))
    y = place + (number - (len(thresholds) - 1) / 2) * 0.22
    marker = _MARKERS[number % len(_MARKERS)]
    if row["measured"] is not None:
        random = row["quantity"].endswith("random weights")
        error = row["error"] or 0.0
        color = "#999999" if random else MEASURED
        whisker(axes, row["measured"], y, across=(error, error), marker=marker, color=color, size=4.0)
    if row["paper"] is not None:
        axes.plot(row["paper"], y, "*", color=PAPER, ms=6)


def _model_legend(figure: Figure, thresholds: list[float]) -> None:
    axes = figure.axes[0]
    handles = [
        axes.plot([], [], _MARKERS[number % len(_MARKERS)], color=MEASURED, ms=4, label=f"measured, θ = {theta:g}")[0]
        for number, theta in enumerate(thresholds)
    ]
    handles.append(axes.plot([], [], "o", color="#999999", ms=4, label="random weights")[0])
    handles.append(axes.plot([], [], "*", color=PAPER, ms=6, label="paper")[0])
    figure.legend(handles=handles, loc="outside lower left", ncols=5, frameon=False, fontsize=7)
