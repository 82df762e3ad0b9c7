"""`topicscope probe`: the main job, for one model or for the checkpoints of a training run; and `topicscope demo`."""

import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import ClusterOptions, CorpusOptions, RunOptions, command_line, going_on
from topicscope.cli.output import INTERRUPTED, print_json, print_lines, print_table, show_progress
from topicscope.errors import InputError
from topicscope.monitoring import RECORD, CheckpointSeries, probe_checkpoints
from topicscope.options import MODEL, OUTPUT, TEXT, TOPICS
from topicscope.probing import ProbeConfig
from topicscope.probing import probe as run_probe
from topicscope.probing.results import ProbeResult
from topicscope.records import PAGE
from topicscope.report import EMBEDDING_COLUMNS, Table, attention_table, embedding_table, paper_table
from topicscope.text import open_corpus

_WIDTH, _WIDEST = 78, 24  # characters of a terminal of unknown width, and of a column before it is broken


def probe(
    model: Annotated[str | None, MODEL] = None,
    /,
    *,
    checkpoints: Annotated[str | None, MODEL] = None,
    corpus: Annotated[str, TEXT] = "wikipedia-sample",
    text: CorpusOptions = CorpusOptions(),
    topics: Annotated[str, TOPICS] = "100",
    config: ProbeConfig = ProbeConfig(),
    cluster: ClusterOptions = ClusterOptions(),
    run: RunOptions = RunOptions(),
) -> int:
    """Measure topic structure in a pretrained model.

    Parameters
    ----------
    model
        Hugging Face name or folder of a model; "minilm" is the demo's embedded model.
    checkpoints
        In place of a model: a folder of checkpoints, or MODEL@REV1,REV2; each is probed, and one curve drawn.
    corpus
        Text (.txt, .jsonl, .csv, .parquet, MediaWiki .xml; also .gz .bz2 .zst; a folder or pattern of these), its URL
        (s3://, gs://, https://, …), or wikipedia-sample.
    topics
        How many topics to fit, or a file (or its URL): topics.npz, a matrix, or a word list with the header word,topic.
    """
    name = model or checkpoints
    if not name or (model and checkpoints):
        raise InputError(
            "a probe needs MODEL, or --checkpoints in its place" + ("; both were given" if name else ""),
            advice="topicscope probe --help",
        )
    out = run.folder(re.sub(r"[^A-Za-z0-9.]+", "-", Path(name).name).strip("-.") or "model")
    documents = open_corpus(corpus, **asdict(text))
    given: dict[str, Any] = {"topics": topics, "config": config, "out": out, "resume": run.resume}
    given |= {"overwrite": run.overwrite, "command": command_line()}
    if checkpoints is not None:
        if cluster.cluster is not None:
            received = f"{cluster.cluster} and --checkpoints {checkpoints}"
            raise InputError("--cluster is of one model", received=received)
        with show_progress(run.progress) as progress:
            series = probe_checkpoints(checkpoints, documents, on_error=text.on_error, progress=progress, **given)
            for checkpoint in series.checkpoints:
                if checkpoint["status"] == "measured":
                    series.result(checkpoint["name"]).report()
            series.report()
        if run.json:
            print_json(series.to_dict())
        else:
            show_series(series, str(out))
            if series.interrupted:
                print_lines([going_on(out)])
        return INTERRUPTED if series.interrupted else 0
    with show_progress(run.progress) as progress, cluster.open() as readers:
        result = run_probe(name, documents=documents, cluster=readers, progress=progress, **given)
        result.report()
    if run.json:
        print_json(result.to_dict())
    else:
        show(result, str(out))
        if not result.complete:
            print_lines([going_on(out)])
    return INTERRUPTED if result.interrupted else int(not result.complete)


def show(result: ProbeResult, folder: str) -> None:
    """The answer, the measured tables, the paper's rows and the warnings, on stdout."""
    print_lines([str(result), ""])
    rows = result.rows.to_dict(orient="records")
    measured = [row for row in rows if row["source"] == "measured"]
    attention = attention_table(measured)
    _show(attention.only(*attention.columns[1:]) if len({row["part"] for row in measured}) == 1 else attention)
    if result.costs:
        seconds = "{collecting:.1f} s to collect word pairs, {shuffling:.1f} s to shuffle".format(**result.costs)
        print_lines([f"shuffles cost {seconds}"])
    embeddings = result.embeddings
    if len(embeddings):
        # The dot product of what is not the model's own, and what stands beside S and D, are on the page.
        shown = embeddings[embeddings["place"].isin(("raw", "layer")) | (embeddings["kind"] == "cosine")]
        _show(embedding_table(shown.to_dict(orient="records")).only(*EMBEDDING_COLUMNS))
    _show(paper_table([row for row in rows if row["source"] == "paper"]))
    print_lines([f"warning: {warning}" for warning in result.warnings])
    print_lines([f"report: {folder}/report.html", f"result: {folder}/result.json"])


