"""Every block of code in README.md and docs/ is run, or says why it is not."""

import json
import shutil
from pathlib import Path

import cyclopts
import pytest

from cli.probe_files import WORDS_CSV, save_model, texts
from doc_pages import ROOT, Block, blocks, commands, do, fences, pages, read, replaced, same

# Pages whose blocks another test runs, to compare figures and whole tables as well.
THEORY = [name for name in pages() if name.startswith("docs/theory/")]
PAGES = [name for name in pages() if name not in THEORY and blocks(read(name))]
MODELS = {"bert-base-uncased": "bert", "roberta-base": "roberta", "gpt2": "gpt2", "my-model": "bert"}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder as a reader may have it: small models under the names of real ones, and some text."""
    folder = tmp_path_factory.mktemp("pages")
    for name, family in MODELS.items():
        save_model(folder / name, family)
    documents = texts(20)
    rows = [{"id": f"doc{number}", "text": text} for number, text in enumerate(documents)]
    (folder / "articles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "articles.txt").write_text("\n".join(documents) + "\n")
    (folder / "labels.csv").write_text(WORDS_CSV)
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    return folder


@pytest.fixture
def working_folder(stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    shutil.copytree(stand_ins, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.docs
@pytest.mark.usefixtures("working_folder")
@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_do_what_it_says(name: str) -> None:
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(read(name)):
        printed = do(block, names)
        if block.shown and printed is not None:
            assert same(block.shown, printed), f"{name}, line {block.line}, prints\n{printed}"


def test_every_page_is_seen() -> None:
    with_blocks = [name for name in pages() if "```python" in read(name) or "```sh" in read(name)]
    assert set(with_blocks) <= set(PAGES) | set(THEORY)
    assert len(PAGES) > 10
    assert not [block for name in THEORY for block in blocks(read(name)) if block.mark != "run"]


def test_every_page_of_the_docs_is_in_the_table_of_contents() -> None:
    contents = [source for language, source, _, _ in fences(read("docs/index.md")) if language == "{toctree}"]
    listed = [line for source in contents for line in source.splitlines() if line and not line.startswith(":")]
    found = {page for line in listed for page in (ROOT / "docs").glob(f"{line}.md")}
    assert set((ROOT / "docs").rglob("*.md")) - found == set()
    assert len(listed) > 20


def test_a_block_without_reason_is_noticed() -> None:
    [block] = blocks("Text.\n\n```sh\nmake test\n```\n")
    with pytest.raises(AssertionError, match="needs a reason"):
        do(block, {})
    [excused] = blocks("Text.\n\n<!-- not run: it would run this test -->\n```sh\nmake test\n```\n")
    assert do(excused, {}) is None


def test_the_comment_must_stand_right_before_the_block() -> None:
    [block] = blocks("<!-- not run: because -->\n\nSomething else.\n\n```sh\nmake test\n```\n")
    assert block.mark == "run"


def test_a_misspelt_mark_is_noticed() -> None:
    with pytest.raises(ValueError, match="no mark"):
        blocks("<!-- not run -->\n```sh\nmake test\n```\n")


def test_a_wrong_option_is_noticed() -> None:
    for mark in ("", "<!-- parsed: takes an hour -->\n"):
        [block] = blocks(f"{mark}```sh\ntopicscope probe bert-base-uncased --no-such-option 3\n```\n")
        with pytest.raises(cyclopts.CycloptsError):
            do(block, {})


def test_a_command_that_fails_is_noticed(working_folder: Path) -> None:
    [block] = blocks("```sh\ntopicscope probe no-such-folder/model --corpus articles.jsonl\n```\n")
    with pytest.raises(AssertionError, match="no-such-folder"):
        do(block, {})
    assert not (working_folder / "topicscope-runs").exists()


def test_a_wrong_output_is_noticed() -> None:
    [block] = blocks("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert do(block, {}) == "2\n"
    assert not same(block.shown, "2\n")
    assert same("│ a │ 2 │\n", "a   2")


def test_python_that_fails_is_noticed() -> None:
    with pytest.raises(NameError):
        do(Block("python", "undefined\n", 1), {})


def test_a_language_nobody_knows_is_noticed() -> None:
    with pytest.raises(ValueError, match="neither run"):
        blocks("```\ntopicscope probe\n```\n")
    with pytest.raises(ValueError, match="no end"):
        blocks("```sh\ntopicscope probe\n")


def test_lines_that_go_on_and_comments_are_understood() -> None:
    [block] = blocks("```console\n$ topicscope probe x \\\n    --json  # for machines\n# nothing\n```\n")
    assert commands(block) == [["topicscope", "probe", "x", "--json"]]


def test_smaller_options_take_the_place_of_the_page_s() -> None:
    page = ["probe", "x", "--threshold", "0.1", "0.2", "--json", "--set", "a=1"]
    expected = ["probe", "x", "--json", "--set", "a=1", "--threshold", "0.5", "--set", "b=2"]
    assert replaced(page, ["--threshold", "0.5", "--set", "b=2"]) == expected
