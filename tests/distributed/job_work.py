"""Work that tests give to a cluster. A file of its own, so that workers import it without the tests."""

import os
import signal
import time
from pathlib import Path

import torch

from topicscope.errors import InputError


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


def fails(number: int, folder: Path) -> tuple[float, int]:
    """Job 1 always fails, job 2 gets bad input."""
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


def waits(number: int, folder: Path) -> int:
    """Says that it began, and ends once there is a file "go"."""
    (folder / f"began-{number}-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    return number
