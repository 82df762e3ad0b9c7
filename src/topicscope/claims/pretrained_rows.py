"""One model's rows of Knowl 7's table: attention and embeddings at every threshold, each beside its random weights."""

import math
import tomllib
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import stdtrit

from topicscope.claims.claim import Row
from topicscope.claims.rows import exact_row, measured_row, not_run_row
from topicscope.experiments import Kind, SmallBert, recipe_path
from topicscope.probing import FittedTopics, ProbeOptions, configurations_of, probe
from topicscope.probing.embeddings import embedding_rows
from topicscope.probing.hf import ModelView
from topicscope.probing.results import ProbeResult, paper_rows
from topicscope.progress import Progress
from topicscope.text import Corpus
from topicscope.topics import Topics

RECIPE = "pretrained-table"
ATTENTION = "attention, same / different topic"
RATIOS = {"attention": "attention_ratio", "cosine": "embedding_cosine_layer_ratio", "dot": "embedding_dot_layer_ratio"}
WORDS = {"attention": ATTENTION, "cosine": "cosine of embeddings, S/D", "dot": "dot product of embeddings, S/D"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reading(_Part):
    """Text, topics and thresholds, as `topicscope.probe` takes them."""

    documents: str = "wikipedia-sample"
    topics: int = Field(100, ge=2)
    sweeps: int = Field(300, ge=1)
    threshold: tuple[float, ...] = (0.0005, 0.001, 0.002)
    unit: Literal["sentence", "passage"] = "sentence"


class Size(_Part):
    """Units and random initialisations a model; `large`: fewer units for slow models, by name."""

    units: int = Field(ge=1)
    controls: int = Field(ge=2, description="at least 2: their spread is an error")
    large: dict[str, int] = Field(default_factory=dict)


class TableRecipe(_Part):
    """The part of the recipe `pretrained-table` that is not a list of models, for one run."""

    reading: Reading
    size: Size
    bert: SmallBert


def table_recipe(*, quick: bool) -> TableRecipe:
    """The settings of the recipe file, in their quick or full form."""
    with recipe_path(RECIPE).open("rb") as stream:
        text = tomllib.load(stream)
    size, bert = dict(text["size"]), dict(text["small-bert"])
    fewer, short = size.pop("quick"), bert.pop("quick_steps")
    return TableRecipe(
        reading=Reading(**text["probe"]),
        size=Size(**(size | fewer if quick else size)),
        bert=SmallBert(**(bert | {"steps": short} if quick else bert)),
    )


@dataclass(frozen=True)
class Probed:
    """A model to probe: how it is called, its kind, and its name in the paper's table, if it has one."""

    view: ModelView
    label: str
    kind: Kind
    paper: str | None = None


def model_rows(
    model: Probed, reading: Reading, size: Size, corpus: Corpus, topics: Topics, progress: Progress
) -> list[Row]:
    """Knowl 7's measures of one model at every threshold, each followed by that of its random weights.

    Attention: the ratio of the first part (a causal part's by row position corrected) with the probe's interval,
    clustered by article.
    Embeddings at the output of the embedding layer: S - D, which is defined where a ratio is not, ± t·se of the
    jackknife over words; and S/D beside the paper's, where D is away from 0. Random weights: mean over
    initialisations ± t·se.

    Raises:
        KeyboardInterrupt: stopped half-way; a part of the text is no result.
    """
    options = ProbeOptions.checked(
        threshold=reading.threshold, unit=reading.unit, max_units=size.units, controls=size.controls
    )
    result = probe(model.view, documents=corpus, topics=topics, progress=progress, **options.model_dump())
    if result.interrupted:
        raise KeyboardInterrupt
    configurations = configurations_of(FittedTopics((topics,), None, {}), options)
    random = pd.concat([embedding_rows(model.view.randomised(seed), configurations) for seed in range(size.controls)])
    middle = sorted(reading.threshold)[len(reading.threshold) // 2]
    printed = {row["threshold"]: row for row in paper_rows() if row["model"] == model.paper}
    rows: list[Row] = []
    for theta in reading.threshold:
        paper = {name: printed.get(theta, {}).get(column) for name, column in RATIOS.items()}
        rows += _attention(model, result, theta, theta == middle, paper["attention"])
        for name in ("cosine", "dot"):
            found, drawn = (_layer(table, theta, name) for table in (result.embeddings, random))
            rows += _embeddings(model, name, found, drawn, theta, theta == middle and name == "cosine", paper[name])
    return rows


def _attention(model: Probed, result: ProbeResult, theta: float, decides: bool, paper: float | None) -> list[Row]:
    part = model.view.parts[0]
    ratio = "attention_ratio_position_corrected" if part.causal else "attention_ratio"
    what = f"{_start(model, theta)}: {ATTENTION}{', corrected by row position' if part.causal else ''}"
    table, drawn = result.rows, result.controls
    chosen = (table["source"] == "measured") & (table["part"] == part.name) & (table["threshold"] == theta)
    found = table[chosen].iloc[0]
    values = drawn[(drawn["part"] == part.name) & (drawn["threshold"] == theta)][ratio]
    control = measured_row(None, f"{what}, random weights", values) | _about(model, theta)
    row = exact_row(_judged(model, "attention", decides), what, float(found[ratio]), paper=paper)
    # The probe's own interval: t of the effective number of articles, of which a few long ones leave few.
    return [_beside(row, float(found[f"{ratio}_high"] - found[ratio]), control) | _about(model, theta), control]


def _embeddings(
    model: Probed,
    name: str,
    table: pd.DataFrame,
    random: pd.DataFrame,
    theta: float,
    decides: bool,
    paper: float | None,
) -> list[Row]:
    found = table.iloc[0]
    words, withheld = int(found["num_words"]), found["ratio_withheld"]
    t = float(stdtrit(words - 1, 0.975)) if words > 1 else math.nan
    what = f"{_start(model, theta)}: {name} of embeddings, same - different topic"
    control = measured_row(None, f"{what}, random weights", random["difference"]) | _about(model, theta)
    row = exact_row(_judged(model, "embeddings", decides), what, float(found["difference"]), ratio_withheld=withheld)
    rows = [_beside(row, t * float(found["difference_se"]), control) | _about(model, theta), control]
    if withheld is None:
        ratio = exact_row(None, f"{_start(model, theta)}: {WORDS[name]}", float(found["ratio"]), paper=paper)
        rows.append(ratio | {"error": t * float(found["ratio_se"])} | _about(model, theta))
    return rows


def _start(model: Probed, theta: float) -> str:
    return f"{model.label} ({model.kind}), θ = {theta:g}"


def _about(model: Probed, theta: float) -> Row:
    return {"model": model.label, "kind": model.kind, "threshold": theta}


def _judged(model: Probed, name: str, decides: bool) -> str | None:
    """Only models that were trained as the paper's are judged; `decides`: by the decisive criterion."""
    if model.kind != "masked":
        return None
    return name if decides else f"{name}-thresholds"


def _beside(row: Row, error: float, control: Row) -> Row:
    """With its error, and with the interval of its random weights, so that the row can be judged by itself."""
    return row | {"error": error, "control": control["measured"], "control_error": control["error"]}


def _layer(embeddings: pd.DataFrame, theta: float, kind: str) -> pd.DataFrame:
    """Similarities at the output of the embedding layer."""
    chosen = (embeddings["place"] == "layer") & (embeddings["kind"] == kind) & (embeddings["threshold"] == theta)
    return embeddings[chosen]


def rows_without(label: str, kind: str | None, paper: str | None, reason: str) -> list[Row]:
    """Rows of a model that is not here: one for each number that the paper prints for it, else one."""
    if paper is None:
        return [not_run_row(f"{label} ({kind or 'model'})", reason, model=label)]
    return [
        not_run_row(
            f"{label}, θ = {row['threshold']:g}: {WORDS[name]}",
            reason,
            paper=row[column],
            model=label,
            threshold=row["threshold"],
        )
        for row in paper_rows()
        if row["model"] == paper
        for name, column in RATIOS.items()
    ]
