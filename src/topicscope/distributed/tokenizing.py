"""Tokenising on workers: blocks of units go out, their aligned windows come back in the order of the text."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from topicscope.distributed.pool import TRIES, first_line
from topicscope.errors import InputError, RunError
from topicscope.probing.tokens import AlignedUnit, Coverage, align_units
from topicscope.text import Unit

# Blocks that wait for each worker, so that none is idle while the driver reads text.
_AHEAD = 2


def aligned_blocks(
    ray: Any,
    tokenizer: PreTrainedTokenizerBase,
    blocks: Iterator[Sequence[Unit]],
    *,
    max_length: int,
    pieces: Literal["skip", "merge"],
    at_once: int,
) -> Iterator[tuple[list[AlignedUnit], Coverage]]:
    """What `align_units` gives for each block, in their order; few blocks are in memory at a time.

    A block whose worker or machine dies is done again.

    Raises:
        InputError: as `align_units`.
        RunError: a block was tried several times in vain.
    """
    task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(align)
    shared = ray.put(tokenizer)
    doing = deque[Any]()
    try:
        for block in blocks:
            doing.append(task.remote(shared, block, max_length, pieces))
            if len(doing) >= _AHEAD * at_once:
                yield _result(ray, doing)
        while doing:
            yield _result(ray, doing)
    finally:
        for reference in doing:
            ray.cancel(reference, force=True)


def align(
    tokenizer: PreTrainedTokenizerBase, units: list[Unit], max_length: int, pieces: Literal["skip", "merge"]
) -> tuple[list[AlignedUnit], Coverage]:
    """What a task does, on the one processor that it has."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return align_units(tokenizer, units, max_length=max_length, pieces=pieces)


def _result(ray: Any, doing: deque[Any]) -> tuple[list[AlignedUnit], Coverage]:
    try:
        aligned, coverage = ray.get(doing[0])
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, InputError):
            raise cause from error
        raise RunError(
            "text could not be tokenised on the cluster", received=first_line(error), advice="run without --cluster"
        ) from error
    doing.popleft()
    return aligned, coverage
