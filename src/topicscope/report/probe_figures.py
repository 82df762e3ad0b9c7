"""Figures of a probe beside its head map and its ratios, each with the numbers it shows; plain tables in, no model."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter

from topicscope.errors import InputError
from topicscope.report.heatmaps import at_threshold
from topicscope.report.style import LINES, Columns, Drawn, paper_figure, tidy

MEASURES: Mapping[str, str] = {
    "attention_ratio": "all pairs",
    "attention_ratio_distinct": "distinct words",
    "attention_ratio_distance_matched": "same distances",
    "attention_ratio_distinct_distance_matched": "distinct words, same distances",
    "attention_ratio_distinct_frequency_matched": "distinct words, same frequencies",
    "attention_ratio_position_corrected": "position-corrected",
}
PROFILE: Mapping[str, str] = {
    "itself": "itself",
    "previous": "token before",
    "next": "token after",
    "first_token": "first token",
    "separators": "separators",
    "punctuation": "punctuation",
    "same_topic_share": "other words of the topic",
    "entropy_share": "evenness (entropy / largest)",
}
_GREY = "#777777"


def controls(
    rows: pd.DataFrame, controls: pd.DataFrame, *, part: str, threshold: float | None, columns: Columns | None = None
) -> Drawn:
    """Every ratio with its 95 % interval, and the same ratio of every random initialisation; at the right those alone.

    rows: `ProbeResult.table()`; controls: `ProbeResult.controls`. Data: measure, source ("measured" or "control"),
    control_seed, value, low, high.
    """
    measured = at_threshold(rows[(rows["source"] == "measured") & (rows["part"] == part)], threshold)
    _need(len(measured), "ratios", (part, threshold))
    random = at_threshold(controls[controls["part"] == part], threshold) if len(controls) else controls
    data = pd.DataFrame([*_measured(measured.iloc[0]), *_random(random)])
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
            left.errorbar(row["value"], place, xerr=half, fmt="o", ms=4, capsize=2.5, lw=1.1, color=LINES[0][0])
            values = one["value"][one["source"] == "control"].to_numpy(dtype=float)
            for axes in panels:
                axes.plot(values, np.full(len(values), place), "|", color=_GREY, ms=8, mew=1.0)
        for axes in panels:
            axes.axvline(1.0, color="#555555", lw=0.8, ls="--")
            axes.locator_params(axis="x", nbins=4)
            axes.ticklabel_format(axis="x", useOffset=False)
            tidy(axes, grid="x")
        left.set(ylim=(len(names) - 0.5, -0.5), xlabel="attention ratio")
        left.set_yticks(range(len(names)), [MEASURES[name] for name in names])
        for axes in panels[1:]:
            axes.set_title("random weights alone")
        handles = [left.plot([], [], "o", ms=4, color=LINES[0][0])[0], left.plot([], [], "|", ms=8, color=_GREY)[0]]
        figure.legend(handles, ["measured, 95 % interval", "random weights"], loc="outside lower center", ncols=2)
    return data, figure


def _measured(row: pd.Series) -> list[dict[str, Any]]:
    return [
        {"measure": name, "source": "measured", "control_seed": None, "value": row[name]}
        | {end: row.get(f"{name}_{end}", math.nan) for end in ("low", "high")}
        for name in MEASURES
        if name in row and pd.notna(row[name])
    ]


def _random(random: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"measure": name, "source": "control", "control_seed": int(row["control_seed"]), "value": row[name]}
        | {"low": math.nan, "high": math.nan}
        for _, row in random.iterrows()
        for name in MEASURES
        if name in row and pd.notna(row[name])
    ]


def coverage(counts: Mapping[str, Any], *, part: str, threshold: float | None, columns: Columns | None = None) -> Drawn:
    """From documents to pairs: how many there were, how many were read, on a logarithmic axis.

    counts: `ProbeResult.coverage`. Data: step, kind ("text" or "pairs"), count.
    """
    text, words = counts.get("text", {}), counts.get("alignment", {})
    steps = [
        ("documents", "text", text.get("documents")),
        ("documents read", "text", text.get("documents_kept")),
        ("units of text", "text", text.get("units")),
        ("units read", "text", text.get("units_kept")),
        ("words in them", "text", words.get("words")),
        ("words that are one token", "text", words.get("found")),
    ]
    pairs = pd.DataFrame(counts.get("pairs", []))
    if len(pairs):
        pairs = at_threshold(pairs[pairs["part"] == part].assign(threshold=pairs["threshold"].astype(float)), threshold)
        names = {"same_word": "same word", "same_topic": "same topic", "different_topic": "different topics"}
        steps += [(f"pairs: {label}", "pairs", pairs[name].mean()) for name, label in names.items()]
    data = pd.DataFrame([s for s in steps if s[2] is not None], columns=["step", "kind", "count"])
    _need(len(data), "coverage", "no counts")
    with paper_figure(columns, 0.6 + 0.24 * len(data)) as figure:
        axes = figure.subplots()
        colors = [LINES[0][0] if kind == "text" else LINES[1][0] for kind in data["kind"]]
        hatches = ["" if kind == "text" else "////" for kind in data["kind"]]
        values = data["count"].to_numpy(dtype=float)
        axes.barh(range(len(data)), values, color=colors, hatch=hatches, edgecolor="white", lw=0, log=True)
        for place, value in enumerate(values):
            axes.annotate(f"{value:,.0f}", (max(value, 1), place), (3, 0), textcoords="offset points", va="center")
        axes.set(ylim=(len(data) - 0.4, -0.6), xlim=(0.8, max(values.max(), 1) * 8))
        axes.set_yticks(range(len(data)), data["step"])
        axes.xaxis.set_major_locator(FixedLocator([10.0**k for k in range(int(np.log10(max(values.max(), 1))) + 1)]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        tidy(axes, grid="x")
    return data, figure


def profile(
    heads: pd.DataFrame, *, part: str, threshold: float | None, layer: int, head: int, columns: Columns | None = None
) -> Drawn:
    """Where one head's attention goes, as shares, beside all heads of the part: their range and their median.

    heads: `ProbeResult.heads()` of a probe with `profile`. Data: quantity, value, least, median, largest.

    Raises:
        InputError: no such head, or heads that were not profiled.
    """
    chosen = at_threshold(heads[heads["part"] == part], threshold)
    one = chosen[(chosen["layer"] == layer) & (chosen["head"] == head)]
    names = [name for name in PROFILE if name in chosen and bool(chosen[name].notna().any())]
    _need(len(one) and len(names), "profile", (part, threshold, layer, head))
    spread = chosen[names].agg(["min", "median", "max"])
    data = pd.DataFrame(
        {
            "quantity": names,
            "value": one[names].iloc[0].to_numpy(dtype=float),
            **{k: spread.loc[s].to_numpy(dtype=float) for k, s in zip(_SPREAD, ("min", "median", "max"), strict=True)},
        }
    )
    with paper_figure(columns, 0.8 + 0.25 * len(names)) as figure:
        axes = figure.subplots()
        places = np.arange(len(names))
        axes.hlines(places, data["least"], data["largest"], color="#c8c8c8", lw=5, label="all heads")
        axes.plot(data["median"], places, "|", color=_GREY, ms=9, mew=1.4, label="their median")
        axes.plot(data["value"], places, "o", color=LINES[1][0], ms=5, label=f"layer {layer}, head {head}")
        axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(-0.02, 1.02), xlabel="share")
        axes.set_yticks(places, [PROFILE[name] for name in names])
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=3)
        tidy(axes, grid="x")
    return data, figure


_SPREAD = ("least", "median", "largest")


def distances(data: pd.DataFrame, columns: Columns | None = None) -> Drawn:
    """Mean attention, in units of uniform attention, by the distance between two words and by class of pair.

    data: `ProbeResult.distances()`, which is returned as it is.
    """
    _need(len(data), "distances", "no pairs")
    with paper_figure(columns, 2.6) as figure:
        axes = figure.subplots()
        names = {"same_word": "same word", "same_topic": "same topic", "different_topic": "different topics"}
        for (name, label), (color, line, marker) in zip(names.items(), LINES, strict=False):
            one = data[(data["pair"] == name) & (data["pairs"] > 0)]
            axes.plot(
                one["distance"], one["mean_attention"], ls=line, marker=marker, ms=2.5, lw=1.0, color=color, label=label
            )
        axes.set(xscale="log", xlabel="distance |i - j| in tokens", ylabel="mean attention × L/100")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.legend()
        tidy(axes)
    return data, figure


def _need(found: object, what: str, received: object) -> None:
    if not found:
        raise InputError(f"the result has no {what} to draw", received=received, expected=f"a result with {what}")
