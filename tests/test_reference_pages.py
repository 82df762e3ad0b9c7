"""The reference names every public thing and every option; docstrings come out as what they mean."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import topicscope
import topicscope.lab
import topicscope.theory
from scripts import load_script
from topicscope.cli import app

DOCS = Path(__file__).resolve().parents[1] / "docs"


def extension(name: str) -> ModuleType:
    return load_script(f"docs/{name}.py")


def documented(page: str) -> set[str]:
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    return set(re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)(?:\(.*\))?$", text, re.MULTILINE))


def test_every_public_name_is_in_the_reference() -> None:
    assert set(topicscope.__all__) - documented("python.md") == {"__version__"}
    lab = {
        "Stages",
        "find_stages",
        "fixed_set",
        "load_recipe",
        "make_recipe",
    }  # a recipe's fields are a table of their own
    assert lab <= documented("training.md") & set(topicscope.lab.__all__)


def test_every_public_name_says_what_it_is() -> None:
    for package in (topicscope, topicscope.lab, topicscope.theory):
        for name in package.__all__:
            thing = getattr(package, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            assert inspect.getdoc(thing), name
            if inspect.isclass(thing):
                own = [member for member in vars(thing).items() if not member[0].startswith("_")]
                assert [key for key, value in own if inspect.isfunction(value) and not inspect.getdoc(value)] == [], (
                    name
                )


def test_every_command_and_option_is_in_the_reference() -> None:
    page = extension("command_line").commands()
    sections = dict(
        re.findall(r"^#+ topicscope ([\w -]+)\n(.*?)(?=^#+ topicscope |\Z)", page, re.MULTILINE | re.DOTALL)
    )
    names = {name for name in app if not name.startswith("-")}
    assert len(names) > 6
    assert names <= set(sections)
    for command in ("probe", "train", "topics fit"):
        found = app[command.split()[0]]
        for part in command.split()[1:]:
            found = found[part]
        long = {
            name
            for argument in found.assemble_argument_collection()
            for name in argument.names
            if argument.show and name[:2] == "--"
        }
        shown = set(re.findall(r"--[\w-]+", sections[command]))
        assert {name for name in long if not name.startswith(("--no-", "--empty-"))} <= shown


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (["Use `a|b`, not |a|."], ["Use ``a|b``, not \\|a\\|.", ""]),
        (
            ["model: a name", "    or a folder.", "out, log: folders"],
            ["", "* ``model``: a name", "  or a folder.", "* ``out``, ``log``: folders", ""],
        ),
        (["    W = c*1"], ["::", "", "        W = c*1", ""]),
        (["See *this*, W_ and NAME@1"], ["See \\*this\\*, W\\_ and NAME\\@1", ""]),
        (["Raises:", "    InputError: `x` is bad."], ["Raises:", "    InputError: ``x`` is bad.", ""]),
    ],
)
def test_docstrings_become_restructured_text(docstring: list[str], expected: list[str]) -> None:
    assert extension("docstrings").restructured(docstring) == expected


def test_tables_become_tables_and_a_row_may_go_on() -> None:
    made = extension("docstrings").restructured(["| field | meaning |", "| --- | --- |", "| a | what it", "is |"])
    assert made[0] == ".. list-table::"
    assert made[-5:] == ["   * - field", "     - meaning", "   * - a", "     - what it is", ""]


def test_a_line_of_prose_is_no_item() -> None:
    made = extension("docstrings").restructured(["What two positions have: nothing in common.", "Or something."])
    assert not [line for line in made if line.startswith("*")]
