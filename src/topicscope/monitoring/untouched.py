"""What keeps a measurement from changing the training around it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from topicscope.errors import UnsupportedModelError

# What wraps a model, and where it keeps it: compiled modules; DDP and DataParallel.
_WRAPPERS = ("_orig_mod", "module")


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside torch.compile, DistributedDataParallel and DataParallel, however they are stacked.

    Raises:
        UnsupportedModelError: its parameters are sharded over processes, so that no process has the whole model.
    """
    compiled = getattr(torch, "_dynamo").eval_frame.OptimizedModule  # noqa: B009 - untyped
    kinds = (compiled, torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while isinstance(model, kinds):
        model = next(
            getattr(model, name) for name in _WRAPPERS if isinstance(getattr(model, name, None), torch.nn.Module)
        )
    # FSDP and tensor parallelism keep DTensors or flat shards, DeepSpeed's third stage empties parameters.
    sharded = [
        n
        for n, p in model.named_parameters()
        if hasattr(p, "_local_tensor") or hasattr(p, "ds_id") or "_flat_param" in n
    ]
    if sharded:
        raise UnsupportedModelError(
            "a model whose parameters are sharded over processes cannot be measured while it trains",
            received=sharded[0],
            expected="a whole model in the first process (one device, DDP, DataParallel)",
            advice="probe its saved checkpoints instead",
        )
    return model


def is_first_process() -> bool:
    """Whether this is the process that measures: rank 0, or the only one."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


@contextmanager
def untouched(model: torch.nn.Module) -> Iterator[None]:
    """Inside no autocast and no gradients; afterwards every random state is what it was.

    Modes, hooks and the attention kernel are put back by the readings themselves (`probing.reading`).
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - somebody else's, which must stay
    device = next(model.parameters()).device.type
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    try:
        with (
            torch.random.fork_rng(devices),
            torch.autocast(device, enabled=False),
            torch.no_grad(),
            _own_forward(model),
        ):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def synchronise(model: torch.nn.Module) -> None:
    """Wait for what a GPU still has to do, so that it is not counted as the measurement's."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _own_forward(model: torch.nn.Module) -> Iterator[None]:
    """Without the autocast that accelerate wraps a model's `forward` in; put back afterwards."""
    state: dict[str, Any] = model.__dict__
    wrapped = state.get("forward")
    original = state.get("_original_forward")
    if wrapped is None or original is None:
        yield
        return
    state["forward"] = original
    try:
        yield
    finally:
        state["forward"] = wrapped
