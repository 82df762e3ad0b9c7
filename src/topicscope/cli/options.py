"""Options that several commands share, each written down once, as fields of dataclasses that cyclopts flattens.

A command that has only some fields of one names them, and its own parameter, in `Parameter(parse=...)`.
"""

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from topicscope.cli.output import Json, ProgressStyle
from topicscope.errors import InputError
from topicscope.options import ADVANCED, COMPUTE, OUTPUT, TEXT, Whole
from topicscope.records import output_path, result_path, without_secrets
from topicscope.text import MAX_DOCUMENT_BYTES, OnError

# A URL is refused as it was given: a path would lose a slash of s3://bucket.
OutFolder = Annotated[Path, Parameter(converter=lambda _, tokens: output_path(tokens[0].value))]
OutFile = Annotated[Path, Parameter(converter=lambda _, tokens: output_path(tokens[0].value, "file"))]
ResultFolder = Annotated[Path, Parameter(converter=lambda _, tokens: result_path(tokens[0].value))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """How text is read: the keywords of `open_corpus`."""

    text_column: Annotated[str | None, TEXT] = None
    "Column of the text in .jsonl, .csv and .parquet (default: text)."
    id_column: Annotated[str | None, TEXT] = None
    "Column of the document id (default: its number)."
    encoding: Annotated[str, TEXT] = "utf-8"
    "Encoding of text files."
    on_error: Annotated[OnError, TEXT] = "stop"
    "A bad line, or a checkpoint that cannot be read, ends the run, or is skipped and counted."
    max_document_bytes: Annotated[Whole, ADVANCED] = MAX_DOCUMENT_BYTES
    "A longer document or line is a bad one."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run leaves its result, and what it says meanwhile."""

    out: Annotated[OutFolder | None, OUTPUT] = None
    "Folder for the result and its page; a fresh one under topicscope-runs/ unless given."
    resume: Annotated[bool, OUTPUT] = False
    "Go on with a run to --out that was stopped or killed, to the same numbers; what it finished is kept."
    overwrite: Annotated[bool, OUTPUT] = False
    "Replace an earlier result of this command in --out; a folder with anything else in it is refused."
    json: Json = False
    progress: Annotated[ProgressStyle, OUTPUT] = "auto"
    "How progress is shown on stderr."

    def folder(self, name: str, of: str = "run") -> Path:
        """--out, or `topicscope-runs/NAME-DATE-TIME`, numbered where another run began in the same second.

        Raises:
            InputError: --resume without --out; a fresh folder has nothing to resume.
        """
        if self.out is not None:
            return self.out
        if self.resume:
            raise InputError(f"--resume needs the folder of the {of}", expected="--out DIR")
        wanted = Path("topicscope-runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
        tried = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
        return next(path for path in chain([wanted], tried) if not path.exists())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Who computes in place of this process."""

    cluster: Annotated[str | None, COMPUTE] = None
    "Compute on a Ray cluster: local (processes of this machine), auto (its Ray cluster) or ray://HOST:PORT."
    workers: Annotated[Whole | None, COMPUTE] = None
    "Models that the cluster holds at once; as many as it has room for unless given."
    gpus_per_worker: Annotated[float, COMPUTE] = 0.0
    "GPUs of each worker, or a share of one: 0.25 lets four use one; 0 to compute on CPUs."

    def open(self) -> AbstractContextManager[Any]:
        """A `topicscope.distributed.Cluster` to enter, or what gives None where none was asked for.

        Raises:
            InputError: options of a cluster without one.
        """
        if self.cluster is not None:
            from topicscope.distributed import Cluster  # with all that a probe needs

            return Cluster(self.cluster, workers=self.workers, gpus_per_worker=self.gpus_per_worker)
        if self.workers is not None or self.gpus_per_worker:
            raise InputError(
                "--workers and --gpus-per-worker are of a cluster",
                expected="--cluster local, auto or ray://HOST:PORT as well",
            )
        return nullcontext()


def command_line() -> str:
    """The command as it was given, for the record: without passwords and queries of URLs."""
    return shlex.join(["topicscope", *map(without_secrets, sys.argv[1:])])


def going_on(out: Path) -> str:
    """How to go on with a run that was stopped."""
    return f"to go on: the same command with --out {shlex.quote(str(out))} --resume"
