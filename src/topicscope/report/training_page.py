"""`report.html` of a training run: the answer in a sentence, theory beside it, curves and matrices along training."""

import math
import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Any

from topicscope.records import RunRecord, dump_json
from topicscope.report.page import Chart, downloads, render_page
from topicscope.report.style import to_png
from topicscope.report.tables import MISSING, Table, count, manifest_tables, number, percent
from topicscope.report.training_figures import MOST_CELLS, attention, draw_run, losses, matrix, norms, run_matrices

_NORMS = (
    "Frobenius norm of every trained matrix over steps, both axes logarithmic, step 0 at the left; means over seeds. "
    "Vertical lines, where stages were found: the value matrix has settled (dotted), attention begins to move (dashed)."
)
_LOSSES = "Loss over steps, means over seeds: on documents that no step has seen, and of the batches themselves."
_ATTENTION = (
    "How much more a word attends to its own word and to words of its topic than to words of other topics; 1 is "
    "uniform attention. Lines of theory, where it speaks of this run, are the best topic-wise weights."
)
_SLIDER = (
    "The slider moves along the steps; colours are those of the last one. Brackets are topics; [MASK] comes first."
)
_MATRICES: Mapping[str, tuple[str, str]] = {
    "W_V": (
        "The value matrix W_V",
        "Row: the word it speaks for, column: the word it sees; orange speaks for a word, purple against it. With "
        f"trained embeddings it is shown as what it does from word to word. First seed. {_SLIDER}",
    ),
    "E": ("Similarity of embeddings", f"Inner products of the words' embeddings, W_Eᵀ W_E, first seed. {_SLIDER}"),
    "logits": (
        "Attention logits",
        f"Column: the word that looks, row: the word looked at; orange draws attention. First seed. {_SLIDER}",
    ),
}
_NOTES = {
    "value_matrix": "Mask column: what [MASK] says for a word; diagonal: what a word says for itself.",
    "attention": "Theory: the best weights that depend on topics alone. Free attention may do as well with others, as "
    "the loss is flat along a ridge: a smaller weight of the same word is made up for by the topic's other words.",
}


def render_run(record: RunRecord) -> str:
    """The page of one run, from its record alone; all text in it is escaped. Equal records give equal pages."""
    summary, manifest = record.summary, record.manifest
    found = answers(record)
    trained, maps = run_matrices(record), []
    for name, one in trained.items():
        most, (caption, text) = MOST_CELLS // len(trained), _MATRICES[name]
        figure = matrix(record, name=name, step=int(one.steps[-1]), most_cells=most)[1]
        figure.set_figwidth(5.2)  # the map is as wide as it is high
        maps.append(Chart.of(figure, f"matrix-{name.replace('_', '').lower()}", caption, text))
    attended = "attention_different_topic" in record.history
    charts = [
        Chart.of(norms(record)[1], "norms", "Norms along training", _NORMS),
        Chart.of(losses(record)[1], "losses", "Loss along training", _LOSSES),
        *maps,
    ]
    if attended:
        charts.append(Chart.of(attention(record)[1], "attention", "Attention by class of word pair", _ATTENTION))
    return render_page(
        "training.html.j2",
        charts=charts,
        name=summary.get("name") or record.config.get("name", "run"),
        description=summary.get("description") or "",
        created=manifest.created,
        headline=found[0],
        further=found[1:],
        facts=_facts(record),
        **_tables(record),
        matrices=maps,
        attention=attended,
        command=manifest.command,
        downloads=downloads(
            {
                "history.csv": record.history.to_csv(index=False),
                "final.csv": record.final.to_csv(index=False),
                "summary.json": dump_json(record.to_dict(), indent=2),
                "recipe.json": dump_json(record.config, indent=2),
            }
        ),
        manifest=manifest_tables(manifest.model_dump(), Recipe=record.config),
    )


def notebook(record: RunRecord) -> str:
    """For a notebook: what came out, the final table and the norms as a picture that needs no script."""
    picture = b64encode(to_png(draw_run(record, "norms")[1])).decode("ascii")
    lines = "".join(f"<p>{escape(line)}</p>" for line in answers(record))
    table = record.table().to_html(index=False, float_format="{:.4g}".format)
    return f'{lines}{table}<img alt="norms of the matrices by step" src="data:image/png;base64,{picture}">'


