"""Every number and figure of docs/theory is made by the commands that the page shows."""

import re
from pathlib import Path

import pytest

from theory.theory_pages import PAGES, outcomes
from topicscope.theory import THEOREMS

NAMES = sorted(path.name for path in PAGES.glob("*.md"))


def words(table: str) -> list[str]:
    return re.sub("[\u2500-\u257f]", " ", table).split()


@pytest.mark.docs
@pytest.mark.parametrize("name", NAMES)
def test_page_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs" / "theory").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    page = (PAGES / name).read_text(encoding="utf-8")
    blocks = list(outcomes(page))
    assert blocks or name == "README.md"
    for block, printed in blocks:
        shown = block[3] or ""
        # A table's frame is the command line's business; its words and numbers are the page's.
        same = words(shown) == words(printed) if block[1] == "sh" else shown == printed
        assert same, f"{block[2]}\nprints\n{printed}\nbut the page shows\n{shown}"
    for figure in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page):
        assert (PAGES / figure).is_file(), figure
        assert (tmp_path / "docs" / "theory" / figure).is_file(), f"no block of the page draws {figure}"


def test_every_python_and_sh_block_is_seen() -> None:
    for name in NAMES:
        page = (PAGES / name).read_text(encoding="utf-8")
        assert len(re.findall(r"^```(?:python|sh)$", page, re.MULTILINE)) == len(
            re.findall(r"```(?:python|sh)\n", page)
        )
        assert not re.search(r"^```(?!python$|sh$|text$|$)", page, re.MULTILINE), name


def test_every_theorem_has_its_page() -> None:
    text = "".join((PAGES / name).read_text(encoding="utf-8") for name in NAMES)
    assert [theorem.id for theorem in THEOREMS if f"`{theorem.id}`" not in text] == []
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if name != "README.md" and f"({name})" not in index] == []


def test_a_wrong_number_is_noticed() -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    [(block, printed)] = list(outcomes(page))
    assert block[3] == "3\n"
    assert printed == "2\n"
