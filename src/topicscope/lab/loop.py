"""`train`: a recipe in, a RunRecord out."""

from dataclasses import replace
from pathlib import Path

from topicscope.errors import InputError
from topicscope.lab.checks import check_handed_in
from topicscope.lab.data import inputs_of
from topicscope.lab.recipe import Recipe
from topicscope.lab.trainer import Arrays, Given, train_together
from topicscope.progress import Progress, SilentProgress
from topicscope.records import RUN, RunRecord, growing_run, output_path
from topicscope.topics import TopicModel


def train(
    recipe: Recipe,
    *,
    seeds: int = 1,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    topic_model: TopicModel | None = None,
    arrays: Arrays | None = None,
    references: Arrays | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> RunRecord:
    """Minimise E (1/|M|) Σ_{j∈M} ℓ(X̂_j, X_j) + Σ_W λ_W ‖W‖²_F (Knowl 6) for several seeds at once.

    recipe: see `topicscope.lab.load_recipe`. seeds: number of runs; run s starts and draws from seed + s.
    out: folder for the record and for checkpoints; nothing is written without one. resume: continue there, to the
        same numbers as an unbroken run on the same machine; a finished run is read instead.
    topic_model: topics of one's own, any phi and alpha, instead of those of the recipe's [data].
    arrays: start or frozen values by parameter name, such as a W_V from `topicscope.theory`; W_V is [out, in].
    references: matrices whose distance is followed in the history, by parameter name.

    Raises:
        InputError: parts of the recipe exclude each other, an array or a file is missing, or the folder holds something
            else: another recipe, other seeds, a run with other topics or another saved set.
        RunError: the loss is no longer finite; names the step and the last good checkpoint.
    """
    folder = None if out is None else output_path(out)
    if seeds < 1:
        raise InputError("impossible number of seeds", received=seeds, expected="at least 1")
    given = Given(topic_model, inputs_of(recipe, topic_model), arrays or {}, references or {})
    check_handed_in(recipe, given.arrays, given.references)
    if folder is None and resume:
        raise InputError("resume needs a folder", expected="out")
    numbers, shown = [recipe.training.seed + s for s in range(seeds)], progress or SilentProgress()
    if folder is None:
        return train_together(recipe, numbers, given, None, shown, command)
    read = [recipe.path(name) for name in (recipe.data.phi, recipe.data.file) if name is not None]
    with growing_run(folder, RUN, resume=resume, overwrite=overwrite, inputs=read) as run:
        record = train_together(recipe, numbers, given, run.folder, shown, command, resume=resume)
    return replace(record, folder=folder)
