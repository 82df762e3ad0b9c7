"""Rows that Theorem 3's and Theorem 4's claims share: trained attention by class of pair, beside Knowl 9."""

from collections.abc import Mapping

import numpy as np

from topicscope.claims.claim import Criterion, Row
from topicscope.claims.context import Context
from topicscope.claims.rows import exact_row, measured_row
from topicscope.topics.setting import Setting

# The paper's synthetic setting, with τ = 2 inside the assumptions of Theorems 3 and 4.
SETTING = Setting(10, 10, 2, 0.15, 0.1, 0.1)
WORDS = {"same_word": "same word", "same_topic": "same topic", "different_topic": "different topic"}
# Pairs in the 500 documents of 100 words that the paper's released code evaluates, counted with the right topics.
# The rest involve START, which no average of Knowl 9 includes.
_RELEASED_PAIRS = {"same_word": 319_724, "same_topic": 2_432_394, "different_topic": 2_148_882}
_RELEASED_QUERIES = 500 * 100
_RELEASED_ALL = 500 * 100**2


def attention_rows(
    context: Context,
    recipe: str,
    *overrides: str,
    how: str,
    paper: Mapping[str, float],
    paper_errors: Mapping[str, float],
    orders: Mapping[str, tuple[str, str]],
    printed: bool = True,
) -> list[Row]:
    """Mean attention of each class after training, and the log ratios that `orders` (criterion -> pair) names.

    printed: also hold Knowl 9's ratios against ours, under the criterion "printed".
    """
    record = context.train(recipe, *overrides)
    final = record.final
    means = {name: final[f"attention_{name}"].to_numpy() for name in WORDS}
    rows = [
        measured_row(None, f"{WORDS[name]}, {how}", values, paper=paper[name], paper_error=paper_errors[name])
        if printed
        else measured_row(None, f"{WORDS[name]}, {how}", values)
        for name, values in means.items()
    ]
    for criterion, (more, less) in orders.items():
        values, published = np.log(means[more] / means[less]), float(np.log(paper[more] / paper[less]))
        quantity = f"log({WORDS[more]} / {WORDS[less]}), {how}"
        rows.append(measured_row(criterion, quantity, values, paper=published if printed else None))
        if printed:
            rows.append(measured_row("printed", f"{quantity}, against the printed ratio", values, paper=published))
    if printed:  # the ratios on the way: what is found depends on when one stops
        more, less = next(iter(orders.values()))
        for step in (200, 300):
            early = record.history[record.history["step"] == step]
            ratio = np.log(early[f"attention_{more}"].to_numpy() / early[f"attention_{less}"].to_numpy())
            if len(ratio) and step < record.summary["steps"]:
                quantity = f"log({WORDS[more]} / {WORDS[less]}), the same run at step {step}"
                rows.append(measured_row(None, quantity, ratio, paper=float(np.log(paper[more] / paper[less]))))
    return rows


def reported_share(paper: Mapping[str, float]) -> Row:
    """The share of all attention that the printed averages account for: every query's attention sums to 1.

    The row has the share of pairs that they average over, too: the rest, with START, would hold the rest of attention.
    """
    reported = sum(count * paper[name] for name, count in _RELEASED_PAIRS.items())
    return exact_row(
        None,
        "share of attention in the pairs that Knowl 9 reports (1 = all)",
        reported / _RELEASED_QUERIES,
        share_of_pairs=sum(_RELEASED_PAIRS.values()) / _RELEASED_ALL,
    )


# Orders are asked of ratios above 1.1: documents of unequal length make the averages of even uniform attention differ
# by a few parts in a thousand.
LARGER = 0.1

PRINTED = Criterion(
    "printed",
    "the printed ratio lies in our 95 % interval widened by 10 %",
    lambda row: abs(row["measured"] - row["paper"]) <= row["error"] + np.log(1.1),
    decisive=False,
)


def bound_row(name: str, value: float, lower: float | None, upper: float | None) -> Row:
    """An optimum beside the bounds that a theorem puts on it; judged by `BOUNDS`."""
    return exact_row("bounds", f"{name} in ({_text(lower)}, {_text(upper)})", value, lower=lower, upper=upper)


BOUNDS = Criterion(
    "bounds",
    "the exact optimum at N = ∞ lies strictly between the theorem's bounds",
    lambda row: None not in (row["lower"], row["upper"]) and row["lower"] < row["measured"] < row["upper"],
)


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
