"""Figures of a probe, among them its maps of layers × heads; plain tables in, no model."""

import math
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, SymLogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from topicscope.errors import InputError
from topicscope.records import select
from topicscope.report import style
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
from topicscope.report.tables import count, number, ratio_column, threshold_label

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
    for order, (name, ratio) in enumerate(shown):
        places = np.arange(len(rows)) + (order - (len(shown) - 1) / 2) * 0.72 / max(len(shown), 4)
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
            look = {"fmt": "o", "ms": 4, "capsize": 2.5, "lw": 1.1, "color": LINES[0][0]}
            left.errorbar(row["value"], place, xerr=half, label="measured, 95% CI", **look)
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
        style.block_map(axes, cosine, style.brackets(topic, edges))
        axes.set_title("cosine of word embeddings, by topic", pad=18 if columns != "double" else 34)
    names = [
        f"{words[begin]}{f' … {words[end - 1]}' if end - begin > 1 else ''} (topic {topic[begin]})"
        for begin, end in pairwise(edges.tolist())
    ]
    text = "{row}\n× {column}\nmean cosine {value}"
    figure.cells = style.matrix_cells({"cosine": cosine}, style.spread(cosine), text=text, names=names)
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


# ---- maps of layers × heads

# Layers and heads above which the numbers in the cells could no longer be read.
_MAX_ANNOTATED = (32, 20)


def _head_figure(cells: style.Cells, *, title: str, ticks: Mapping[float, str], columns: Columns | None) -> PaperFigure:
    """The drawing that every map of layers × heads is; ticks: of the color bar, whose title is the cells' caption."""
    layers, heads = len(cells.rows), len(cells.columns)
    annotated, letters = layers <= _MAX_ANNOTATED[0] and heads <= _MAX_ANNOTATED[1], 6.0
    if columns is None:  # as large as the numbers in the cells need
        cell, letters = (0.56, 0.32) if annotated else (0.13, 0.13), 8.0
        width, height = max(heads * cell[0] + 1.9, 4.6), max(layers * cell[1] + 1.5, 2.4)
    else:
        width = style.WIDTHS.get(columns, 0.0)
        across = (width - 1.35) / heads
        annotated = annotated and across >= 0.36
        height = max(layers * min(0.26, 1.2 * across) + 1.0, 1.6)
    with paper_figure(columns, height, width) as figure:
        axes = figure.add_subplot()
        axes.patch.set(facecolor="#f2f2f2", edgecolor="#8a8a8a", hatch="////")
        values = cells.states[cells.shown]
        shown = np.clip(values, cells.norm.vmin, cells.norm.vmax)
        drawn = style.draw_cells(axes, shown, cells.norm, style.DIVERGING)
        axes.set(xlabel="head", ylabel="layer")
        for axis, names in ((axes.xaxis, cells.columns), (axes.yaxis, cells.rows)):
            # Some 16 names where cells are too small for numbers.
            step = 1 if annotated else max(1, math.ceil(len(names) / 16))
            axis.set_ticks(range(0, len(names), step), names[::step])
            axis.set_tick_params(length=0)
        bar = style.color_bar(axes, drawn, values, ticks, ax=axes, aspect=15, pad=0.02)
        bar.ax.tick_params(labelsize=letters)
        bar.set_label(cells.caption.replace("{state}", cells.shown), fontsize=letters)
        bar.ax.yaxis.label.set_gid(style.STATE)
        if annotated:
            style.write_cells(axes, drawn, shown, cells.letters[cells.shown], letters)
        # parse_math off: a model's name may hold dollar signs.
        axes.set_title("\n".join(textwrap.wrap(title, int(12 * width))), parse_math=False)
    return figure


