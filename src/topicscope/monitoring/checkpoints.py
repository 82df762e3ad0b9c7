"""The checkpoints of one training run, in order: folders of models, or revisions of a model on the hub.

Probe every checkpoint of a training run with the same documents and topics.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from topicscope.errors import InputError, RunError, TopicscopeError
from topicscope.monitoring.series import RECORD, RESULTS, CheckpointSeries, frame_of, series_rows
from topicscope.probing import (
    Documents,
    ProbeConfig,
    ProbeOverrides,
    TopicSource,
    corpus_of,
    identity_of,
    paths_of,
    probe,
    read_topics,
    topics_from,
    view_of,
)
from topicscope.probing.hf import pinned
from topicscope.probing.results import ProbeResult
from topicscope.progress import Progress, SilentProgress, tracked
from topicscope.records import SERIES, growing_run, output_path, read_json, require_same
from topicscope.text import split_words

CheckpointSource = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Checkpoint:
    """name: what it is called in the series, and the folder of its result. model: what `probe` takes. step: see
    `find_checkpoints`.
    """

    name: str
    model: str
    step: int


def find_checkpoints(source: CheckpointSource) -> tuple[Checkpoint, ...]:
    """Checkpoints by step.

    source: a folder that holds folders of models (such as a Trainer's output folder with its checkpoint-N),
    "MODEL@REV1,REV2,…", or a list of folders and MODEL@REVISION.
    The step is the last number in a checkpoint's name: checkpoint-500, step1000. Where one has none, or two have the
    same, the steps are the places in the order given (of a folder: of the names), from 0.

    Raises:
        InputError: nothing there, no model in the folder, or the same checkpoint twice.
    """
    models = _models(source)
    if not models:
        raise InputError(
            "a series needs a checkpoint", received=source, expected="a folder of models, or MODEL@REV1,REV2"
        )
    names = [_name(model) for model in models]
    if len(set(names)) < len(names):
        # Checkpoints of several runs are told apart by the folder that they lie in.
        names = [_slug("-".join(Path(model).parts[-2:])) for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("two checkpoints have one name", received=twice, expected="names that differ")
    found = [re.findall(r"\d+", name) for name in names]
    steps = [int(numbers[-1]) for numbers in found if numbers]
    if len(set(steps)) < len(models):
        steps = list(range(len(models)))
    checkpoints = [Checkpoint(*each) for each in zip(names, models, steps, strict=True)]
    return tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.step))


def _models(source: CheckpointSource) -> list[str]:
    if not isinstance(source, (str, Path)):
        return [str(model) for model in source]
    folder = Path(source).expanduser()
    if folder.is_dir():
        found = [str(child) for child in sorted(folder.iterdir()) if (child / "config.json").is_file()]
        if not found:
            raise InputError(
                "no checkpoint in the folder",
                received=str(source),
                expected="folders with config.json, weights and tokenizer, such as a Trainer's checkpoint-500",
                where="found: " + (", ".join(sorted(child.name for child in folder.iterdir())[:8]) or "nothing"),
            )
        return found
    name, revisions = pinned(str(source))
    if revisions is None:
        raise InputError(
            "no such folder, and no revisions of a model",
            received=str(source),
            expected="a folder of checkpoints, or MODEL@REV1,REV2",
        )
    given = [revision.strip() for revision in revisions.split(",")]
    if not all(given):
        raise InputError("a revision is missing", received=str(source), expected="MODEL@REV1,REV2")
    return [f"{name}@{revision}" for revision in given]


def _name(model: str) -> str:
    """The last part of a folder's path, or the revision."""
    if Path(model).expanduser().is_dir():
        return _slug(Path(model).expanduser().resolve().name)
    name, revision = pinned(model)
    return _slug(Path(name).name if revision is None else revision)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "checkpoint"


_TASK = "checkpoints"


def probe_checkpoints(
    checkpoints: CheckpointSource,
    documents: Documents = "wikipedia-sample",
    *,
    topics: TopicSource = 100,
    config: ProbeConfig | None = None,
    out: str | Path,
    on_error: str = "stop",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    command: str | None = None,
    **overrides: Unpack[ProbeOverrides],
) -> CheckpointSeries:
    """How topic structure changes over the checkpoints of a training run: one curve.

    checkpoints: a folder of checkpoints, "MODEL@REV1,REV2", or a list; see `find_checkpoints`.
    documents, topics, config, overrides: as in `probe`, the same for all. Topics are fitted once; a long text is
        tokenised once (`probe` keeps its tokens). `controls` and `permutations` are paid for at every checkpoint: with
        controls=0 a series takes a sixth of the time, and its z and intervals are the same.
    out: folder for series.json, series.csv, emergence.png, the fitted topics, and results/NAME, a whole result of
        `probe` for each checkpoint. They are written as the work goes on.
    on_error: a checkpoint that cannot be read or probed ends the series ("stop"), or is skipped, named and counted
        ("skip").
    resume: go on with `out`: finished checkpoints are kept, new ones may have come.

    After Ctrl-C the series of what was finished is returned, with `interrupted` set.

    Raises:
        InputError: no checkpoints, text, topics, options or a folder that cannot be used; a checkpoint that cannot be
            read, or none that can.
        RunError: the disk is full; what was finished is kept for `resume`.
    """
    config, folder = (config or ProbeConfig()).updated(overrides, probe_checkpoints), output_path(out)
    if on_error not in ("stop", "skip"):
        raise InputError("unknown on_error", received=on_error, expected='"stop" or "skip"')
    if config.revision is not None:
        received = f"{config.revision} and --checkpoints {checkpoints}"
        raise InputError("--revision is of one model", received=received)
    found = find_checkpoints(checkpoints)
    corpus, source = corpus_of(documents), read_topics(topics)
    settings = {
        "text": [corpus.name, corpus.fingerprint()],
        "topics": identity_of(source),
        "options": {name: value for name, value in config.to_dict().items() if name != "revision"},
    }
    read = paths_of(documents, topics, *(each.model for each in found))
    shown = SilentProgress() if progress is None else progress
    with growing_run(folder, SERIES, resume=resume, overwrite=overwrite, inputs=read) as run:
        if run.resumed:  # one curve needs one text, one set of topics and one set of options
            require_same(settings, read_json(run.folder / RECORD).get("settings", {}), run.folder)
        series = _Series(found, run.folder, settings, command)
        finished = series.written()  # before anything is kept that only these settings make
        fitted = topics_from(source, corpus, config, split_words, shown, run.folder)
        first_error: tuple[Checkpoint, TopicscopeError] | None = None
        interrupted = False
        with tracked(shown, _TASK, len(found), "checkpoints"):
            for number, checkpoint in enumerate(found, start=1):
                try:
                    # Loaded here, so that what cannot be read is known before a folder is made for it.
                    view = view_of(checkpoint.model, None, config)
                    result = probe(
                        view,
                        documents=corpus,
                        topics=fitted.word_list or fitted.topics,
                        out=run.folder / RESULTS / checkpoint.name,
                        config=replace(config, revision=checkpoint.model.partition("@")[2] or None),
                        resume=True,
                    )
                except RunError:
                    raise
                except TopicscopeError as error:
                    if on_error == "stop":
                        raise _named(checkpoint, error) from error
                    first_error = first_error or (checkpoint, error)
                    series.status[checkpoint.name] |= {"status": "skipped", "reason": str(error)}
                except KeyboardInterrupt:
                    interrupted = True
                else:
                    interrupted = result.interrupted
                    if not interrupted:
                        series.measured(checkpoint, result)
                finished = series.written(interrupted=interrupted)
                if interrupted:
                    break
                shown.update(_TASK, number)
        if first_error is not None and not series.rows and not interrupted:
            raise _named(*first_error) from first_error[1]
        run.keep = interrupted
    return replace(finished, folder=run.folder)


class _Series:
    """What is known of a series while it is made."""

    def __init__(
        self, found: tuple[Checkpoint, ...], folder: Path, settings: Mapping[str, Any], command: str | None
    ) -> None:
        self.status: dict[str, dict[str, Any]] = {
            each.name: {"name": each.name, "model": each.model, "step": each.step, "status": "waiting"}
            for each in found
        }
        self._folder, self._settings, self._command = folder, settings, command
        model, at, _ = found[0].model.partition("@")
        self._name = model if at else Path(model).resolve().parent.name
        self.rows: list[dict[str, Any]] = []

    def measured(self, checkpoint: Checkpoint, result: ProbeResult) -> None:
        """Add what one checkpoint gave."""
        where = {"checkpoint": checkpoint.name, "step": checkpoint.step}
        self.rows += [where | row for row in series_rows(result)]
        kept = {"weights_hash": result.model["weights_hash"], "headline": str(result)}
        self.status[checkpoint.name] |= {"status": "measured", **kept}

    def written(self, *, interrupted: bool = False) -> CheckpointSeries:
        """The series as it stands, left in its folder."""
        states = tuple(self.status.values())
        series = CheckpointSeries(
            self._name, frame_of(self.rows), states, self._settings, self._folder, self._command, interrupted
        )
        series.write(self._folder)
        return series


def _named(checkpoint: Checkpoint, error: TopicscopeError) -> InputError:
    return InputError(
        f"checkpoint {checkpoint.name}: {error.summary}",
        received=error.received,
        expected=error.expected,
        where=error.where,
        advice=(f"{error.advice}; " if error.advice else "")
        + "finished checkpoints are kept: go on with --resume, or leave this one out with --on-error skip",
    )
