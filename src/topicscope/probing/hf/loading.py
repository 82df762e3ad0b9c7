"""Load a model and its tokenizer by hub name or from a folder, and say clearly what is wrong when it fails.

Whether the Hugging Face hub can be reached, found out at once: its own client tries again for half a minute.
"""

import pickle
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import torch
from huggingface_hub import constants
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging

from topicscope.errors import InputError
from topicscope.probing.hf.families import family_of
from topicscope.probing.hf.view import ModelView, view_model
from topicscope.records import require_regular_file

TIMEOUT_S = 3.0


def why_unreachable(timeout_s: float = TIMEOUT_S) -> str | None:
    """None where a connection to the hub, or to the proxy in front of it, can be made; else the reason in words."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids to ask the hub"
    hub = urlsplit(constants.ENDPOINT)
    proxy = None if proxy_bypass(hub.hostname or "") else getproxies().get(hub.scheme)
    target = hub if proxy is None else urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = target.hostname or "", target.port or (443 if target.scheme == "https" else 80)
    found: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            found.append(None)
        except OSError as error:
            found.append(error)

    # The look-up of a name knows no timeout, so it must not hold up the caller.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        return f"{host} did not answer within {timeout_s:g} s"
    return None if found[0] is None else f"{host} cannot be reached ({found[0].strerror or found[0]})"


DTYPES = ("float32", "float64", "bfloat16", "float16")
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)

# Files of weights in whatever format, and the lists of their parts.
_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|gguf)(\.index\.json)?$")

# Errors of torch and numpy that refuse a pickle, what it asked for, and their advice to load it all the same.
_UNPICKLES = re.compile(r"weights_only|allow_pickle|pickled")
_ASKED = re.compile(r"GLOBAL ([\w.]+)")
_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_UNSAFE = re.compile(
    r"weights_only|allow_pickle|trust_remote_code|pickle\.load|torch\.load|arbitrary code|trust the|trusted|unsafe",
    re.IGNORECASE,
)


def load_model(
    name: str,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    revision: str | None = None,
    trust_remote_code: str | None = None,
) -> ModelView:
    """The model called `name`: an existing folder, or a name on the Hugging Face hub, `NAME@REVISION` to pin a version.

    A folder never touches the network. A hub name is looked up in the local cache first and only fetched when it is
    not there, so a cached model works offline and costs no request; without a network the cache is all there is.
    `HF_HUB_OFFLINE=1` forbids fetching. dtype None means float32. device "auto": cuda, else mps, else cpu.
    trust_remote_code: code that comes with a model is run only where this repeats the model's name.

    Raises:
        InputError: no such folder or model, a revision of a folder, a folder without config, weights or tokenizer,
            weights that do not fit the architecture, an unknown dtype or a device that is not there.
        UnsupportedModelError: a type of model that cannot be viewed.
    """
    if dtype not in (None, *DTYPES):
        raise InputError("an unknown dtype", received=dtype, expected=", ".join(DTYPES))
    torch_dtype = getattr(torch, dtype or "float32")
    device = best_device() if device == "auto" else device
    try:
        torch.empty(0, device=device).cpu()  # "meta" is a device that nothing comes back from
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            "the device cannot be used",
            received=device,
            expected="auto, cpu, cuda, cuda:N or mps",
            where=_first_line(error),
        ) from error
    name, revision = pinned(name, revision)
    folder = Path(name).expanduser()
    require_regular_file(folder, "a model folder, or a name on the hub")
    local = folder.is_dir()
    if local:
        listing = "files found: " + (", ".join(sorted(p.name for p in folder.iterdir())[:12]) or "none")
        if not (folder / "config.json").is_file():
            raise InputError("a model folder needs a config.json", received=str(folder), where=listing)
        # Checked by hand: without files the library makes up an empty tokenizer.
        if not any((folder / file).is_file() for file in TOKENIZER_FILES):
            raise InputError(
                "the model folder has no tokenizer",
                received=str(folder),
                expected=f"one of {', '.join(TOKENIZER_FILES)}",
                where=listing,
                advice="save the tokenizer beside the model: tokenizer.save_pretrained(folder)",
            )
    elif _looks_like_path(name):
        raise InputError(
            "there is no such model folder", received=name, expected="a folder with config.json, weights and tokenizer"
        )
    if local and revision is not None:
        raise InputError(
            "a folder has no revisions",
            received=f"revision {revision!r} of the folder {name}",
            expected="its path alone",
        )
    if trust_remote_code not in (None, name):
        raise InputError(
            "code is trusted of one model only, by its name",
            received=f"--trust-remote-code {trust_remote_code}",
            expected=f"--trust-remote-code {name}",
        )
    source = str(folder) if local else name
    with quiet():
        options = {"revision": revision, "trust_remote_code": trust_remote_code is not None}
        try:
            return _load(source, name, local, device, torch_dtype, options | {"local_files_only": True})
        except _NotFoundError as error:
            if local:
                raise
            reason = why_unreachable()
            if reason is not None:
                raise InputError(
                    error.summary,
                    received=name if revision is None else f"{name}@{revision}",
                    expected=error.expected,
                    where=f"not in the local cache, and {reason}",
                    advice=error.advice,
                ) from error
        return _load(source, name, local, device, torch_dtype, options)


def model_files(folder: Path, view: ModelView) -> dict[str, bytes]:
    """What `load_model` needs elsewhere of a model folder: its files, with all weights in one model.safetensors."""
    kept = [path for path in folder.iterdir() if path.is_file() and not _WEIGHTS.search(path.name)]
    return {path.name: path.read_bytes() for path in kept} | {"model.safetensors": view.weights()}


def best_device() -> str:
    """cuda where there is one, else mps, else cpu."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pinned(name: str, revision: str | None = None) -> tuple[str, str | None]:
    """NAME@REVISION of the hub taken apart; the path of a folder stays as it is.

    Raises:
        InputError: nothing on one side of the @, or another `revision`.
    """
    plain, at, version = name.partition("@")
    if not at or _looks_like_path(name) or Path(name).expanduser().is_dir():
        return name, revision
    if not plain or not version or revision not in (None, version):
        raise InputError(
            "one revision is needed after the @",
            received=name if revision is None else f"{name} and --revision {revision}",
            expected="NAME@REVISION, or NAME with --revision REVISION",
        )
    return plain, version