def answers(record: RunRecord) -> list[str]:
    """What came out, one sentence each, the most telling first; never empty."""
    summary, final = record.summary, record.final
    said = []
    values = summary.get("value_matrix")
    if values and values["theory"]:
        m, t = _numbers(values["measured"]), _numbers(values["theory"])
        worst = max(map(abs, _numbers(values["relative_deviation"] or {"": None}).values()))
        said.append(
            f"The value matrix W_V came within {100 * worst:.2g} % of what theory says of every block: entries between "
            f"words of one topic {m['same']:.3g} (theory {t['same']:.3g}), of different topics {m['different']:.3g} "
            f"(theory {t['different']:.3g})."
        )
    gram = summary.get("embedding")
    if gram and gram["theory"]:
        said.append(
            f"Words of one topic have more similar embeddings: the gap of their inner products is "
            f"{_numbers(gram['measured'])['gap']:.3g}, theory says {_numbers(gram['theory'])['gap']:.3g}."
        )
    if summary.get("stages"):
        said.append(_stage_words(summary["stages"]))
    beside = summary.get("attention")
    if beside:
        m, t = _numbers(beside["measured"]), _numbers(beside["theory"] or {})
        parts = [
            f"{label} {m[name]:.4g} times{f' (theory {t[name]:.4g})' if name in t else ''}"
            for name, label in (("same_topic", "other words of its topic"), ("same_word", "its own word"))
        ]
        said.append(f"A word gives {' and '.join(parts)} the attention that it gives words of other topics.")
    if {"W_V_same", "W_V_different"} <= set(final) and not (values and values["theory"]):
        means = final[["W_V_same", "W_V_different"]].mean()
        said.append(
            f"Entries of W_V between words of one topic are {means['W_V_same']:.3g} on average, of different topics "
            f"{means['W_V_different']:.3g}."
        )
    if {"E_same", "E_different"} <= set(final) and not (gram and gram["theory"]):
        means = final[["E_same", "E_different"]].mean()
        said.append(
            f"Inner products of embeddings are {means['E_same']:.3g} on average between words of one topic, "
            f"{means['E_different']:.3g} between topics."
        )
    by_step = record.history.groupby("step")["loss"].mean()
    start, end = by_step.iloc[0], by_step.iloc[-1]
    said.append(f"The loss on held-out documents went from {start:.4g} to {end:.4g} in {summary['steps']:,} steps.")
    return said


def _numbers(part: Mapping[str, float | None]) -> dict[str, float]:
    """Numbers by name, NaN where a saved record has null, since JSON has no NaN."""
    return {name: math.nan if value is None else value for name, value in part.items()}


def _stage_words(stages: list[Mapping[str, Any]]) -> str:
    apart = sum(bool(one["separated"]) for one in stages)
    k1, k2 = (sum(one[name] for one in stages) / len(stages) for name in ("k1", "k2"))
    reached = all(one["stage_two_reached"] for one in stages)
    after = f"attention began to move at step {k2:,.0f}" if reached else "attention had not moved by the end"
    if not apart:
        return f"No two stages, one after the other: W_V had settled by step {k1:,.0f}, {after}."
    seeds = f" in {apart} of {len(stages)} seeds" if len(stages) > 1 else ""
    if not reached:
        short = sum(not one["stage_two_reached"] for one in stages)
        by = f" in {short} of {len(stages)} seeds" if len(stages) > 1 else ""
        return (
            f"W_V moved alone, as in the first of two stages{seeds}: it had settled by step {k1:,.0f}. The second had "
            f"not begun by the end{by}: attention had not moved by a tenth. A longer training would show it."
        )
    return f"Training went in two separate stages{seeds}: W_V had settled by step {k1:,.0f}, {after}."


def _facts(record: RunRecord) -> list[dict[str, str]]:
    """Cards: how the run was made, in numbers."""
    summary, training = record.summary, record.config["training"]
    data = record.config["data"]
    length = "infinite" if data.get("source") == "population" else data.get("length")
    span = f"{length[0]} to {length[1]}" if isinstance(length, (list, tuple)) else str(length)
    topics = record.manifest.sources.get("topics", {})
    return [
        {"name": "seeds", "value": str(summary.get("seeds", MISSING)), "below": f"{summary['steps']:,} steps each"},
        {
            "name": "loss",
            "value": str(training["loss"]),
            "below": f"{training['optimizer']}, learning rate {training['learning_rate']:g}",
        },
        {
            "name": "topics",
            "value": str(topics.get("number", MISSING)),
            "below": f"{topics.get('words', MISSING)} words, document length {span}",
        },
    ]


def _tables(record: RunRecord) -> dict[str, Any]:
    """Tables by their names in the template: those of theory, the final weights, and the stages where there are any."""
    theory_tables = []
    for part, caption in (
        ("value_matrix", "Mean entries of W_V"),
        ("embedding", "Inner products of embeddings: same topic minus different topic"),
        ("attention", "Attention relative to words of different topics"),
    ):
        beside = record.summary.get(part)
        if not beside:
            continue
        theory, away = beside["theory"] or {}, beside["relative_deviation"] or {}
        columns = ["entries", "measured", "sd over seeds", *(["theory", "deviation"] if theory else [])]
        rows = [
            [name.replace("_", " "), number(value, 4), number(beside["sd"].get(name), 2)]
            + ([number(theory.get(name), 4), percent(away.get(name))] if theory else [])
            for name, value in beside["measured"].items()
        ]
        note = f"No theory here: {beside['no_theory']}." if beside["no_theory"] else _NOTES.get(part, "")
        theory_tables.append(Table(caption, columns, rows, note))
    final = [
        # The matrix as it is written, the rest as words: W_V_same is "W_V same".
        [re.sub(r"(?<!^W)_", " ", str(row["measurement"])), number(row["mean"], 4), number(row["sd"], 2)]
        for _, row in record.table().iterrows()
    ]
    stages = [
        [str(s["seed"]), count(s["k1"]), count(s["k2"]), number(s["ratio"]), str(s["verdict"])]
        for s in record.summary.get("stages") or []
    ]
    stages_note = (
        "k₂: first step at which W_K or W_Q has moved by a tenth of its first norm. k₁: first step at which W_V has "
        "covered nine tenths of its way to k₂. Separate stages: k₂ / k₁ is at least 3."
    )
    stages_columns = ["seed", "k₁: W_V settled", "k₂: attention moved", "k₂ / k₁", "verdict"]
    return {
        "theory": theory_tables,
        "final": Table("On the final weights", ["measurement", "mean over seeds", "sd over seeds"], final),
        "stages": Table("Stages", stages_columns, stages, stages_note) if stages else None,
    }
