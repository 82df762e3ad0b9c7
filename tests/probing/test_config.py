"""The options of a probe are written down once: what else names them is compared with `ProbeConfig` here."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

import topicscope
from cli.probe_files import WORDS_CSV, texts
from topicscope.cli import app
from topicscope.errors import InputError
from topicscope.probing import ProbeConfig, ProbeOverrides

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ["Model", "Text", "Topics", "Measurement", "Statistics", "Compute", "Output", "Advanced"]


def test_keywords_for_type_checkers_are_the_fields() -> None:
    assert list(get_type_hints(ProbeOverrides).items()) == list(get_type_hints(ProbeConfig).items())


def test_help_shows_bare_types() -> None:
    shown = str(inspect.signature(ProbeConfig))
    assert "controls: int = 5" in shown
    assert "Annotated" not in shown


def test_every_option_has_a_group_and_a_sentence_in_the_help() -> None:
    found = app["probe"].assemble_argument_collection(parse_docstring=True)
    shown = {argument.field_info.name: argument.parameter for argument in found if argument.show}
    assert {field.name for field in fields(ProbeConfig)} - shown.keys() == {"padding"}
    for name, parameter in shown.items():
        assert [group.name for group in parameter.group] in [[group] for group in GROUPS], name
        assert parameter.help, name


def test_the_readme_names_every_option_and_its_default() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`--.*?) \| .* \| (.*?) \|$", text, re.MULTILINE)
    defaults = {name: default for names, default in rows for name in re.findall(r"`--([\w-]+)`", names)}
    config = ProbeConfig().to_dict()
    options = {field.name.replace("_", "-") for field in fields(ProbeConfig)} - {"padding"}
    assert options <= defaults.keys()
    for option in options - {"trust-remote-code"}:
        value = config[option.replace("-", "_")]
        if value not in (None, False):
            words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            assert words in defaults[option], option


@pytest.mark.parametrize(
    ("given", "nearest"),
    [({"permutation": 3}, "permutations="), ({"topcis": 3}, "topics="), ({"deivce": "cuda"}, "device=")],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(given: dict[str, object], nearest: str) -> None:
    (name,) = given
    for call in (topicscope.probe, topicscope.probe_checkpoints):
        with pytest.raises(InputError) as caught:
            call("no-model", out="nowhere", **given)
        assert caught.value.summary == f"unknown option {name}="
        assert str(caught.value.expected).startswith(nearest)
    with pytest.raises(InputError, match="threshold=, unit=, max_units="):
        topicscope.probe("no-model", xyzzy=1)  # type: ignore[call-arg]


def test_keywords_come_before_the_config() -> None:
    config = ProbeConfig(controls=2, seed=3).updated({"seed": 4}, topicscope.probe)
    assert (config.controls, config.seed) == (2, 4)
    with pytest.raises(InputError, match="bad option --seed"):
        config.updated({"seed": -1}, topicscope.probe)


def test_minilm_is_a_name_in_python_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line; a folder of that name is that folder."""
    words = tmp_path / "words.csv"
    words.write_text(WORDS_CSV)
    monkeypatch.chdir(tmp_path)
    quick = {"controls": 0, "permutations": 0, "profile": 0}
    result = topicscope.probe("minilm", documents=texts(4), topics=words, **quick)
    circuits = topicscope.circuits("MiniLM", topics=words)
    assert result.model["parameters"] > 20e6
    assert circuits.model["name"] == result.model["name"]
    series = topicscope.probe_checkpoints(["minilm"], texts(4), topics=words, out=tmp_path / "series", **quick)
    assert series.result("minilm").headline["attention_ratio"] == result.headline["attention_ratio"]
    (tmp_path / "minilm").mkdir()
    with pytest.raises(InputError, match=r"config\.json"):
        topicscope.probe("minilm", documents=texts(4), topics=words)