def _show(table: Table) -> None:
    """A table on stdout: where it is too wide, its further columns in a table below, beside what names the rows."""
    names = list(table.columns[: table.row_headers])
    columns = dict(zip(table.columns, zip(*table.rows, strict=True), strict=True))
    words = {name: [*name.split(), *cells] for name, cells in columns.items()}
    widths = {name: min(max(map(len, found)), _WIDEST) + 3 for name, found in words.items()}
    terminal = get_terminal_size((_WIDTH, 24)).columns
    blocks = [list(names)]
    for name in table.columns[len(names) :]:
        shown = blocks[-1]
        if len(shown) > len(names) and sum(widths[one] for one in (*shown, name)) > terminal:
            blocks.append(list(names))
        blocks[-1].append(name)
    for number, shown in enumerate(blocks):
        block = table.only(*shown)
        rows = [[cell.replace("\u00a0", " ") for cell in row] for row in block.rows]
        note = table.note if number == len(blocks) - 1 else None
        print_table("" if number else table.caption, block.columns, rows, note)


def show_series(series: CheckpointSeries, folder: str) -> None:
    """The answer, a line for each checkpoint, and what was skipped."""
    print_lines([str(series), ""])
    rows = []
    for name, found in series.rows.groupby("checkpoint", sort=False):
        embeddings = found[found["quantity"] == "embeddings"].iloc[:1]
        attention = found[found["quantity"] == "attention"].iloc[:1]
        ov = found[found["quantity"] == "ov"].sort_values("z").iloc[-1:]
        cells = [_cell(embeddings, "difference", ".2g"), _cell(embeddings, "ratio", ".2f"), _z(embeddings)]
        cells += [_cell(ov, "difference", ".1g"), _z(ov)]
        cells += [f"{_cell(attention, 'ratio', '.3f')} ±{_cell(attention, 'ratio_se', '.3f')}", _z(attention)]
        rows.append([name, *cells])
    print_table(
        "Topic structure by checkpoint",
        ["checkpoint", "S-D", "S/D", "z", "OV S-D", "z", "attention", "z"],
        rows,
        "S, D: mean cosine of same-topic and different-topic words; OV: the layer with the largest z; attention: "
        "same/different, of the first part (position-corrected where it is causal); z: topics shuffled over words, of "
        "like frequency where there are enough",
        unbroken=["checkpoint", "S-D", "S/D", "z", "OV S-D", "attention"],
    )
    for checkpoint in series.checkpoints:
        if checkpoint["status"] == "skipped":
            print_lines([f"skipped: {checkpoint['name']}: {checkpoint['reason']}"])
    print_lines([f"report: {folder}/{PAGE}", f"result: {folder}/{RECORD}"])


def _cell(rows: pd.DataFrame, name: str, form: str) -> str:
    value = float(rows[name].iloc[0]) if len(rows) else math.nan
    return "-" if math.isnan(value) else f"{value:{form}}"


def _z(rows: pd.DataFrame) -> str:
    banded = _cell(rows, "z_banded", ".1f")
    return _cell(rows, "z", ".1f") if banded == "-" else banded


DEMO = ProbeConfig(topic_seeds=3, threshold=(0.001, 0.002, 0.004), max_units=2500)


def demo(
    *,
    out: Annotated[Path, OUTPUT] = Path("demo"),
    run: Annotated[RunOptions, Parameter(parse="^(run|json|progress)$")] = RunOptions(),
) -> int:
    """Probe MiniLM, a sentence encoder of 22 million parameters, on gensim's sample of English Wikipedia.

    Parameters
    ----------
    out
        Folder for the result; an earlier result of the demo is replaced, anything else is refused.
    """
    return probe("minilm", topics="50", config=DEMO, run=replace(run, out=out, overwrite=True))
