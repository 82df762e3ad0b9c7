"""What keeps a measurement from changing the training around it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from topicscope.errors import UnsupportedModelError


def unwrap_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside torch.compile, DistributedDataParallel and DataParallel, however they are stacked.

    Raises:
        UnsupportedModelError: its parameters are sharded over processes, so that no process has the whole model.
    """
    parallel = torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel
    inner: torch.nn.Module | None = model
    while inner is not None:
        model = inner
        # The class of compiled modules is not asked for: that would load the compiler.
        inner = model.module if isinstance(model, parallel) else model._modules.get("_orig_mod")
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
def preserve_state(model: torch.nn.Module) -> Iterator[None]:
    """Inside no autocast and no gradients; afterwards every random state is what it was.

    Modes, hooks and the attention kernel are put back by the readings themselves (`probing.hf.eager`).
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
