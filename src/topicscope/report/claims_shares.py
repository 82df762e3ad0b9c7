"""Shares: of settings in which a theorem holds."""

import matplotlib as mpl
from matplotlib.figure import Figure

from topicscope.report.forest import PAPER_STYLE, WIDTH, whisker
from topicscope.report.reproduction_record import ReproductionRecord, Row

_SIDES = (("inside", "inside its assumptions", "#0072B2", "o"), ("outside", "outside", "#D55E00", "s"))


def settings_figure(record: ReproductionRecord, claim: str) -> Figure | None:
    """The share of random settings in which each theorem holds, inside and outside its assumptions."""
    theorems: dict[str, dict[str, Row]] = {}
    for row in record.claims[claim]["rows"]:
        name, found, rest = row["quantity"].partition(": share that holds ")
        if found:
            theorems.setdefault(name, {})[rest.split()[0]] = row
    if not theorems:
        return None
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.45 * len(theorems)), layout="constrained")
        axes = figure.subplots()
        for place, rows in enumerate(theorems.values()):
            for shift, (side, label, color, marker) in zip((-0.15, 0.15), _SIDES, strict=True):
                row = rows.get(side)
                if row is None:
                    continue
                share = row["measured"]
                down = share - row.get("lowest_share", share)
                name = label if place == 0 else None
                whisker(axes, share, place + shift, across=(down, 0.0), marker=marker, color=color, label=name)
                text = f"{share:.1%} of {row['settings']}"
                axes.annotate(text, (share, place + shift), (8, 0), textcoords="offset points", va="center", fontsize=7)
        axes.set(ylim=(len(theorems) - 0.5, -0.5), xlim=(0, 1.22))
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_yticks(range(len(theorems)), list(theorems))
        axes.set_xlabel("share of random settings in which the theorem holds")
        axes.grid(axis="x", color="#e3e3e3", lw=0.5)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower left", ncols=2, frameon=False)
    return figure
