"""Knowl 7's table: topic structure in the attention and the embeddings of pretrained models, beside random weights.

What is judged: models that were trained as the paper's were, as masked language models (or to mend text). The others
are shown and not judged. Sentence encoders were tuned to bring texts of one subject together, so that they show topics
even if their masked training had taught none; causal models lie outside the paper's theory, which masks words. The
middle threshold decides, as everywhere in topicscope; at the lowest a topic of our sample has three words.
"""

import hashlib
from collections.abc import Callable

from topicscope.claims.claim import Claim, Criterion, Row
from topicscope.claims.context import Context
from topicscope.claims.pretrained_rows import (
    RECIPE,
    Probed,
    Reading,
    Size,
    TableRecipe,
    model_rows,
    rows_without,
    table_recipe,
)
from topicscope.claims.rows import exact_row, not_run_row
from topicscope.errors import InputError
from topicscope.experiments import FINISHED, PAPER, SMALL_BERT, Source, packaged, paper_models, small_bert, sources_of
from topicscope.probing.hf import load_model
from topicscope.progress import tracked
from topicscope.records import NUMBERS_VERSION, read_json, write_json
from topicscope.text import Corpus, open_corpus
from topicscope.topics import CorpusPassages, Topics, fit, load_topics, save_topics

_TASK = "pretrained models"


def measure(context: Context) -> list[Row]:
    """Rows of every model that is here, and rows without a number, but with a reason, for every other one."""
    recipe = table_recipe(quick=context.quick)
    try:
        corpus = open_corpus(recipe.reading.documents)
    except InputError as error:
        reason = _reason(error)
        printed = [row for model in paper_models() for row in rows_without(model.paper, None, model.paper, reason)]
        return [not_run_row("every model", reason, model="every model"), *printed]
    return table_rows(context, recipe, corpus, lambda: fitted_topics(context, recipe.reading, corpus))


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
        if model.hub not in tried:
            reason = f"not asked for: topicscope reproduce {RECIPE} --models {PAPER}"
            rows += rows_without(model.paper, None, model.paper, reason)
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
        return model_rows(model, recipe.reading, size, corpus, topics(), context.progress)

    try:
        return _kept(context, source.name, f"{source.signature()} {_settings(recipe.reading, size, corpus)}", make)
    except InputError as error:
        return rows_without(source.label, source.kind, source.paper, _reason(error))


def _small_bert_rows(context: Context, recipe: TableRecipe, corpus: Corpus, topics: Callable[[], Topics]) -> list[Row]:
    place = small_bert(corpus, recipe.bert, context.folder, context.progress)
    facts = read_json(place / FINISHED)
    label = f"small BERT, {recipe.bert.steps} steps{' (shortened)' if context.quick else ''}"

    def make() -> list[Row]:
        model = Probed(load_model(str(place)), label, "masked")
        return model_rows(model, recipe.reading, recipe.size, corpus, topics(), context.progress)

    loss = exact_row(None, f"{label}: masked-LM loss, nats a token, last {facts['loss_steps']} steps", facts["loss"])
    inputs = f"{facts['sha256']} {_settings(recipe.reading, recipe.size, corpus)}"
    return [loss, *_kept(context, SMALL_BERT, inputs, make)]


def _settings(reading: Reading, size: Size, corpus: Corpus) -> str:
    """What decides a model's rows besides the model; the topics follow from it."""
    return f"{reading.model_dump_json()} {size.model_dump_json()} {corpus.fingerprint()}"


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


def fitted_topics(context: Context, reading: Reading, corpus: Corpus) -> Topics:
    """LDA on the passages of the whole corpus, fitted once for all models and kept in the run's folder."""

    def make() -> Topics:
        text = f"{NUMBERS_VERSION} {corpus.fingerprint()} {reading.topics} {reading.sweeps}"
        name = f"topics-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        path = None if context.folder is None else context.folder / RECIPE / name
        if path is not None and path.is_file():
            return load_topics(path)
        topics = fit(CorpusPassages(corpus), reading.topics, sweeps=reading.sweeps, progress=context.progress)
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
