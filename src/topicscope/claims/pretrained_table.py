"""Knowl 7's table: topic structure in the attention and the embeddings of pretrained models, beside random weights.

What is judged: models that were trained as the paper's were, as masked language models (or to mend text). The others
are shown and not judged. Sentence encoders were tuned to bring texts of one subject together, so that they show topics
even if their masked training had taught none; causal models lie outside the paper's theory, which masks words. The
middle threshold decides, as everywhere in topicscope; at the lowest a topic of our sample has three words.

One model's rows of Knowl 7's table: attention and embeddings at every threshold, each beside its random weights.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import stdtrit

from topicscope.claims.claim import Claim, Context, Criterion, Row, exact_row, measured_row, not_run_row
from topicscope.errors import InputError
from topicscope.experiments import (
    FINISHED,
    PAPER,
    SMALL_BERT,
    Kind,
    SmallBert,
    Source,
    packaged,
    paper_models,
    small_bert,
    sources_of,
)
from topicscope.lab import read_toml, recipe_path
from topicscope.probing import FittedTopics, ProbeConfig, configurations_of, probe
from topicscope.probing.embeddings import embedding_rows
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.results import PAPER_ROWS, ProbeResult
from topicscope.progress import Progress, tracked
from topicscope.records import NUMBERS_VERSION, read_json, write_json
from topicscope.text import Corpus, open_corpus
from topicscope.topics import CorpusPassages, Topics, fit, load_topics, save_topics

RECIPE = "pretrained-table"
ATTENTION = "attention, same / different topic"
RATIOS = {"attention": "attention_ratio", "cosine": "embedding_cosine_layer_ratio", "dot": "embedding_dot_layer_ratio"}
WORDS = {"attention": ATTENTION, "cosine": "cosine of embeddings, S/D", "dot": "dot product of embeddings, S/D"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProbeSettings(_Part):
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

    settings: ProbeSettings
    size: Size
    bert: SmallBert


def table_recipe(*, quick: bool) -> TableRecipe:
    """The settings of the recipe file, in their quick or full form."""
    text = read_toml(recipe_path(RECIPE), "recipe")
    size, bert = dict(text["size"]), dict(text["small-bert"])
    fewer, short = size.pop("quick"), bert.pop("quick_steps")
    return TableRecipe(
        settings=ProbeSettings(**text["probe"]),
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
    model: Probed, settings: ProbeSettings, size: Size, corpus: Corpus, topics: Topics, progress: Progress
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
    config = ProbeConfig(threshold=settings.threshold, unit=settings.unit, max_units=size.units, controls=size.controls)
    result = probe(model.view, documents=corpus, topics=topics, config=config, progress=progress)
    if result.interrupted:
        raise KeyboardInterrupt
    configurations = configurations_of(FittedTopics((topics,), None, {}), config)
    random = pd.concat([embedding_rows(model.view.randomised(seed), configurations) for seed in range(size.controls)])
    middle = sorted(settings.threshold)[len(settings.threshold) // 2]
    printed = {row["threshold"]: row for row in PAPER_ROWS if row["model"] == model.paper}
    rows: list[Row] = []
    for theta in settings.threshold:
        paper = {name: printed.get(theta, {}).get(column) for name, column in RATIOS.items()}
        rows += _attention(model, result, theta, theta == middle, paper["attention"])
        for name in ("cosine", "dot"):
            found, drawn = (  # similarities at the output of the embedding layer
                table[(table["place"] == "layer") & (table["kind"] == name) & (table["threshold"] == theta)]
                for table in (result.embeddings, random)
            )
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
    control = measured_row(None, f"{what}, random weights", values, **_about(model, theta))
    # The probe's own interval: t of the effective number of articles, of which a few long ones leave few.
    error = float(found[f"{ratio}_high"] - found[ratio])
    beside = {"control": control["measured"], "control_error": control["error"], **_about(model, theta)}
    judged = _judged(model, "attention", decides)
    return [exact_row(judged, what, float(found[ratio]), paper=paper, error=error, **beside), control]


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
    about = _about(model, theta)
    control = measured_row(None, f"{what}, random weights", random["difference"], **about)
    beside = {"ratio_withheld": withheld, "control": control["measured"], "control_error": control["error"], **about}
    judged, error = _judged(model, "embeddings", decides), t * float(found["difference_se"])
    rows = [exact_row(judged, what, float(found["difference"]), error=error, **beside), control]
    if withheld is None:
        quantity, error = f"{_start(model, theta)}: {WORDS[name]}", t * float(found["ratio_se"])
        rows.append(exact_row(None, quantity, float(found["ratio"]), paper=paper, error=error, **about))
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
        for row in PAPER_ROWS
        if row["model"] == paper
        for name, column in RATIOS.items()
    ]


_TASK = "pretrained models"


def measure(context: Context) -> list[Row]:
    """Rows of every model that is here, and rows without a number, but with a reason, for every other one."""
    recipe = table_recipe(quick=context.quick)
    try:
        corpus = open_corpus(recipe.settings.documents)
    except InputError as error:
        reason = _reason(error)
        printed = [row for model in paper_models() for row in rows_without(model.label, None, model.paper, reason)]
        return [not_run_row("every model", reason, model="every model"), *printed]
    return table_rows(context, recipe, corpus, lambda: fitted_topics(context, recipe.settings, corpus))


def chosen(context: Context) -> list[Source | None]:
    """The models to try, small-bert as None: those asked for, else all but the paper's, with `quick` only two."""
    names = [source.name for source in packaged()]
    return sources_of(context.models or ([*names[:1], SMALL_BERT] if context.quick else [*names, SMALL_BERT]))


