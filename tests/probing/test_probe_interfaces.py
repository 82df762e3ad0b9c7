"""What a probe says of itself in a notebook and in its record."""

import base64
import re
from pathlib import Path

import pytest

import tiny
import topicscope
from cli.probe_files import WORDS_CSV, jsonl, probe, result, save_model, texts


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.csv"
    path.write_text(WORDS_CSV)
    return path


def test_symptom_29_a_notebook_shows_a_table_and_a_picture_without_a_script(words: Path, tmp_path: Path) -> None:
    model, tokenizer = tiny.build("bert")
    measured = topicscope.probe(model, tokenizer, texts(), topics=words, controls=1, out=tmp_path / "run")
    for shown in (measured, topicscope.ProbeResult.load(tmp_path / "run")):
        page = shown._repr_html_()
        assert str(shown.headline["text"])[:20] in page
        assert f"{shown.headline['attention_ratio']:.3f}" in page
        found = re.search(r'<img [^>]*src="data:image/png;base64,([A-Za-z0-9+/=]+)"', page)
        assert found is not None
        assert base64.b64decode(found[1]).startswith(b"\x89PNG")
        assert "<script" not in page


def test_a_threshold_beside_a_word_list_is_warned_about_and_not_recorded(words: Path, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tiny-bert")
    corpus = jsonl(tmp_path / "corpus.jsonl", texts())
    options = ("--corpus", corpus, "--topics", words)
    assert probe(folder, *options, "--out", tmp_path / "plain") == 0
    assert probe(folder, *options, "--threshold", 0.01, "--out", tmp_path / "given") == 0
    plain, given = result(tmp_path / "plain"), result(tmp_path / "given")
    assert plain["manifest"]["options"]["threshold"] is given["manifest"]["options"]["threshold"] is None
    assert plain["warnings"] == []
    assert ["--threshold has no effect" in warning for warning in given["warnings"]] == [True]
    assert plain["table"] == given["table"]
    fitted = ("--corpus", corpus, "--topics", 3, "--sweeps", 5, "--min-count", 1, "--threshold", 0.2)
    assert probe(folder, *fitted, "--out", tmp_path / "fitted") == 0
    assert result(tmp_path / "fitted")["manifest"]["options"]["threshold"] == [0.2]
