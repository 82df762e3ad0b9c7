"""`topicscope probe`: the main job.

`topicscope probe --checkpoints`: a curve over the checkpoints of a training run.

`topicscope demo`: a real model on real Wikipedia text, offline.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import OutFolder, Whole, asked_cluster, command_line, fresh_folder, going_on
from topicscope.cli.output import INTERRUPTED, ProgressStyle, print_json, print_lines, print_table, show_progress
from topicscope.cli.probe_tables import show
from topicscope.demo import minilm_folder
from topicscope.errors import InputError
from topicscope.monitoring import RECORD, CheckpointSeries, probe_checkpoints
from topicscope.probing import DEFAULT_THRESHOLDS
from topicscope.probing import probe as run_probe
from topicscope.records import PAGE
from topicscope.text import MAX_DOCUMENT_BYTES, Corpus, OnError, open_corpus

_THRESHOLDS = Parameter(consume_multiple=True, negative="", show_default=lambda values: " ".join(map(str, values)))
_NUMBERS = Parameter(consume_multiple=True, negative="")


def probe(
    model: str | None = None,
    /,
    *,
    checkpoints: str | None = None,
    corpus: str = "wikipedia-sample",
    topics: str = "100",
    threshold: Annotated[tuple[float, ...], _THRESHOLDS] = DEFAULT_THRESHOLDS,
    unit: Literal["sentence", "passage"] = "sentence",
    max_units: Whole | None = None,
    controls: Whole = 5,
    permutations: Whole = 1000,
    exclude_sinks: Annotated[bool, Parameter(negative="")] = False,
    topic_seeds: Whole = 1,
    overlap: Literal["drop", "keep"] = "drop",
    pieces: Literal["skip", "merge"] = "skip",
    layers: Annotated[tuple[Whole, ...] | None, _NUMBERS] = None,
    heads: Annotated[tuple[Whole, ...] | None, _NUMBERS] = None,
    contextual: Annotated[bool, Parameter(negative="")] = False,
    profile: Whole = 64,
    out: OutFolder | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    text_column: str | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    on_error: OnError = "stop",
    max_document_bytes: Whole = MAX_DOCUMENT_BYTES,
    language: str = "en",
    min_count: Whole = 5,
    sweeps: Whole = 300,
    seed: Whole = 0,
    shard_units: Whole | None = None,
    batch_tokens: Whole | None = None,
    batch_size: Whole | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
    cluster: str | None = None,
    workers: Whole | None = None,
    gpus_per_worker: float = 0.0,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    progress: ProgressStyle = "auto",
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
    threshold
        Share of the vocabulary kept for each topic; several may be given.
    unit
        What the model reads at a time.
    max_units
        Read a seeded sample of this many units. Topics are fitted on the whole corpus all the same.
    controls
        Random initialisations of the model to compare with.
    permutations
        Shuffles of the topics over words of like frequency, which the verdict needs; 0 for none and no verdict.
    exclude_sinks
        Read the text once more without the keys that draw attention anyway: first token, separators, punctuation.
    topic_seeds
        Topic models with different seeds; their spread is reported.
    overlap
        Words of several topics belong to none of them (drop, the paper) or to all (keep).
    pieces
        Words broken into pieces are skipped and counted (the paper), or merged into one word each.
    layers
        Read these layers only, numbered from 0, and run the model no further than the last of them.
    heads
        Read these heads of each layer only.
    contextual
        Compare the mean states of words in the text as well, layer by layer; one more pass for each control too.
    profile
        Profile every head on a sample of this many units: where else it looks, and sentences as examples. 0: none.
    out
        Folder for the result; a fresh one under topicscope-runs/ unless given.
    resume
        Go on with a run to --out that was stopped or killed, to the same numbers.
    overwrite
        Replace an earlier result in --out; a folder with anything else in it is refused.
    text_column
        Column of the text in .jsonl, .csv and .parquet (default: text).
    id_column
        Column of the document id.
    encoding
        Encoding of text files.
    on_error
        A bad line, or a checkpoint that cannot be read, ends the run, or is skipped and counted.
    max_document_bytes
        A longer document or line is a bad one.
    language
        Language of stop words and sentences.
    min_count
        Words rarer than this stay out of the topic model.
    sweeps
        Gibbs sweeps of the topic model.
    seed
        Seed of the sample, the topic models and the random controls.
    shard_units
        Least units of a shard, of whole documents: what a worker of a cluster reads at a time.
    batch_tokens
        Tokens read at once, padding counted; 2048 on a CPU and 16384 elsewhere unless given.
    batch_size
        Most units read at once; as many as the tokens allow unless given.
    device
        cpu, cuda, cuda:N or mps; auto takes the best that is there.
    dtype
        float32, float16 or bfloat16.
    revision
        Revision of the model on the hub; MODEL@REVISION says the same.
    trust_remote_code
        Run the code that comes with a model; the model's name must be repeated here.
    cluster
        Who reads the text: local (processes of this machine), auto (its Ray cluster) or ray://HOST:PORT.
    workers
        Models that the cluster holds at once; as many as it has room for unless given.
    gpus_per_worker
        GPUs of each worker, or a share of one; 0 to compute on CPUs.
    json
        Print result.json on stdout.
    progress
        How progress is shown on stderr.
    """
    if (model is None) == (checkpoints is None):
        raise InputError(
            "a probe needs MODEL, or --checkpoints in its place" + ("" if model is None else "; both were given"),
            advice="topicscope probe --help",
        )
    name = str(model if checkpoints is None else checkpoints)
    if resume and out is None:
        raise InputError("--resume needs the folder of the run", expected="--out DIR")
    target = fresh_folder(_slug(name)) if out is None else out
    source = open_corpus(
        corpus,
        text_column=text_column,
        id_column=id_column,
        encoding=encoding,
        on_error=on_error,
        max_document_bytes=max_document_bytes,
    )
    options: dict[str, Any] = {
        "topics": topics,
        "threshold": threshold,
        "unit": unit,
        "max_units": max_units,
        "controls": controls,
        "permutations": permutations,
        "exclude_sinks": exclude_sinks,
        "topic_seeds": topic_seeds,
        "overlap": overlap,
        "language": language,
        "min_count": min_count,
        "sweeps": sweeps,
        "seed": seed,
        "pieces": pieces,
        "layers": layers,
        "heads": heads,
        "contextual": contextual,
        "profile": profile,
        "shard_units": shard_units,
        "batch_tokens": batch_tokens,
        "batch_size": batch_size,
        "device": device,
        "dtype": dtype,
        "trust_remote_code": trust_remote_code,
        "command": command_line(),
        "out": target,
        "resume": resume,
        "overwrite": overwrite,
    }
    if checkpoints is not None:
        for option, value in (("--cluster", cluster), ("--revision", revision)):
            if value is not None:
                raise InputError(f"{option} is of one model", received=f"{value} and --checkpoints {checkpoints}")
        return probe_series(checkpoints, source, options | {"on_error": on_error}, json=json, progress=progress)
    with show_progress(progress) as shown, asked_cluster(cluster, workers, gpus_per_worker) as readers:
        result = run_probe(
            resolve_model(name), documents=source, revision=revision, progress=shown, cluster=readers, **options
        )
        result.report()
    if json:
        print_json(result.to_dict())
    else:
        show(result, str(target))
        if not result.complete:
            print_lines([going_on(target)])
    return INTERRUPTED if result.interrupted else int(not result.complete)


