"""Names of the hub without a hub, revisions, devices, and code that comes with a model."""

import json
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, jsonl, probe, save_model, texts
from topicscope.errors import InputError
from topicscope.probing.hf import load_model, loading
from topicscope.probing.hf.loading import why_unreachable


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that only the loopback interface could reach, and an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "tiny-bert")


def in_cache(folder: Path, cache: Path, name: str, revision: str) -> None:
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    shutil.copytree(folder, repository / "snapshots" / revision)


def test_an_unknown_name_without_network_fails_at_once_and_says_why(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        load_model("someone/unknown")
    assert time.monotonic() - began < 5
    message = str(caught.value)
    assert "configuration of the model could not be found" in message
    assert "received: someone/unknown" in message
    assert "not in the local cache, and 127.0.0.1 cannot be reached" in message
    assert "what to do" in message


def test_a_hub_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a look-up of the name that hangs."""

    def hangs(*_: object, **__: object) -> None:
        time.sleep(1)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hangs)
    began = time.monotonic()
    assert why_unreachable(0.1) == "127.0.0.1 did not answer within 0.1 s"
    assert time.monotonic() - began < 0.9


def test_a_hub_or_its_proxy_that_answers_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_unreachable() is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        assert why_unreachable() is None
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://hub.invalid")
        assert why_unreachable() is not None
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert why_unreachable() is None
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in str(why_unreachable())


def test_a_cached_name_asks_nobody(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cache(folder, tmp_path / "cache", "someone/tiny", "0123abc")
    monkeypatch.setattr(loading, "why_unreachable", lambda: pytest.fail("the network was asked"))
    assert load_model("someone/tiny").name == "someone/tiny"


def test_a_revision_behind_the_name(folder: Path, tmp_path: Path) -> None:
    """Two versions in the cache; the result records which one was read."""
    in_cache(folder, tmp_path / "cache", "someone/tiny", "0" * 40)
    other, tokenizer = tiny.build("bert", seed=1)
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    in_cache(tmp_path / "other", tmp_path / "cache", "someone/tiny", "1" * 40)
    first, second = (load_model(f"someone/tiny@{digit * 40}") for digit in "01")
    assert first.name == second.name == "someone/tiny"
    assert first.weights_hash() == load_model(str(folder)).weights_hash() != second.weights_hash()
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    corpus = jsonl(tmp_path / "corpus.jsonl", texts())
    name = f"someone/tiny@{'0' * 40}"
    assert probe(name, "--corpus", corpus, "--topics", words, "--out", tmp_path / "run") == 0
    document = json.loads((tmp_path / "run" / "result.json").read_text())
    assert document["manifest"]["options"]["revision"] == "0" * 40
    assert document["model"]["weights_hash"] == first.weights_hash()


@pytest.mark.parametrize(("name", "revision"), [("@main", None), ("someone/tiny@", None), ("someone/tiny@a", "b")])
def test_a_revision_that_makes_no_sense(name: str, revision: str | None) -> None:
    with pytest.raises(InputError, match="revision"):
        load_model(name, revision=revision)


def test_a_folder_has_no_revisions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the version that the result records would be one that nobody read."""
    monkeypatch.chdir(folder.parent)
    for name, revision in ((folder.name, "main"), (f"{folder.name}@main", None), (str(folder), "")):
        with pytest.raises(InputError, match="a folder has no revisions"):
            load_model(name, revision=revision)


def test_a_folder_may_have_an_at_sign_in_its_name(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "tiny@home")
    assert load_model(str(tmp_path / "tiny@home")).name == "tiny@home"


@pytest.mark.parametrize(("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_takes_the_best_device(cuda: bool, mps: bool, best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert loading.best_device() == best


def test_auto_is_resolved_in_the_result(folder: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    result = topicscope.probe(str(folder), documents=texts(), topics=words, controls=0, device="auto")
    assert result.model["device"] == ("cuda:0" if torch.cuda.is_available() else result.model["device"])
    assert result.manifest.options["device"] == "auto"


def test_code_that_comes_with_a_model_runs_only_when_the_model_is_named(folder: Path, tmp_path: Path) -> None:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n"
        "from transformers import BertConfig\n"
        "class Config(BertConfig):\n    model_type = 'own'\n"
    )
    for trusted in (None, "true", "someone/else"):
        with pytest.raises(InputError, match="--trust-remote-code"):
            load_model(str(folder), trust_remote_code=trusted)
        assert not (tmp_path / "ran").exists()
    with pytest.raises(InputError):  # its code is run, and then it is no type that can be viewed
        load_model(str(folder), trust_remote_code=str(folder))
    assert (tmp_path / "ran").exists()
