"""`topicscope train`: a recipe, several seeds, and theory beside what came out."""

from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import RunOptions, command_line
from topicscope.cli.output import print_json, print_lines, print_table, show_progress
from topicscope.experiments import add_theory, resolve
from topicscope.lab import load_recipe
from topicscope.lab import train as run_training
from topicscope.options import Whole
from topicscope.records import SUMMARY, write_json

# What a record may hold of theory beside measurements, and its heading.
_BESIDE = {
    "value_matrix": "W_V: block means",
    "embedding": "E = W_Eᵀ W_E: same - different topic",
    "attention": "Attention relative to pairs of different topics, and the best topic-wise weights",
}


def train(
    recipe: Path,
    /,
    *,
    seeds: Whole = 1,
    set_: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    run: RunOptions = RunOptions(),
) -> None:
    """Train the paper's transformers from a recipe, for several seeds at once.

    Parameters
    ----------
    recipe
        A TOML recipe; `recipes/` holds one for each experiment of the paper.
    seeds
        Number of runs; they are trained together.
    set_
        Change one value of the recipe, table.key=value, such as training.steps=2000; may be given several times.
    """
    chosen = load_recipe(recipe, set_)
    target = run.folder(chosen.name)
    arrays, references = resolve(chosen)
    with show_progress(run.progress) as bars:
        record = run_training(
            chosen,
            seeds=seeds,
            out=target,
            resume=run.resume,
            overwrite=run.overwrite,
            arrays=arrays,
            references=references,
            progress=bars,
            command=command_line(),
        )
        add_theory(record, chosen)
        write_json(target / SUMMARY, record.to_dict())
        page = record.report()
    if run.json:
        print_json(record.to_dict())
        return
    summary = record.summary
    engine = f"{summary['engine']} engine" + (f" ({summary['engine_reason']})" if summary["engine_reason"] else "")
    title = f"{summary['name']}: {summary['seeds']} seed(s), {summary['steps']} steps, {engine}, {summary['seconds']} s"
    print_lines([title, *([chosen.description] if chosen.description else []), ""])
    for name, heading in _BESIDE.items():
        if name in summary:
            part, theory = summary[name], summary[name]["theory"] or {}
            apart = {name: value for name, value in (part["relative_deviation"] or {}).items() if value is not None}
            print_table(
                heading,
                ["entries", "measured", "sd", "theory", "deviation"],
                [
                    [
                        name,
                        value,
                        part["sd"][name],
                        theory.get(name),
                        f"{100 * apart[name]:+.2f} %" if name in apart else None,
                    ]
                    for name, value in part["measured"].items()
                ],
                part["no_theory"] and f"no theory: {part['no_theory']}",
            )
    print_table(
        "On the final weights: mean over seeds",
        ["measurement", "mean", "sd"],
        [
            [measurement, *(None if pd.isna(value) else float(value) for value in values)]
            for measurement, *values in record.table().itertuples(index=False)
        ],
        f"frozen: {', '.join(summary['frozen']) or 'nothing'}",
    )
    print_lines([f"seed {stages['seed']}: {stages['verdict']}" for stages in summary.get("stages", [])])
    print_lines([f"record: {target}", f"page: {page}"])
