"""Options that several commands share: folders and files, whole numbers, and a cluster."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from topicscope.errors import InputError
from topicscope.records import output_path, result_path, without_secrets


def _out_folder(_: Any, tokens: Sequence[Token]) -> Path:
    return output_path(tokens[0].value)


def _out_file(_: Any, tokens: Sequence[Token]) -> Path:
    return output_path(tokens[0].value, "file")


def _result_folder(_: Any, tokens: Sequence[Token]) -> Path:
    return result_path(tokens[0].value)


# A URL is refused as it was given: a path would lose a slash of s3://bucket.
OutFolder = Annotated[Path, Parameter(converter=_out_folder)]
OutFile = Annotated[Path, Parameter(converter=_out_file)]
ResultFolder = Annotated[Path, Parameter(converter=_result_folder)]


def command_line() -> str:
    """The command as it was given, for the record: without passwords and queries of URLs."""
    return shlex.join(["topicscope", *map(without_secrets, sys.argv[1:])])


def going_on(out: Path) -> str:
    """How to go on with a run that was stopped."""
    return f"to go on: the same command with --out {shlex.quote(str(out))} --resume"


def asked_cluster(
    cluster: str | None, workers: int | None = None, gpus_per_worker: float = 0.0
) -> AbstractContextManager[Any]:
    """A `topicscope.distributed.Cluster` to enter, or what gives None where none was asked for.

    Raises:
        InputError: options of a cluster without one.
    """
    if cluster is None:
        if workers is not None or gpus_per_worker:
            raise InputError(
                "--workers and --gpus-per-worker are of a cluster",
                expected="--cluster local, auto or ray://HOST:PORT as well",
            )
        return nullcontext()
    from topicscope.distributed import Cluster  # with all that a probe needs

    return Cluster(cluster, workers=workers, gpus_per_worker=gpus_per_worker)


def check_device(device: str, cluster: str | None, gpus_per_worker: float) -> None:
    """A recipe's device must be one that workers of the cluster have.

    Raises:
        InputError: a GPU without GPUs for workers, or GPUs that the recipe does not use.
    """
    if cluster is not None and device.startswith("cuda") and not gpus_per_worker:
        raise InputError(
            "workers of the cluster have no GPU",
            received=f'training.device = "{device}"',
            expected="--gpus-per-worker 1, or a share of one, as well",
        )
    if gpus_per_worker and not device.startswith("cuda"):
        raise InputError(
            "the recipe does not use the GPUs of workers",
            received=f'--gpus-per-worker {gpus_per_worker:g} and training.device = "{device}"',
            expected="--set training.device=cuda as well, or no --gpus-per-worker",
        )


def _whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """cyclopts alone would round: "2.5" topics would silently become 2."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


Whole = Annotated[int, Parameter(converter=_whole_number)]


def fresh_folder(name: str) -> Path:
    """`topicscope-runs/NAME-DATE-TIME`, numbered where another run began in the same second."""
    wanted = Path("topicscope-runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    tried = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(path for path in chain([wanted], tried) if not path.exists())