def table_rows(context: Context, recipe: TableRecipe, corpus: Corpus, topics: Callable[[], Topics]) -> list[Row]:
    """The table. topics: called once, if any model is here."""
    sources = chosen(context)
    rows: list[Row] = []
    with tracked(context.progress, _TASK, len(sources), "models"):
        for number, source in enumerate(sources, start=1):
            if source is None:
                rows += _small_bert_rows(context, recipe, corpus, topics)
            else:
                rows += _source_rows(context, recipe, corpus, topics, source)
            context.progress.update(_TASK, number)
    tried = {source.name for source in sources if source is not None}
    for source in () if context.models else packaged():
        if source.name not in tried:
            rows += rows_without(source.label, source.kind, None, _why_left(source))
    # The paper's numbers stand in the table whether or not its models are here.
    for model in paper_models():
        if model.name not in tried:
            reason = f"not asked for: topicscope reproduce {RECIPE} --models {PAPER}"
            rows += rows_without(model.label, None, model.paper, reason)
    return rows


def _why_left(source: Source) -> str:
    """Why --quick leaves a model out; the reader still learns how to get it."""
    try:
        source.require()
    except InputError as error:
        return _reason(error)
    return "left out by --quick"


def _source_rows(
    context: Context, recipe: TableRecipe, corpus: Corpus, topics: Callable[[], Topics], source: Source
) -> list[Row]:
    units = min(recipe.size.units, recipe.size.large.get(source.name, recipe.size.units))
    size = recipe.size.model_copy(update={"units": units})

    def make() -> list[Row]:
        source.require()
        view = source.load()
        model = Probed(view, source.label, source.kind_of(view), source.paper)
        return model_rows(model, recipe.settings, size, corpus, topics(), context.progress)

    try:
        return _kept(context, source.name, f"{source.signature()} {_settings(recipe.settings, size, corpus)}", make)
    except InputError as error:
        return rows_without(source.label, source.kind, source.paper, _reason(error))