def head_map(
    heads: pd.DataFrame,
    *,
    part: str,
    threshold: float | None,
    title: str = "Same-topic / different-topic attention",
    columns: Columns | None = None,
    limit: float | None = None,
) -> PaperFigure:
    """Layer × head map of the same-topic / different-topic attention ratio of one part and threshold.

    heads: `ProbeResult.heads()`: one row per part, threshold, layer, head (both from 0).
    Color: log ratio, symmetric about 1, saturating at `limit`, `saturation` unless given; the color bar has arrows
    where values lie beyond. Brackets: 1 lies within 1.96 standard errors. Hatched: no ratio. Causal parts show the
    position-corrected ratio. columns: as wide as one or two columns of a paper, instead of as wide as the numbers in
    the cells need; cells too small for numbers have none. On a page the other ratios can be chosen.

    Raises:
        InputError: no such part or threshold in `heads`, or another width.
    """
    chosen = select(heads[heads["part"] == part], threshold)
    if chosen.empty:
        known = heads[["part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no heads to draw", received=(part, threshold), expected=f"one of {known}")
    column = ratio_column(chosen)
    names = [name for name in RATIOS if f"{name}_se" in chosen and bool(chosen[name].notna().any())]
    shape = int(chosen["layer"].max()) + 1, int(chosen["head"].max()) + 1
    # A row for every cell, empty where the head was not read.
    every = chosen.set_index(["layer", "head"]).reindex(pd.MultiIndex.from_product([range(shape[0]), range(shape[1])]))
    read = every["part"].notna()
    rows = every.to_dict(orient="records")
    states, said, letters = {}, {}, dict[str, list[str]]()
    for name in dict.fromkeys([column, *names]):
        label, ratios = RATIOS[name].label, [(row[name], row[f"{name}_se"]) for row in rows]
        states[label], letters[label] = every[name].to_numpy(float).reshape(shape), []
        for ratio, error in ratios:
            written = "" if not math.isfinite(ratio) else f"{ratio:.2f}" if ratio < 99.5 else f"{ratio:.0f}"
            unsure = written and not abs(ratio - 1) > 1.96 * error
            letters[label].append(f"({written})" if unsure else written)
        texts = [f"\nratio {number(ratio)} ± {number(error)}" for ratio, error in ratios]
        said[label] = np.where(read, texts, "").tolist()
    pairs = [
        f"mean of same-topic pairs {number(row['mean_same'], 4)}, n = {count(row['pairs_same'])}"
        f"\nmean of different-topic pairs {number(row['mean_different'], 4)}, n = {count(row['pairs_different'])}"
        for row in rows
    ]
    shown = RATIOS[column].label
    limit = style.saturation(states[shown]) if limit is None else limit
    cells = style.Cells(
        states=states,
        shown=shown,
        rows=[str(layer) for layer in range(shape[0])],
        columns=[str(head) for head in range(shape[1])],
        text="layer {row}, head {column}{value}\n{more}",
        norm=LogNorm(1 / limit, limit, clip=False),
        colors=mpl.colormaps[style.DIVERGING],
        prefix="ratio: ",
        said=said,
        letters=letters,
        more=np.where(read, pairs, "not read").tolist(),
        caption="{state}; 1 = no difference (log scale)",
    )
    # Marks close to 1 would run into each other on a bar that reaches far.
    far, near = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16), (1 / 2, 2 / 3, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2)
    ticks = {float(t): f"{t:.3g}" for t in (far if limit > 2.5 else near) if 1 / limit <= t <= limit}
    title = f"{title} ({part}, θ\u00a0=\u00a0{threshold_label(threshold)})"
    figure = _head_figure(cells, title=title, ticks=ticks, columns=columns)
    figure.cells = cells
    return figure


_UNSURE = 4.0


def circuit_map(
    heads: pd.DataFrame,
    *,
    circuit: str,
    place: str,
    part: str,
    threshold: float | None,
    name: str,
    columns: Columns | None = None,
) -> PaperFigure:
    """z of every head, within frequency bands where they are known. Purple below 0, orange above, grey within ±4.

    heads: `CircuitResult.heads()`. columns: as wide as one or two columns of a paper; small cells have no numbers.

    Raises:
        InputError: no such rows in `heads`, or another width.
    """
    where = (heads["circuit"] == circuit) & (heads["place"] == place) & (heads["part"] == part)
    chosen = select(heads[where], threshold)
    if chosen.empty:
        known = heads[["circuit", "place", "part", "threshold"]].drop_duplicates().to_records(index=False).tolist()
        raise InputError("no circuits to draw", received=(circuit, place, part, threshold), expected=f"one of {known}")
    column = "z_banded" if bool(chosen["z_banded"].notna().any()) else "z"
    z = chosen.pivot_table(index="layer", columns="head", values=column, aggfunc="mean", dropna=False)
    values = z.to_numpy(dtype=float)
    limit = max(float(np.nanmax(np.abs(values), initial=0.0)), 2 * _UNSURE)
    cells = style.Cells(
        states={"z": values},
        shown="z",
        rows=[str(layer) for layer in z.index],
        columns=[str(head) for head in z.columns],
        text="",
        norm=SymLogNorm(linthresh=_UNSURE, linscale=0.5, vmin=-limit, vmax=limit, base=10),
        colors=mpl.colormaps[style.DIVERGING],
        letters={"z": ["" if np.isnan(v) else f"{v:.1f}" if abs(v) < 9.95 else f"{v:.0f}" for v in values.ravel()]},
        caption="{state} (0 = no difference)",
    )
    marks = [m for m in (-100, -30, -10, -_UNSURE, 0, _UNSURE, 10, 30, 100) if abs(m) <= limit]
    banded = ", within frequency bands" if column == "z_banded" else ""
    title = f"{name}: {circuit} circuit, same-topic minus different-topic words, z{banded}"
    title = f"{title} ({part}, {place}, θ\u00a0=\u00a0{threshold_label(threshold)})"
    return _head_figure(cells, title=title, ticks={float(m): f"{m:g}" for m in marks}, columns=columns)
