"""README and docs say what is there: every command and option, links that lead somewhere, columns that exist."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import doc_pages
from scripts import load_script
from topicscope.cli import app
from topicscope.cli.probe import DEMO
from topicscope.probing.results.tables import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*doc_pages.pages(), "CHANGELOG.md"]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """Arguments of every `topicscope …` line in a shell block."""
    shell = [block for block in doc_pages.blocks(text) if block.kind != "python"]
    return [words[1:] for block in shell for words in doc_pages.commands(block) if words[0] == "topicscope"]


def generator() -> ModuleType:
    return load_script("docs/readme_table.py")


def test_the_readme_shows_every_command() -> None:
    shown = {arguments[0] for arguments in commands(page("README.md"))}
    assert shown >= {name for name in app if not name.startswith("-")} - {"demo"}  # `make demo` runs that one


def test_every_option_of_the_probe_is_in_the_readme() -> None:
    shown = [argument for argument in app["probe"].assemble_argument_collection() if argument.show]
    long = {name for argument in shown for name in argument.names if name.startswith("--")}
    long = {name for name in long if not name.startswith(("--no-", "--empty-"))}
    assert long == {name for name in long if f"`{name}`" in page("README.md")}
    assert len(long) > 15


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)\)", page(name))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (ROOT / name).parent.joinpath(target).exists()] == []


def test_the_table_of_the_readme_has_the_generator_s_form() -> None:
    made = generator()
    block = page("README.md").partition(made.BEGIN)[2].partition(made.END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if line[:1] == "|"]
    half = len(rows) // 2
    for head, part in ((made.ATTENTION, rows[:half]), (made.EMBEDDINGS, rows[half:])):
        assert tuple(part[0]) == head
        assert [float(row[0]) for row in part[2:]] == list(DEMO.threshold)
        assert all(re.match(r"-$|[\d.,]+", cell) for row in part[2:] for cell in row)


def test_the_generator_writes_the_numbers_of_the_record() -> None:
    made = generator()
    row = dict.fromkeys(COLUMNS, 1.25) | {"source": "measured", "threshold": 0.003, "attention_ratio": 1.5}
    row |= {"control_attention_ratio_low": None, "embedding_cosine_raw_ratio": None}
    record = {
        "table": [row, row | {"source": "paper", "threshold": 0.007}],
        "model": {"name": "somewhere/tiny"},
        "manifest": {"options": {"unit": "sentence", "topic_seeds": 3, "controls": 5}},
        "coverage": {"text": {"units_kept": 1234, "documents_kept": 9}},
    }
    block = made.render(record)
    assert "| 0.003 | 1 | 1 | 1.5 ± 1.2 |" in block
    assert block.count("| 0.003 |") == 2
    assert "0.007" not in block
    assert "| - |" in block
    assert "tiny: 1,234 sentences of 9 articles" in block
    assert "somewhere" not in block
    changed = made.replaced(f"before\n{made.BEGIN}\nold\n{made.END}\nafter\n", block)
    assert changed == f"before\n{made.BEGIN}\n{block}\n{made.END}\nafter\n"
    assert made.replaced(changed, block) == changed
    with pytest.raises(ValueError, match="no block"):
        made.replaced("nothing here", block)


def undocumented(columns: list[str], text: str) -> list[str]:
    """Columns named in no code span: `x_low`, `_high` names two columns, and … stands for anything."""
    known: list[str] = []
    for line in text.splitlines():
        last = ""
        for span in re.findall(r"`([\w…]+)`", line):
            if span.startswith("_"):
                known += [last + span, last.rpartition("_")[0] + span]
            else:
                known.append(span)
                last = span
    patterns = [re.compile(re.escape(span).replace("…", r"\w+")) for span in known]
    return [column for column in columns if not any(pattern.fullmatch(column) for pattern in patterns)]


def test_every_column_of_the_table_is_explained() -> None:
    section = page("docs/probing.md").partition("## The table")[2].partition("\n## ")[0]
    assert undocumented(COLUMNS, section) == []
    assert undocumented(["attention_ratio_new"], section) == ["attention_ratio_new"]


def unknown_names(text: str) -> set[str]:
    """Identifiers in code spans that stand nowhere in the source; `_same` may be the end of one."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    spans = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", text)
    paths = {span for span in spans if span.endswith(".py")}
    names = {part for span in set(spans) - paths for part in span.split(".")}
    ends = {name for name in names if name[:1] == "_" and any(word.endswith(name) for word in known)}
    return names - known - ends


def test_every_name_of_the_notation_is_in_the_source() -> None:
    text = page("docs/notation.md")
    assert unknown_names(text) == set()
    assert unknown_names("`no_such_name_anywhere`") == {"no_such_name_anywhere"}
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    assert [name for name in files if not (ROOT / "src" / "topicscope" / name).is_file()] == []
    assert len(files) > 15


def test_the_citation_is_one() -> None:
    cited = yaml.safe_load(page("CITATION.cff"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "version", "license"} <= set(cited)
    assert cited["preferred-citation"]["type"] == "software"
    [paper] = cited["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Li", "Li", "Risteski"]
    assert (paper["start"], paper["end"], paper["volume"], paper["year"]) == (19689, 19729, 202, 2023)