def _small_bert_rows(context: Context, recipe: TableRecipe, corpus: Corpus, topics: Callable[[], Topics]) -> list[Row]:
    place = small_bert(corpus, recipe.bert, context.folder, context.progress)
    facts = read_json(place / FINISHED)
    label = f"small BERT, {recipe.bert.steps} steps{' (shortened)' if context.quick else ''}"

    def make() -> list[Row]:
        model = Probed(load_model(str(place)), label, "masked")
        return model_rows(model, recipe.settings, recipe.size, corpus, topics(), context.progress)

    loss = exact_row(None, f"{label}: masked-LM loss, nats a token, last {facts['loss_steps']} steps", facts["loss"])
    inputs = f"{facts['sha256']} {_settings(recipe.settings, recipe.size, corpus)}"
    return [loss, *_kept(context, SMALL_BERT, inputs, make)]


def _settings(settings: ProbeSettings, size: Size, corpus: Corpus) -> str:
    """What decides a model's rows besides the model; the topics follow from it."""
    return f"{settings.model_dump_json()} {size.model_dump_json()} {corpus.fingerprint()}"


def _kept(context: Context, name: str, inputs: str, make: Callable[[], list[Row]]) -> list[Row]:
    """The rows of a model, from the run's folder where they were measured already from the same inputs and code."""
    if context.folder is None:
        return make()
    digest = hashlib.sha256(f"{NUMBERS_VERSION} {inputs}".encode()).hexdigest()[:16]
    path = context.folder / RECIPE / f"{hashlib.sha256(name.encode()).hexdigest()[:8]}-{digest}.json"
    if not path.is_file():
        write_json(path, {"model": name, "rows": make()})
    rows: list[Row] = read_json(path)["rows"]
    return rows


def fitted_topics(context: Context, settings: ProbeSettings, corpus: Corpus) -> Topics:
    """LDA on the passages of the whole corpus, fitted once for all models and kept in the run's folder."""

    def make() -> Topics:
        text = f"{NUMBERS_VERSION} {corpus.fingerprint()} {settings.topics} {settings.sweeps}"
        name = f"topics-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        path = None if context.folder is None else context.folder / RECIPE / name
        if path is not None and path.is_file():
            return load_topics(path)
        topics = fit(CorpusPassages(corpus), settings.topics, sweeps=settings.sweeps, progress=context.progress)
        if path is not None:
            save_topics(path, topics)
        return topics

    return context.once(f"{RECIPE} topics", make)


def _reason(error: InputError) -> str:
    return "; ".join(str(part) for part in (error.summary, error.where, error.advice) if part is not None)


def inputs(context: Context) -> str:
    """Which models are asked for, and what is installed or cached of them: what was missing may be here next time."""
    return repr([(source.name, source.signature()) if source is not None else SMALL_BERT for source in chosen(context)])


def exceeds_control(row: Row) -> bool:
    """Its whole interval lies above the whole interval of its random weights."""
    return bool(row["measured"] - row["error"] > row["control"] + row["control_error"])


_OVER = "the whole interval above that of random weights"
CLAIM = Claim(
    id="pretrained-table",
    title="Pretrained models encode topics in embeddings and attention",
    where="Knowl 7 (table of pretrained models), protocol of Knowl 8",
    assertion="In trained masked language models same-topic words have more similar embeddings and attend more to each "
    "other than different-topic words; in a model with random weights the ratios are near 1.",
    recipes=(RECIPE,),
    theory=(),
    criteria=(
        Criterion("attention", f"masked language models, middle threshold, attention ratio: {_OVER}", exceeds_control),
        Criterion(
            "embeddings",
            f"masked language models, middle threshold, cosine, same - different: {_OVER}",
            exceeds_control,
        ),
        Criterion("attention-thresholds", f"the other thresholds, attention ratio: {_OVER}", exceeds_control, False),
        Criterion(
            "embeddings-thresholds",
            f"the other thresholds, cosine, and every threshold, dot product: {_OVER}",
            exceeds_control,
            False,
        ),
    ),
    measure=measure,
    inputs=inputs,
)
