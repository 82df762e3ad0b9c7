"""Figures of a probe beside its head map, each with the numbers it shows; plain tables in, no model."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from topicscope.errors import InputError
from topicscope.records import select
from topicscope.report.heatmaps import block_map, brackets, matrix_cells, spread
from topicscope.report.labels import CONTROL, GREY, PAIRS, PAPER, PROFILE, RANDOM, RANDOM_MEAN, RATIOS
from topicscope.report.style import (
    LINES,
    REFERENCE,
    Columns,
    Drawn,
    PaperFigure,
    name_rows,
    paper_figure,
    shared_legend,
    show_values,
    tidy,
)
from topicscope.report.tables import ratio_column, threshold_label

SHARES = [name for name in PROFILE if name not in ("entropy", "distance")]


def ratio_figure(table: pd.DataFrame, *, columns: Columns | None = None) -> PaperFigure:
    """Attention ratios by threshold with 95% CIs, the random-weights band and the paper's BERT row.

    table: `ProbeResult.table()`; one panel per part with measured rows. Intervals hold the spread over documents and
    over topic seeds. Band: 95% CI of the mean over random initialisations (causal parts: of the
    position-corrected ratio). The paper's BERT is drawn in encoder panels at thresholds that were measured too.

    Raises:
        InputError: no measured row.
    """
    measured = table[table["source"] == "measured"]
    if measured.empty:
        raise InputError("no measured rows to draw", received=f"{len(table)} rows", expected='source "measured"')
    parts = list(dict.fromkeys(measured["part"]))
    paper = table[(table["source"] == "paper") & (table["model"] == "BERT")]
    with paper_figure(columns, 3.6 if columns is None else 3.0, max(6.4, 3.4 * len(parts))) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(parts), sharey=True))
        for axes, part in zip(panels, parts, strict=True):
            rows = measured[measured["part"] == part]
            _draw_ratios(axes, rows, paper if part == "encoder" else paper.iloc[:0])
            axes.set_title(part, loc="center")
            if bool(rows["threshold"].notna().any()):
                room = figure.get_figwidth() / len(parts) > 3  # inches
                axes.set_xlabel("threshold θ" + (" (share of the vocabulary kept per topic)" if room else ""))
        panels[0].set_ylabel("same-topic / different-topic attention")
        shared_legend(figure, 2 if columns == "single" else 3)
    return figure


def _draw_ratios(axes: Axes, rows: pd.DataFrame, paper: pd.DataFrame) -> None:
    shown = [(name, ratio) for name, ratio in RATIOS.items() if name in rows and bool(rows[name].notna().any())]
    control = f"control_{ratio_column(rows)}"
    labels = [threshold_label(float(t)) for t in rows["threshold"]]
    axes.axhline(1.0, **REFERENCE, label="no difference")
    for place, (_, row) in enumerate(rows.iterrows()):
        low, high, mean = (float(row.get(f"{control}{end}", math.nan)) for end in ("_low", "_high", ""))
        if math.isfinite(low):
            axes.fill_between([place - 0.42, place + 0.42], low, high, color=RANDOM, alpha=0.35, lw=0)
        if math.isfinite(mean):
            axes.hlines(mean, place - 0.42, place + 0.42, color=RANDOM_MEAN, lw=1.6, label=f"{CONTROL}, 95% CI")
            show_values(axes, [place - 0.4], [mean], [f"{CONTROL}, θ = {labels[place]}: {mean:.4g}"])
        # iloc: at most one paper row for a threshold.
        for value in select(paper, row["threshold"])["attention_ratio"].iloc[:1]:
            axes.plot(place + 0.45, value, "*", color=PAPER, ms=9, ls="none", label="BERT in the paper")
            show_values(axes, [place + 0.45], [value], [f"BERT in the paper, θ = {labels[place]}: {value:.4g}"])
    for number, (name, ratio) in enumerate(shown):
        places = np.arange(len(rows)) + (number - (len(shown) - 1) / 2) * 0.72 / max(len(shown), 4)
        values, lows, highs = (rows[f"{name}{end}"].to_numpy(dtype=float) for end in ("", "_low", "_high"))
        half = np.nan_to_num(np.stack([values - lows, highs - values]))
        axes.errorbar(
            places, values, yerr=half, fmt=ratio.marker, color=ratio.color, ms=5, capsize=3, lw=1.3, label=ratio.label
        )
        ends = [f"\n95% CI {a:.3f} to {b:.3f}" if math.isfinite(a) else "" for a, b in zip(lows, highs, strict=True)]
        texts = [
            f"{ratio.label}, θ = {theta}: {value:.3f}{end}"
            for theta, value, end in zip(labels, values, ends, strict=True)
        ]
        show_values(axes, places, values, texts)
    axes.set_xticks(range(len(rows)), labels)
    axes.set_xlim(-0.55, len(rows) - 0.45)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    tidy(axes, grid="y")


def controls(
    rows: pd.DataFrame, controls: pd.DataFrame, *, part: str, threshold: float | None, columns: Columns | None = None
) -> Drawn:
    """Every ratio with its 95% CI, and the same ratio of every random initialisation; at the right those alone.

    rows: `ProbeResult.table()`; controls: `ProbeResult.controls`. Data: measure, source ("measured" or "control"),
    control_seed, value, low, high.
    """
    measured = select(rows[(rows["source"] == "measured") & (rows["part"] == part)], threshold)
    _need(len(measured), "ratios", (part, threshold))
    random = select(controls[controls["part"] == part], threshold) if len(controls) else controls
    data = pd.DataFrame(
        [
            {"measure": name, "source": source, "control_seed": row.get("control_seed"), "value": row[name]}
            | {end: row.get(f"{name}_{end}", math.nan) if source == "measured" else math.nan for end in ("low", "high")}
            for source, table in (("measured", measured.iloc[:1]), ("control", random))
            for row in table.to_dict(orient="records")
            for name in RATIOS
            if pd.notna(row.get(name))
        ]
    )
    names = list(dict.fromkeys(data["measure"][data["source"] == "measured"]))
    with paper_figure(columns, 1.1 + 0.28 * len(names)) as figure:
        # One column has no room for the enlarged panel.
        ratios = (1,) if columns == "single" else (3, 2)
        panels = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0]
        left = panels[0]
        for place, name in enumerate(names):
            one = data[data["measure"] == name]
            row = one[one["source"] == "measured"].iloc[0]
            half = np.nan_to_num([[row["value"] - row["low"]], [row["high"] - row["value"]]])
            style = {"fmt": "o", "ms": 4, "capsize": 2.5, "lw": 1.1, "color": LINES[0][0]}
            left.errorbar(row["value"], place, xerr=half, label="measured, 95% CI", **style)
            values = one["value"][one["source"] == "control"].to_numpy(dtype=float)
            for axes in panels:
                axes.plot(values, np.full(len(values), place), "|", color=RANDOM, ms=8, mew=1.0, label=CONTROL)
        for axes in panels:
            axes.axvline(1.0, **REFERENCE)
            axes.locator_params(axis="x", nbins=4)
            axes.ticklabel_format(axis="x", useOffset=False)
            name_rows(axes, [RATIOS[name].label for name in names])
        left.set_xlabel("attention ratio")
        for axes in panels[1:]:
            axes.set_title(f"{CONTROL} alone")
        shared_legend(figure, 2)
    return data, figure


def coverage(counts: Mapping[str, Any], *, part: str, threshold: float | None, columns: Columns | None = None) -> Drawn:
    """From documents to pairs: how many there were, how many were read, on a logarithmic axis.

    counts: `ProbeResult.coverage`. Data: step, kind ("text" or "pairs"), count.
    """
    text, words = counts.get("text", {}), counts.get("alignment", {})
    steps: list[tuple[str, str, Any, Any]] = [  # the last: what it is a part of
        ("documents", "text", text.get("documents"), None),
        ("documents read", "text", text.get("documents_kept"), text.get("documents")),
        ("units of text", "text", text.get("units"), None),
        ("units read", "text", text.get("units_kept"), text.get("units")),
        ("words in them", "text", words.get("words"), None),
        ("words that are one token", "text", words.get("found"), words.get("words")),
    ]
    pairs = pd.DataFrame(counts.get("pairs", []))
    if len(pairs):
        pairs = select(pairs[pairs["part"] == part].assign(threshold=pairs["threshold"].astype(float)), threshold)
        steps += [(f"pairs: {label}", "pairs", pairs[name].mean(), None) for name, label in PAIRS.items()]
    steps = [step for step in steps if step[2] is not None]
    data = pd.DataFrame([step[:3] for step in steps], columns=["step", "kind", "count"])
    _need(len(data), "coverage", "no counts")
    with paper_figure(columns, 0.6 + 0.24 * len(data)) as figure:
        axes = figure.subplots()
        values = data["count"].to_numpy(dtype=float)
        colors = [LINES[0][0] if kind == "text" else LINES[1][0] for kind in data["kind"]]
        hatches = ["" if kind == "text" else "////" for kind in data["kind"]]
        bars = axes.barh(range(len(data)), values, color=colors, hatch=hatches, edgecolor="white", lw=0, log=True)
        for place, (bar, (name, _, found, whole)) in enumerate(zip(bars, steps, strict=True)):
            axes.annotate(f"{found:,.0f}", (max(found, 1), place), (3, 0), textcoords="offset points", va="center")
            share = f" of {whole:,.0f} ({found / whole:.1%})" if whole else ""
            figure.marks.append((bar, f"{name}: {found:,.0f}{share}"))
        most = max(values.max(), 1)
        axes.set_xlim(0.8, most * 8)
        axes.xaxis.set_major_locator(FixedLocator([10.0**k for k in range(int(np.log10(most)) + 1)]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.minorticks_off()
        name_rows(axes, data["step"].tolist())
    return data, figure


def profile(
    heads: pd.DataFrame, *, part: str, threshold: float | None, layer: int, head: int, columns: Columns | None = None
) -> Drawn:
    """Where one head's attention goes, as shares, beside all heads of the part: their range and their median.

    heads: `ProbeResult.heads()` of a probe with `profile`. Data: quantity, value, least, median, largest.

    Raises:
        InputError: no such head, or heads that were not profiled.
    """
    chosen = select(heads[heads["part"] == part], threshold)
    one = chosen[(chosen["layer"] == layer) & (chosen["head"] == head)]
    names = [name for name in SHARES if name in chosen and bool(chosen[name].notna().any())]
    _need(len(one) and len(names), "profile", (part, threshold, layer, head))
    spread = chosen[names].astype(float).agg(["min", "median", "max"]).T.to_numpy()
    data = pd.DataFrame({"quantity": names, "value": one[names].iloc[0].to_numpy(dtype=float)})
    data[["least", "median", "largest"]] = spread
    with paper_figure(columns, 0.8 + 0.25 * len(names)) as figure:
        axes = figure.subplots()
        places = np.arange(len(names))
        axes.hlines(places, data["least"], data["largest"], color="#c8c8c8", lw=5, label="all heads")
        axes.plot(data["median"], places, "|", color=GREY, ms=9, mew=1.4, label="their median")
        axes.plot(data["value"], places, "o", color=LINES[1][0], ms=5, label=f"layer {layer}, head {head}")
        axes.set(xlim=(-0.02, 1.02), xlabel="share")
        name_rows(axes, [PROFILE[name] for name in names])
        shared_legend(figure, 3)
    return data, figure


def distances(data: pd.DataFrame, columns: Columns | None = None) -> Drawn:
    """Mean attention, in units of uniform attention, by the distance between two words and by class of pair.

    data: `ProbeResult.distances()`, which is returned as it is.
    """
    _need(len(data), "distances", "no pairs")
    with paper_figure(columns, 2.6) as figure:
        axes = figure.subplots()
        for (name, label), (color, line, marker) in zip(PAIRS.items(), LINES, strict=False):
            one = data[(data["pair"] == name) & (data["pairs"] > 0)]
            axes.plot(
                one["distance"], one["mean_attention"], ls=line, marker=marker, ms=2.5, lw=1.0, color=color, label=label
            )
        axes.set(xscale="log", xlabel="distance |i - j| in tokens", ylabel="mean attention × L/100")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.legend()
        tidy(axes)
    return data, figure


def _need(found: object, what: str, received: object, advice: str | None = None) -> None:
    if not found:
        expected = f"a result with {what}"
        raise InputError(f"the result has no {what} to draw", received=received, expected=expected, advice=advice)


_OLDER = "probe again: older results lack them, and so do those without two words that are one token"


def block_matrix(similarities: Mapping[str, np.ndarray], columns: Columns | None = None) -> Drawn:
    """Mean cosine of the input embeddings [bin, bin], words in the order of their topics, which brackets show.

    similarities: the arrays of embedding_map.npz.

    Raises:
        InputError: the result holds no similarities.
    """
    _need(similarities, "similarities of embeddings", "no embedding_map.npz", _OLDER)
    words, edges = similarities["words"], similarities["edges"]
    topic = np.repeat(similarities["topics"], np.diff(np.append(similarities["starts"], len(words))))
    cosine = similarities["cosine"].astype(np.float64)
    with paper_figure(columns or "single", 3.1 if columns != "double" else 6.0) as figure:
        axes = figure.add_subplot()
        block_map(axes, cosine, brackets(topic, edges))
        axes.set_title("cosine of word embeddings, by topic", pad=18 if columns != "double" else 34)
    names = [
        f"{words[begin]}{f' … {words[end - 1]}' if end - begin > 1 else ''} (topic {topic[begin]})"
        for begin, end in pairwise(edges.tolist())
    ]
    text = "{row}\n× {column}\nmean cosine {value}"
    figure.cells = matrix_cells({"cosine": cosine}, spread(cosine), text=text, names=names)
    return {"cosine": cosine, **{name: similarities[name] for name in ("words", "topics", "starts", "edges")}}, figure


def similarity_histogram(similarities: Mapping[str, np.ndarray], columns: Columns | None = None) -> Drawn:
    """How the cosines of same-topic and of different-topic pairs spread, each kind as a share of its own pairs.

    Data: low, high (bounds of the cosine), same, different: percent of the pairs of each kind; NaN without any.

    Raises:
        InputError: the result holds no similarities.
    """
    _need(similarities, "similarities of embeddings", "no embedding_map.npz", _OLDER)
    kinds = {"same": PAIRS["same_topic"], "different": PAIRS["different_topic"]}
    counts = pd.DataFrame({name: similarities[name] for name in kinds}).astype(float)
    shown = np.flatnonzero(counts.sum(axis=1))
    bounds = pd.DataFrame({"low": similarities["bounds"][:-1], "high": similarities["bounds"][1:]})
    table = bounds.join(100 * counts / counts.sum()).iloc[shown[0] : shown[-1] + 1].reset_index(drop=True)
    with paper_figure(columns, 2.4) as figure:
        axes = figure.add_subplot()
        for (name, label), (color, line, _) in zip(kinds.items(), LINES, strict=False):
            ends = [*table["low"], table["high"].iloc[-1]]
            said = f"{label} ({similarities[name].sum():,} pairs)"
            axes.stairs(table[name], ends, color=color, linestyle=line, label=said, lw=1.4)
            middles, percent = (table["low"] + table["high"]) / 2, table[name].fillna(0.0)
            found = zip(middles, percent, strict=True)
            texts = [f"{label}, cosine {cosine:.3f}: {share:.3g} % of these pairs" for cosine, share in found]
            show_values(axes, middles, percent, texts)
        axes.set(xlabel="cosine of two words", ylabel="% of the pairs of a kind")
        axes.legend()
        tidy(axes)
    return table, figure
