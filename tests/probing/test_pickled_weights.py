"""Weights that are pickled with more than tensors: refused, and nobody is told to load them all the same."""

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from topicscope.errors import InputError
from topicscope.probing.hf import load_model, loading

UNSAFE = re.compile(
    r"weights_only|allow_pickle|trust_remote_code|torch\.load|pickle\.load|trusted|trust the|arbitrary code",
    re.IGNORECASE,
)


class Code:
    """What runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model without weights."""
    model, tokenizer = tiny.build("bert")
    path = tmp_path / "model"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / "model.safetensors").unlink()
    return path


@pytest.mark.parametrize("kind", ["zip", "legacy", "raw", "garbage"])
def test_a_pickle_of_more_than_tensors_is_refused_without_advice_to_trust_it(kind: str, folder: Path) -> None:
    weights, marker = folder / "pytorch_model.bin", folder / "ran"
    if kind in ("zip", "legacy"):
        torch.save({"a": Code(marker)}, weights, _use_new_zipfile_serialization=kind == "zip")
    else:
        weights.write_bytes(pickle.dumps(Code(marker), 2) if kind == "raw" else b"garbage" * 100)
    with pytest.raises(InputError, match="pickle") as caught:
        load_model(str(folder))
    assert not marker.exists()
    assert UNSAFE.search(str(caught.value)) is None
    assert caught.value.__suppress_context__, "a traceback would show it"
    assert "safetensors" in str(caught.value.advice)
    assert "published" in str(caught.value.advice)
    assert caught.value.where == str(folder)
    assert kind == "garbage" or "system" in str(caught.value.received)


def test_a_pickle_of_tensors_alone_is_loaded(folder: Path) -> None:
    model, _ = tiny.build("bert")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert load_model(str(folder)).name == "model"


def chained(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


@pytest.mark.parametrize(
    "error",
    [
        pickle.UnpicklingError("Weights only load failed. Call `torch.load` with weights_only=False."),
        ValueError("Object arrays cannot be loaded when allow_pickle=False"),
        ValueError("Due to a serious issue in `torch.load`, even with `weights_only=True`, upgrade torch"),
        chained(OSError("Unable to load weights"), pickle.UnpicklingError("GLOBAL os.system")),
        RuntimeError("The repository has code. Pass `trust_remote_code=True` if you trust the author."),
        ValueError("Set weights to something. You can do it if you got the file from a trusted source.\nSecond line"),
        OSError("`trust_remote_code=True` is needed"),
    ],
    ids=["torch", "numpy", "old torch", "behind another", "code of the model", "trusted source", "nothing else"],
)  # fmt: skip
def test_no_wording_of_such_advice_is_passed_on(error: Exception) -> None:
    def load() -> None:
        raise error

    with pytest.raises(InputError) as caught:
        loading._attempt("someone/model", "weights", load)
    assert UNSAFE.search(str(caught.value)) is None


def test_what_else_an_error_says_is_passed_on() -> None:
    """Negative control: only the advice is left out."""

    def load() -> None:
        raise ValueError("The header is too short. Set trust_remote_code=True. It has 3 bytes.")

    with pytest.raises(InputError, match=r"The header is too short\. It has 3 bytes\."):
        loading._attempt("model", "weights", load)
