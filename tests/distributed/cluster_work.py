"""Work that tests give to a cluster. A file of its own, so that workers import it without the tests."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from topicscope.distributed import worker
from topicscope.errors import InputError
from topicscope.probing.tokens import AlignedUnit, Coverage
from topicscope.text import Unit


def mean_of(number: int, folder: Path | None = None) -> tuple[float, int]:
    """A number that depends on the job alone, and how many threads torch has. Leaves a file for each call."""
    if folder is not None:
        (folder / f"{number}-{time.monotonic_ns()}").touch()
    return float(torch.randn(1000, generator=torch.Generator().manual_seed(number)).mean()), torch.get_num_threads()


def dies_once(number: int, folder: Path) -> tuple[float, int]:
    """Ends its own process where no other try has left a file."""
    if number == 1 and not list(folder.glob("1-*")):
        mean_of(number, folder)
        os.kill(os.getpid(), signal.SIGKILL)
    return mean_of(number, folder)


def dies(*_: Any) -> None:
    """Ends its own process."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(*_: Any) -> None:
    """Raises an error that is not of ours."""
    raise ValueError("not these")


def fails(number: int, folder: Path) -> tuple[float, int]:
    """Job 1 fails, job 2 gets bad input."""
    result = mean_of(number, folder)
    if number == 1:
        raise ValueError("one is too many\nand more words")
    if number == 2:
        raise InputError("bad two", received=number, expected="not two")
    return result


def slow(number: int, folder: Path) -> None:
    """Says that it began, and never ends."""
    (folder / f"began-{number}").write_text(str(os.getpid()))
    time.sleep(600)


def total(shared: Sequence[Any], *blocks: bytes) -> int:
    """Of all bytes that were sent."""
    import ray

    return sum(ray.get(shared[0])) + sum(map(sum, blocks))


def loses_once(shared: Sequence[Any], folder: Path, *blocks: bytes) -> int:
    """`total`; the first time what was shared is lost."""
    import ray

    if not (folder / "lost").exists():
        (folder / "lost").touch()
        raise ray.exceptions.ObjectLostError(shared[0].hex(), "", "")
    return total(shared, *blocks)


def align_dying_once(
    tokenizer: Sequence[Any], max_length: int, pieces: Literal["skip", "merge"], units: Sequence[Unit]
) -> tuple[list[AlignedUnit], Coverage]:
    """`worker.align`; the worker of the block that names a folder dies the first time."""
    folder = Path(units[0].document_id)
    if folder.is_absolute() and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return worker.align(tokenizer, max_length, pieces, units)
