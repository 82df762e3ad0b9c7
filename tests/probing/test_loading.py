"""Models by folder and by hub name; nothing here may touch the network."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from topicscope import demo as minilm
from topicscope.errors import InputError, UnsupportedModelError
from topicscope.probing.hf import load_model, loading, view_model
from topicscope.probing.tokens import align_units, make_batches
from topicscope.text import Unit


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(socket, "create_connection", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "bert"
    save("bert", path)
    return path


def save(family: str, path: Path) -> None:
    model, tokenizer = tiny.build(family)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_symptom_27_a_folder_is_loaded_without_network(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    state = torch.get_rng_state()
    view = load_model(str(tmp_path))
    assert torch.equal(torch.get_rng_state(), state)
    live = view_model(*tiny.build(family))
    assert (view.name, view.parts, view.kernel) == (tmp_path.name, live.parts, live.kernel)
    assert (view.dtype, view.device, view.max_length) == ("float32", "cpu", live.max_length)
    assert view.weights_hash() == live.weights_hash()
    assert view.tokenizer.get_vocab() == live.tokenizer.get_vocab()


def test_a_precision_can_be_asked_for(folder: Path) -> None:
    assert load_model(str(folder), dtype="bfloat16").dtype == "bfloat16"


def test_a_checkpoint_without_pooler_always_loads_as_the_same_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    model, _ = tiny.build("bert")
    without = {name: value for name, value in model.state_dict().items() if not name.startswith("pooler.")}
    model.save_pretrained(tmp_path, state_dict=without)
    torch.manual_seed(1)
    first = load_model(str(tmp_path))
    torch.manual_seed(2)
    assert first.weights_hash() == load_model(str(tmp_path)).weights_hash() == load_model(str(folder)).weights_hash()


def cached(folder: Path, cache: Path, name: str) -> None:
    """What the hub's client leaves in its cache after a download."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123abc")
    shutil.copytree(folder, repository / "snapshots" / "0123abc")


def test_symptom_27_a_cached_hub_name_works_without_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(folder, tmp_path, "someone/tiny-bert")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    view = load_model("someone/tiny-bert")
    assert view.name == "someone/tiny-bert"
    assert view.weights_hash() == load_model(str(folder)).weights_hash()


OFFLINE = """
import socket
def forbidden(*_, **__):
    raise AssertionError("the network was touched")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = forbidden
from topicscope.errors import InputError
from topicscope.probing.hf import load_model
print(load_model("someone/tiny-bert").name)
try:
    load_model("someone/unknown")
except InputError as error:
    print(error)
"""


@pytest.mark.process
def test_symptom_27_hf_hub_offline_is_respected_and_an_unknown_name_is_a_clear_error(
    folder: Path, tmp_path: Path
) -> None:
    cached(folder, tmp_path, "someone/tiny-bert")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    known, summary, *rest = done.stdout.splitlines()
    assert known == "someone/tiny-bert"
    assert "configuration of the model could not be found" in summary
    assert any("received: someone/unknown" in line for line in rest)
    assert any("what to do" in line and "HF_HUB_OFFLINE" in line for line in rest)
    assert done.stderr == ""


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_is_a_clear_error(folder: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / missing).unlink()
    what = {"config.json": "config.json", "model.safetensors": "weights", "tokenizer.json": "no tokenizer"}[missing]
    with pytest.raises(InputError, match=what) as caught:
        load_model(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_broken_file_is_a_clear_error(folder: Path, tmp_path: Path, broken: str) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    content = (tmp_path / broken).read_bytes()
    (tmp_path / broken).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="could not be"):
        load_model(str(tmp_path))


def test_weights_that_would_be_random_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    model, _ = tiny.build("bert")
    part = {name: value for name, value in model.state_dict().items() if "layer.1.attention" not in name}
    model.save_pretrained(tmp_path, state_dict=part)
    with pytest.raises(InputError, match=r"(?s)would be random.*missing.*layer\.1\.attention"):
        load_model(str(tmp_path))


def test_weights_of_another_shape_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(InputError, match="weights"):
        load_model(str(tmp_path))


def test_types_that_are_not_supported_or_not_known_are_refused_before_weights_are_read(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*no attention"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "no_such_type"}')
    with pytest.raises(InputError, match="configuration"):
        load_model(str(tmp_path))


def test_code_beside_the_weights_is_never_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise AssertionError('code was run')")
    with pytest.raises(InputError, match=r"(?s)configuration.*custom code"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "./no/such/folder"}, "no such model folder"),
        ({"name": "/no/such/folder"}, "no such model folder"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"device": "cuda:99"}, "device cannot be used"),
        ({"device": "warp drive"}, "device cannot be used"),
        ({"device": "meta"}, "device cannot be used"),
    ],
)
def test_wrong_options_are_clear_errors(folder: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(**({"name": str(folder)} | options))


def test_loading_leaves_the_librarys_logging_as_it_was(folder: Path) -> None:
    logging = loading.logging
    found = logging.get_verbosity()
    logging.set_verbosity_info()
    try:
        load_model(str(folder))
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(found)


def test_the_real_minilm_is_viewed() -> None:
    view = load_model(str(minilm.minilm_folder()))
    (part,) = view.parts
    assert (view.model_type, part.num_layers, part.num_heads, view.max_length) == ("bert", 6, 12, 512)
    text = "Photosynthesis turns the light of the sun into energy for the plants of the forest."
    units, coverage = align_units(view.tokenizer, [Unit("d", 0, text)], max_length=view.max_length)
    assert (coverage.words, coverage.found, coverage.lost["pieces"]) == (15, 14, 1)  # photo ##sy ##nt ##hesis
    seen = []
    view.run(make_batches(units)[0], lambda _part, layer, attention: seen.append((layer, tuple(attention.shape))))
    length = len(units[0].input_ids)
    assert seen == [(layer, (1, 12, length, length)) for layer in range(6)]


def test_a_missing_or_changed_minilm_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r'(?s)not installed.*pip install "topicscope\[demo\]"'):
        minilm.minilm_folder("no-such-package-is-installed")
    with pytest.raises(InputError, match=r"(?s)incomplete.*model\.safetensors"):
        minilm.minilm_folder("numpy")
    monkeypatch.setattr(minilm, "SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"(?s)not the expected one.*53aa5117"):
        minilm.minilm_folder()
