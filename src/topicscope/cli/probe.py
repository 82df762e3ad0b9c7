"""`topicscope probe`: the main job, for one model or for the checkpoints of a training run; and `topicscope demo`."""

import math
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from topicscope.cli.options import ClusterOptions, CorpusOptions, RunOptions, command_line, going_on
from topicscope.cli.output import INTERRUPTED, print_json, print_lines, print_table, show_progress
from topicscope.cli.probe_tables import show
from topicscope.errors import InputError
from topicscope.monitoring import RECORD, CheckpointSeries, probe_checkpoints
from topicscope.options import MODEL, OUTPUT, TEXT, TOPICS, only
from topicscope.probing import ProbeConfig
from topicscope.probing import probe as run_probe
from topicscope.records import PAGE
from topicscope.text import open_corpus


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
    run: Annotated[RunOptions, only("run", "json", "progress")] = RunOptions(),
) -> int:
    """Probe MiniLM, a sentence encoder of 22 million parameters, on gensim's sample of English Wikipedia.

    Parameters
    ----------
    out
        Folder for the result; an earlier result of the demo is replaced, anything else is refused.
    """
    return probe("minilm", topics="50", config=DEMO, run=replace(run, out=out, overwrite=True))
