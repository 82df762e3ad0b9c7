"""What runs on the workers of a cluster: tasks without a state, in processes that keep a model for the next task."""

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from topicscope.errors import InputError
from topicscope.probing import ProbeConfig
from topicscope.probing.execution import Chunk, ModelSource, PassSpec, read_shard
from topicscope.probing.hf import ModelView, load_model
from topicscope.probing.tokens import AlignedUnit, Coverage, TokenWindows, align_units, make_batches, tokens_at_once
from topicscope.records import describe_environment
from topicscope.text import Unit

Made = TypeVar("Made")

# What this process made last of each kind, and from what.
_KEPT: dict[str, tuple[object, Any]] = {}


class SentModel(NamedTuple):
    """A model for workers.

    files: of a model folder, by name, uint8 [byte]; none of a model that workers load by its name. first: of the
    text, on which every worker finds out how the model's attention is to be read.
    """

    source: ModelSource
    files: Mapping[str, np.ndarray]
    first: TokenWindows


def versions() -> dict[str, str]:
    """Of Python and the libraries that make numbers; a difference can change these, or the form of what is sent."""
    return {"python": ".".join(map(str, sys.version_info[:2])), **describe_environment().libraries}


def call(expected: Mapping[str, str], on_gpu: bool, work: Callable[..., Any], *arguments: Any) -> Any:
    """What every task does: `work`, with one thread, so that its numbers do not depend on the machine's processors.

    Raises:
        InputError: this machine has other `versions` than expected.
    """
    found = versions()
    different = [name for name in expected if found.get(name) != expected[name]]
    if different:
        raise InputError(
            "the cluster runs other versions",
            received=", ".join(f"{name} {found.get(name)}" for name in different),
            expected=", ".join(f"{name} {expected[name]}" for name in different),
            where=platform.node(),
            advice="install the same versions on every machine of the cluster: pip install -c constraints.txt",
        )
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if on_gpu:
        _use_own_gpu()
    return work(*arguments)


def align(
    tokenizer: Sequence[Any], max_length: int, pieces: Literal["skip", "merge"], units: Sequence[Unit]
) -> tuple[list[AlignedUnit], Coverage]:
    """A task: `align_units` of one block; tokenizer: see `read`."""
    return align_units(_fetched("tokenizer", tokenizer), units, max_length=max_length, pieces=pieces)


def read(
    model: Sequence[Any], spec: Sequence[Any], device: str, weights_seed: int | None, *blocks: Iterable[Chunk]
) -> tuple[bytes, int, int]:
    """A task: `read_shard` of the blocks of a shard.

    model, spec: references to a `SentModel` and a `PassSpec`, each in a list (`tasks.Shared`).

    Raises:
        InputError: the model is not here, or has other weights.
    """
    wanted: PassSpec = _fetched("spec", spec)
    key = (model[0].hex(), torch.cuda.current_device() if device == "cuda" else None)
    view = _kept("model", key, lambda: _loaded(_get(model), device, wanted.options))
    if weights_seed is not None:
        view = _kept("random model", (key, weights_seed), lambda: view.randomised(weights_seed))
    return read_shard(view, wanted, chain.from_iterable(blocks))


def _use_own_gpu() -> None:
    """Compute on the GPU that Ray gave to this task: another one, perhaps, than to this process's task before."""
    import ray

    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray shows a process one GPU, and it would keep to the first
    torch.cuda.set_device(int(ray.get_gpu_ids()[0]))


def _get(reference: Sequence[Any]) -> Any:
    import ray

    return ray.get(reference[0])


def _fetched(kind: str, reference: Sequence[Any]) -> Any:
    """What a reference in a list is of, fetched once by this process."""
    return _kept(kind, reference[0].hex(), lambda: _get(reference))


def _kept(kind: str, key: object, make: Callable[[], Made]) -> Made:
    """What this process has of a kind, made anew where it is of another key."""
    if kind not in _KEPT or _KEPT[kind][0] != key:
        _KEPT.pop(kind, None)  # first, or there would be two of them at once
        _KEPT[kind] = key, make()
    made: Made = _KEPT[kind][1]
    return made


def _loaded(sent: SentModel, device: str, options: ProbeConfig) -> ModelView:
    """The model as the driver has it; how attention is read is found out before any random weights are drawn."""
    source = sent.source
    with tempfile.TemporaryDirectory(prefix="topicscope-") as folder:
        name = str(Path(folder, Path(source.name).name)) if sent.files else source.name
        for file, content in sent.files.items():
            Path(name).mkdir(exist_ok=True)
            content.tofile(Path(name, file))
        view = load_model(
            name,
            device=device,
            dtype=source.dtype,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code and name,
        )
    found = view.weights_hash()
    if found != source.weights_hash:
        raise InputError(
            "a worker finds other weights under the name of the model",
            received=found,
            expected=source.weights_hash,
            where=source.name,
            advice="pin the version: NAME@REVISION, or --revision",
        )
    view = view.only(options.layers, options.heads)
    most = options.batch_tokens or tokens_at_once(view.device)
    view.can_be_factored(make_batches(sent.first, batch_size=1, max_tokens=most, pad_side=options.padding)[0])
    return view
