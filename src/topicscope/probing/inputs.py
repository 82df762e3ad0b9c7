"""What a probe is given, a model and documents in their many forms, made into what it works with."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from topicscope.errors import InputError
from topicscope.probing.hf import ModelView, load_model, view_model
from topicscope.text import Corpus, Document, corpus_from, open_corpus

Documents = str | Path | Corpus | Iterable[str | Document | tuple[str, str] | dict[str, Any]]


def corpus_of(documents: Documents) -> Corpus:
    """The corpus of a path, a name or live texts."""
    if isinstance(documents, Corpus):
        return documents
    return open_corpus(documents) if isinstance(documents, (str, Path)) else corpus_from(documents)


def paths_of(documents: Documents, model: object) -> list[Path]:
    """The files and folders of this machine that a probe reads its documents and its model from."""
    place = documents.path if isinstance(documents, Corpus) else documents
    named = [given for given in (place, model) if isinstance(given, (str, Path))]
    return [path for path in (Path(str(name)).expanduser() for name in named) if path.exists()]


def view_of(
    model: str | PreTrainedModel | ModelView,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str,
    dtype: str | None,
    revision: str | None,
    trust_remote_code: str | None,
    *,
    call: str = "topicscope.probe(model, tokenizer, documents)",
) -> ModelView:
    """The view of a model by name, or of a live one with its tokenizer. call: how that is written, for the error.

    Raises:
        InputError: a live model without tokenizer; as `load_model` and `view_model`.
    """
    if isinstance(model, ModelView):
        return model
    if isinstance(model, (str, Path)):
        return load_model(
            str(model), device=device, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code
        )
    if tokenizer is None:
        raise InputError(
            "a live model needs its tokenizer",
            received=type(model).__name__,
            expected=call,
        )
    return view_model(model, tokenizer)


def description_of(view: ModelView, weights_hash: str, device: str) -> dict[str, Any]:
    """What a result says of its model; device: where it read the text."""
    return {
        "name": view.name,
        "model_type": view.model_type,
        "parts": [asdict(part) for part in view.parts],
        "weights_hash": weights_hash,
        "kernel": view.kernel,
        "attention_path": dict.fromkeys((part.name for part in view.parts), view.path),
        "dtype": view.dtype,
        "device": device,
        "max_length": view.max_length,
        "parameters": view.num_parameters,
    }


def location(model: str) -> str:
    """What other processes know a model by: its name, or the whole path of its folder."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model