class _NotFoundError(InputError):
    """Files are missing where they were looked for."""


def _load(source: str, name: str, local: bool, device: str, dtype: torch.dtype, options: dict[str, Any]) -> ModelView:
    config = _attempt(name, "configuration", lambda: AutoConfig.from_pretrained(source, **options))
    family_of(config, name)
    tokenizer = _attempt(name, "tokenizer", lambda: AutoTokenizer.from_pretrained(source, **options))
    # What a checkpoint lacks (a pooler) is drawn at random, which must not move the caller's random state.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        model, info = _attempt(
            name,
            "weights",
            lambda: AutoModel.from_pretrained(source, config=config, dtype=dtype, output_loading_info=True, **options),
        )
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing or info["mismatched_keys"]:
        raise InputError(
            "the weights do not fit the model: some parameters would be random",
            received=f"{len(missing)} missing, {len(info['mismatched_keys'])} of another shape",
            expected="every parameter of the base model",
            where=f"{name}: {', '.join(missing[:3]) or sorted(map(str, info['mismatched_keys']))[0]}",
        )
    # A folder is called by its last part: results travel, and paths of one machine mean nothing elsewhere.
    return view_model(model.to(device).eval(), tokenizer, name=Path(source).resolve().name if local else name)


def _attempt(name: str, what: str, load: Callable[[], Any]) -> Any:
    """What `load` gives; what it raises is told as an `InputError`."""
    try:
        return load()
    except InputError:
        raise
    except Exception as error:  # corrupt files raise whatever their reader raises
        chain: list[BaseException] = []
        following: BaseException | None = error
        while following is not None and following not in chain:
            chain.append(following)
            following = following.__cause__ or following.__context__
        if any(isinstance(e, pickle.UnpicklingError) or _UNPICKLES.search(str(e)) for e in chain):
            asked = next((found for e in chain if (found := _ASKED.search(str(e)))), None)
            raise InputError(
                f"the {what} of the model are pickled, and the pickle holds more than tensors, or is damaged",
                received=f"a pickle that asks for {asked[1]}" if asked else "a file that is no pickle of tensors alone",
                expected="model.safetensors, or a pickle of tensors alone: any other can run code, so it is never "
                "loaded",
                where=name,
                advice="ask whoever published the model for model.safetensors, which `model.save_pretrained(folder)` "
                "writes; if the file should hold tensors alone, copy or download it again",
            ) from None  # what caused it says how to run the code all the same
        if isinstance(error, OSError):
            raise _NotFoundError(
                f"the {what} of the model could not be found",
                received=name,
                expected="a folder, a model in the local cache, or a name on the hub while online",
                where=_first_line(error),
                advice="check the spelling; without network give a folder, or load the model once while online "
                "(unset HF_HUB_OFFLINE); a private model needs `hf auth login`",
            ) from error
        raise InputError(
            f"the {what} of the model could not be read",
            received=name,
            where=f"{type(error).__name__}: {_first_line(error)}",
            advice=f"to run the code that comes with the model, repeat its name: --trust-remote-code {name}"
            if "trust_remote_code" in str(error)
            else "check that the files are whole and that this version of transformers knows the model",
        ) from error


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _first_line(error: BaseException) -> str:
    """The first line of what an error says, without advice to run code that came with a file."""
    for line in str(error).strip().splitlines():
        kept = " ".join(said for said in _SENTENCES.split(line.strip()) if not _UNSAFE.search(said))
        if kept:
            return kept
    return type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's progress bars and its table of unused keys away from the terminal."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # such a file is refused or it loads
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