def resolve_model(name: str) -> str:
    """A model's name or folder; "minilm" stands for the folder of the demo's embedded model."""

    return str(minilm_folder()) if name.lower() == "minilm" and not Path(name).exists() else name


def _slug(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", Path(model).name).strip("-.") or "model"


def probe_series(
    checkpoints: str, corpus: Corpus, options: Mapping[str, Any], *, json: bool, progress: ProgressStyle
) -> int:
    """Probe, print, and return the exit code: 0 all done (skipped ones are named), 130 interrupted."""
    with show_progress(progress) as shown:
        series = probe_checkpoints(checkpoints, corpus, progress=shown, **options)
        for checkpoint in series.checkpoints:
            if checkpoint["status"] == "measured":
                series.result(checkpoint["name"]).report()
        series.report()
    if json:
        print_json(series.to_dict())
    else:
        show_series(series, str(options["out"]))
        if series.interrupted:
            print_lines([going_on(options["out"])])
    return INTERRUPTED if series.interrupted else 0


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


OPTIONS = {"topics": "50", "topic_seeds": 3, "controls": 5, "threshold": (0.001, 0.002, 0.004), "max_units": 2500}


def demo(
    *,
    out: Path = Path("demo"),
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    progress: ProgressStyle = "auto",
) -> int:
    """Probe MiniLM, a sentence encoder of 22 million parameters, on gensim's sample of English Wikipedia.

    Parameters
    ----------
    out
        Folder for the result; an earlier result of the demo is replaced, anything else is refused.
    json
        Print result.json on stdout.
    progress
        How progress is shown on stderr.
    """
    return probe("minilm", out=out, overwrite=True, json=json, progress=progress, **OPTIONS)  # type: ignore[arg-type]
