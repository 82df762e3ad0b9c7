"""Rows that Theorem 3's and Theorem 4's claims share: trained attention by class of pair, beside Knowl 9."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from topicscope.claims.claim import Criterion, Row, above, exact_row, measured_row
from topicscope.claims.context import Context
from topicscope.claims.pair_attention import losses_of
from topicscope.records import RunRecord
from topicscope.synthetic import Setting
from topicscope.theory import Value, topicwise_attention_optimum
from topicscope.topics import TopicModel

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


def free_attention_rows(context: Context, value: Value) -> list[Row]:
    """Free W_K and W_Q under the theorems' own squared loss at N = 100, against the best topic-wise weights.

    Judged by `FREE`: the share of the way that the loss goes from uniform attention to these weights, all three on the
    same documents, that no run has seen. Beside it the ratios of mean attention, whose counterparts are α* and β*.
    """
    best = topicwise_attention_optimum(replace(SETTING, document_length=100), value)
    steps = 500 if context.quick else 1000
    record = context.train(f"attention-squared-{value}", f"training.steps={steps}")
    trained, uniform, least = (
        np.array(losses_of(run, _JUDGED_DOCUMENTS))
        for run in (record, topicwise_run(record, 1.0, 1.0), topicwise_run(record, best.alpha, best.beta))
    )
    how, final = f"{value} W_V, squared loss, step {steps}", record.final
    other = final["attention_different_topic"]
    share = (uniform - trained) / (uniform - least)
    return [
        measured_row(
            "free", f"share of the way from uniform to the best topic-wise attention, {how}", share, theory=1.0
        ),
        measured_row(
            None, f"same topic / different topic, {how}", final["attention_same_topic"] / other, theory=best.alpha
        ),
        measured_row(
            None, f"same word / different topic, {how}", final["attention_same_word"] / other, theory=best.beta
        ),
    ]


def topicwise_run(record: RunRecord, alpha: float, beta: float) -> RunRecord:
    """The run with the attention weights of Theorems 3 and 4 in place of what it learned: β on the same word, α on the
    same topic, 1 on other words and on [MASK]; W_Q is √d_a times the identity, so that W_K holds the logits."""
    W_K, W_Q = record.weights["W_K"], record.weights["W_Q"]
    size, data = W_K.shape[-1], record.config["data"]
    topic = TopicModel.disjoint(data["num_topics"], data["words_per_topic"]).phi.argmax(axis=0)
    logits = np.zeros((size, size), dtype=W_K.dtype)
    words = logits[1:, 1:]
    words[topic[:, None] == topic] = np.log(max(alpha, 1e-30))
    np.fill_diagonal(words, np.log(beta))
    weights = {
        "W_K": np.broadcast_to(logits, W_K.shape),
        "W_Q": np.broadcast_to(np.sqrt(size) * np.eye(size), W_Q.shape),
    }
    return replace(record, weights=dict(record.weights) | {n: w.astype(W_K.dtype) for n, w in weights.items()})


_JUDGED_DOCUMENTS = 1000

# Orders are asked of ratios above 1.1: documents of unequal length make the averages of even uniform attention differ
# by a few parts in a thousand.
LARGER = 0.1

PRINTED = Criterion(
    "printed",
    "the printed ratio lies in our 95 % interval widened by 10 %",
    lambda row: abs(row["measured"] - row["paper"]) <= row["error"] + np.log(1.1),
    decisive=False,
)

FREE = above(
    "free",
    "free attention under the squared loss, share of the way to the best topic-wise weights",
    0.9,
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
