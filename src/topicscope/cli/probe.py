"""`topicscope probe`: the main job."""

import math
import re
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import Whole
from topicscope.cli.output import ProgressStyle, print_json, print_lines, print_table, show_progress
from topicscope.probing.options import DEFAULT_THRESHOLDS
from topicscope.probing.probe import probe as run_probe
from topicscope.probing.result import ProbeResult
from topicscope.topics.text import MAX_DOCUMENT_BYTES, OnError, open_corpus

INTERRUPTED = 130
_THRESHOLDS = Parameter(consume_multiple=True, negative="", show_default=lambda values: " ".join(map(str, values)))
_NUMBERS = Parameter(consume_multiple=True, negative="")


def probe(
    model: str,
    /,
    *,
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
    out: Path | None = None,
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
    batch_tokens: Whole | None = None,
    batch_size: Whole | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    progress: ProgressStyle = "auto",
) -> int:
    """Measure topic structure in a pretrained model.

    Parameters
    ----------
    model
        Hugging Face name or folder of a model; "minilm" is the demo's embedded model.
    corpus
        Text (.txt, folder, .jsonl, .csv, .parquet, MediaWiki .xml; also .gz .bz2 .zst), or wikipedia-sample.
    topics
        How many topics to fit, or a file: topics.npz, a matrix, or a word list with the header word,topic.
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
        Replace what is in --out.
    text_column
        Column of the text in .jsonl, .csv and .parquet (default: text).
    id_column
        Column of the document id.
    encoding
        Encoding of text files.
    on_error
        A bad line ends the run, or is skipped and counted.
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
    json
        Print result.json on stdout.
    progress
        How progress is shown on stderr.
    """
    target = Path("topicscope-runs") / f"{_slug(model)}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else out
    source = open_corpus(
        corpus,
        text_column=text_column,
        id_column=id_column,
        encoding=encoding,
        on_error=on_error,
        max_document_bytes=max_document_bytes,
    )
    with show_progress(progress) as shown:
        result = run_probe(
            resolve_model(model),
            documents=source,
            topics=topics,
            threshold=threshold,
            unit=unit,
            max_units=max_units,
            controls=controls,
            permutations=permutations,
            exclude_sinks=exclude_sinks,
            topic_seeds=topic_seeds,
            overlap=overlap,
            language=language,
            min_count=min_count,
            sweeps=sweeps,
            seed=seed,
            pieces=pieces,
            layers=layers,
            heads=heads,
            contextual=contextual,
            profile=profile,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            progress=shown,
            command=shlex.join(["topicscope", *sys.argv[1:]]),
            out=target,
            resume=resume,
            overwrite=overwrite,
        )
    if json:
        print_json(result.to_dict())
    else:
        show(result, target)
        if result.interrupted:
            print_lines([f"to go on: the same command with --out {shlex.quote(str(target))} --resume"])
    return INTERRUPTED if result.interrupted else 0


def show(result: ProbeResult, folder: Path) -> None:
    """The answer, the measured table, the paper's rows and the warnings, on stdout."""
    print_lines([str(result), ""])
    table = result.table()
    measured = table[table["source"] == "measured"]
    _show_attention(measured)
    _show_verdicts(measured)
    if result.costs:
        seconds = "{collecting:.1f} s to collect word pairs, {shuffling:.1f} s to shuffle".format(**result.costs)
        print_lines([f"shuffles cost {seconds}"])
    _show_embeddings(result.embeddings)
    paper = table[table["source"] == "paper"]
    print_table(
        "The paper's table: 100 topics, all of Wikipedia (Li, Li & Risteski 2023)",
        ["model", "θ", "attention", "cosine S/D", "dot S/D"],
        [
            [row["model"], _number(row["threshold"]), f"{row['attention_ratio']:.3f}"]
            + [f"{row[f'embedding_{kind}_layer_ratio']:.3f}" for kind in ("cosine", "dot")]
            for _, row in paper.iterrows()
        ],
    )
    print_lines([f"warning: {warning}" for warning in result.warnings])
    print_lines([f"report: {folder / 'report.html'}", f"result: {folder / 'result.json'}"])


def resolve_model(name: str) -> str:
    """A model's name or folder; "minilm" stands for the folder of the demo's embedded model."""
    from topicscope.probing.minilm import minilm_folder

    return str(minilm_folder()) if name.lower() == "minilm" and not Path(name).exists() else name


