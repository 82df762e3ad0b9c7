"""The real MiniLM on real Wikipedia text, small enough for every test run."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import topicscope
from topicscope import demo as minilm
from topicscope.errors import InputError
from topicscope.text import wikipedia_sample

THRESHOLD = 0.004


@pytest.fixture(scope="module")
def result() -> topicscope.ProbeResult:
    """A third of the articles, to keep the topic model quick."""
    articles = list(wikipedia_sample())[::3]
    return topicscope.probe(
        str(minilm.minilm_folder()),
        documents=articles,
        topics=50,
        sweeps=50,
        threshold=(THRESHOLD,),
        max_units=250,
        controls=2,
    )


def test_the_trained_model_favours_words_of_one_topic_and_random_weights_do_not(
    result: topicscope.ProbeResult,
) -> None:
    row = result.table().query("source == 'measured'").iloc[0]
    assert result.headline["attention_ratio"] == row["attention_ratio"]
    assert result.headline["low"] > 1.1, result.headline
    assert row["attention_ratio_distinct"] > 1.1, "not only the same word twice"
    controls = result.controls
    assert len(controls) == 2
    assert (controls["attention_ratio"] - 1).abs().max() < 0.01
    assert row["embedding_cosine_raw_difference"] > 0
    assert row["embedding_cosine_layer_difference"] > 0


def test_the_record_says_what_was_probed(result: topicscope.ProbeResult) -> None:
    model = result.model
    assert model["model_type"] == "bert"
    assert [(part["num_layers"], part["num_heads"]) for part in model["parts"]] == [(6, 12)]
    assert model["max_length"] == 512
    heads = result.heads()
    assert len(heads) == 72
    assert np.isfinite(heads["attention_ratio"]).all()
    assert result.coverage["text"]["units_kept"] == 250
    assert result.coverage["alignment"]["found"] > 3000


class InstalledFile:
    """A file of an installed package, as `importlib.metadata` lists it."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name

    def locate(self) -> Path:
        return self.path


def test_weights_are_checked_against_their_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = minilm.minilm_folder() / "model.safetensors"
    changed = tmp_path / "model.safetensors"
    shutil.copy(good, changed)
    monkeypatch.setattr(minilm.metadata, "files", lambda _: [InstalledFile(changed)])
    assert minilm.minilm_folder() == tmp_path, "the same bytes elsewhere are fine"
    with changed.open("r+b") as stream:
        stream.seek(-1, 2)
        last = stream.read(1)
        stream.seek(-1, 2)
        stream.write(bytes([last[0] ^ 1]))
    with pytest.raises(InputError, match="not the expected one") as caught:
        minilm.minilm_folder()
    assert f"sha256 {minilm.SHA256}" in str(caught.value)
    assert str(changed) in str(caught.value)
    changed.unlink()
    with pytest.raises(InputError, match="incomplete"):
        minilm.minilm_folder()


def test_without_the_package_the_error_says_what_to_install() -> None:
    with pytest.raises(InputError, match="not installed") as caught:
        minilm.minilm_folder("no-such-package-of-anyone")
    assert "topicscope[demo]" in str(caught.value)


def test_weights_are_those_of_a_trained_encoder() -> None:
    """Not a random initialisation under another name: trained embeddings are far from the initial spread of .02."""
    from safetensors.torch import load_file

    table = load_file(minilm.minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert table.shape == (30522, 384)
    assert float(torch.std(table)) > 0.03
