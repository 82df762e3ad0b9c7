"""How much of the text a probe could use: documents, units, words and pairs, kept and lost."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from topicscope.report.style import Columns, Drawn, paper_figure, tidy

_KEPT, _LOST = "#0072B2", "#D9D9D9"


def steps_kept(coverage: Mapping[str, Any], part: str, threshold: float | None) -> pd.DataFrame:
    """Columns step, kept, whole, share: what is left of each whole; steps whose counts are unknown are left out.

    Pairs are those of two words with topics, of all pairs of words, at one threshold and the first topic model.
    """
    text, alignment = coverage.get("text", {}), coverage.get("alignment", {})
    pairs = [r for r in coverage.get("pairs", []) if r["part"] == part and r["threshold"] == threshold]
    found = [
        ("documents", text.get("documents_kept"), text.get("documents")),
        ("sentences or passages", text.get("units_kept"), text.get("units")),
        ("words read that are one token", alignment.get("found"), alignment.get("words")),
    ]
    if pairs:
        row = min(pairs, key=lambda r: r["topic_seed"])
        kinds = {name: row.get(name) or 0 for name in _PAIRS}
        topical = kinds["same_word"] + kinds["same_topic"] + kinds["different_topic"]
        found.append(("pairs of words with topics", topical, sum(kinds.values())))
    return pd.DataFrame(
        [(step, kept, whole, kept / whole) for step, kept, whole in found if kept is not None and whole],
        columns=["step", "kept", "whole", "share"],
    )


_PAIRS = ("same_word", "same_word_no_topic", "same_topic", "different_topic", "no_topic")


def coverage_figure(
    coverage: Mapping[str, Any], part: str, threshold: float | None, columns: Columns | None = None
) -> Drawn:
    """What was kept at each step, as a share of what there was, with the counts beside."""
    table = steps_kept(coverage, part, threshold)
    with paper_figure(columns, 0.7 + 0.42 * max(len(table), 1)) as figure:
        axes = figure.add_subplot()
        for place, (_, row) in enumerate(table.iterrows()):
            axes.barh(place, 1, color=_LOST, hatch="////", edgecolor="white", height=0.6)
            axes.barh(place, row["share"], color=_KEPT, height=0.6)
            axes.text(1.02, place, f"{row['kept']:,.0f} of {row['whole']:,.0f}", va="center", clip_on=False)
        axes.set(xlim=(0, 1), ylim=(len(table) - 0.5, -0.5), xlabel="share kept")
        axes.set_yticks(range(len(table)), list(table["step"]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        tidy(axes, grid="x")
    return table, figure