def _show_attention(measured: pd.DataFrame) -> None:
    """One row per part and threshold; columns that have nothing to say are left out to fit 80 characters."""
    parts = list(dict.fromkeys(measured["part"]))
    causal = bool(measured["attention_ratio_position_corrected"].notna().any())
    seeds = bool(measured["attention_ratio_topic_sd"].notna().any())
    columns = {
        "part": [*measured["part"]] if len(parts) > 1 else None,
        "θ": [_number(value) for value in measured["threshold"]],
        "all pairs": _with_errors(measured, "attention_ratio"),
        "distinct": _with_errors(measured, "attention_ratio_distinct"),
        "distance": _with_errors(measured, "attention_ratio_distance_matched"),
        "position": _with_errors(measured, "attention_ratio_position_corrected") if causal else None,
        "seed sd": [_number(value, 2) for value in measured["attention_ratio_topic_sd"]] if seeds else None,
        "random": [_control_interval(row) for _, row in measured.iterrows()],
    }
    shown = {name: cells for name, cells in columns.items() if cells is not None}
    pairs = ", ".join(f"{row['pairs_same']:.0f}/{row['pairs_different']:.0f}" for _, row in measured.iterrows())
    notes = [
        "± standard error, clustered by document; distinct: two different words; distance: both classes reweighted to",
        "the same distances;",
        "position: rows corrected for their length;" if causal else "",
        "seed sd: spread over topic models;" if seeds else "",
        f"random: 95 % interval with random weights; same/different pairs: {pairs}",
    ]
    where = f" ({parts[0]})" if len(parts) == 1 else ""
    title = f"Attention{where}: mean over same-topic pairs / mean over different-topic pairs"
    print_table(title, list(shown), list(zip(*shown.values(), strict=True)), " ".join(note for note in notes if note))


def _show_verdicts(measured: pd.DataFrame) -> None:
    """The ratios of different words that leave least to other reasons, the shuffles, and the verdict."""
    parts = list(dict.fromkeys(measured["part"]))
    columns = {
        "part": [*measured["part"]] if len(parts) > 1 else None,
        "θ": [_number(value) for value in measured["threshold"]],
        "+distance": _with_errors(measured, "attention_ratio_distinct_distance_matched"),
        "+frequency": _with_errors(measured, "attention_ratio_distinct_frequency_matched"),
        "p": [_number(value, 2) for value in measured["permutation_p"]],
        "verdict": [*measured["verdict"]],
    }
    shown = {name: cells for name, cells in columns.items() if cells is not None}
    print_table(
        "Verdicts, on distinct words",
        list(shown),
        list(zip(*shown.values(), strict=True)),
        "+distance, +frequency: the two classes also matched by distance, by the frequency of both words; p: topics "
        "shuffled over words of like frequency; the verdict needs p < .05 and +distance beyond random weights",
    )


def _show_embeddings(embeddings: pd.DataFrame) -> None:
    """Cosine at every place, and the dot product of the model's own vectors; averages over topic seeds."""
    if embeddings.empty:
        return
    own = embeddings["place"].isin(("raw", "layer"))
    shown = embeddings[own | (embeddings["kind"] == "cosine")]
    rows = []
    for (place, kind, _), seeds in shown.groupby(["place", "kind", "threshold"], sort=False, dropna=False):
        mean = seeds.mean(numeric_only=True, skipna=False)
        names = ("threshold", "same", "different", "difference", "ratio", "z_banded")
        numbers = [_number(float(mean[name]), 3) for name in names]
        verdicts = dict.fromkeys(verdict.removeprefix("same-topic similarity ") for verdict in seeds["verdict"])
        rows.append([place if kind == "cosine" else f"{place} ({kind})", *numbers, "; ".join(verdicts)])
    print_table(
        "Embeddings: mean similarity of same-topic (S) and different-topic (D) words",
        ["place", "θ", "S", "D", "S-D", "S/D", "z", "verdict"],
        rows,
        "cosine, or the dot product where it says so; layer: embedding layer's output, every word at position 1 "
        "(layer_first: 0); cooccurrence: no model, which words stand near each other; z: topics shuffled over words of "
        "like frequency; the verdict needs p < .05 and S-D beyond random weights; S/D is withheld (-) where D is "
        "within two standard errors of 0",
        unbroken=["place"],
    )


def _with_errors(rows: pd.DataFrame, name: str) -> list[str]:
    pairs = zip(rows[name], rows[f"{name}_se"], strict=True)
    return ["-" if math.isnan(value) else f"{value:.3f} ±{error:.3f}" for value, error in pairs]


def _control_interval(row: pd.Series) -> str:
    """With the position correction for causal parts, whose plain ratio is not 1 even at random."""
    corrected = not math.isnan(row["attention_ratio_position_corrected"])
    name = "control_attention_ratio" + ("_position_corrected" if corrected else "")
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if math.isnan(low) else f"{low:.3f}-{high:.3f}"


def _number(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def _slug(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", Path(model).name).strip("-.") or "model"
