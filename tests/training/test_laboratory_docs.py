"""docs/laboratory.md: its Python blocks run and print what the page shows; its tables of fields are the recipe's."""

import re
from pathlib import Path

import pytest

from topicscope.cli import run
from topicscope.training.recipe import Recipe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "laboratory.md"
TEXT = PAGE.read_text(encoding="utf-8")


def field_tables() -> str:
    """The reference of all recipe fields, as the page must hold it."""
    lines = []
    for table in ("data", "masking", "model", "training", "history"):
        fields = type(getattr(Recipe.model_validate({}), table)).model_fields
        lines += [f"### [{table}]", "", "| key | default | meaning |", "| --- | --- | --- |"]
        for name, field in fields.items():
            default = field.get_default(call_default_factory=True)
            shown = "" if default is None else f"`{default!r}`"
            lines.append(f"| `{name}` | {shown} | {(field.description or '').replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def test_the_reference_of_fields_is_current() -> None:
    shown = TEXT.split("<!-- fields -->")[1].split("<!-- end of fields -->")[0]
    assert shown.strip() == field_tables().strip()


def test_python_blocks_print_what_the_page_shows(capsys, monkeypatch, tmp_path) -> None:
    (tmp_path / "recipes").symlink_to(PAGE.parents[1] / "recipes")
    monkeypatch.chdir(tmp_path)  # the blocks write files
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", TEXT, flags=re.DOTALL)
    assert len(blocks) >= 2
    for code, expected in blocks:
        exec(compile(code, str(PAGE), "exec"), namespace)
        printed = capsys.readouterr().out
        if expected:
            assert printed.split() == expected.split()


@pytest.mark.parametrize("line", re.findall(r"^\$ topicscope (train .*)$", TEXT, flags=re.MULTILINE))
def test_the_commands_of_the_page_are_valid(line, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(PAGE.parents[1])
    words = [word for word in line.split() if word != "--resume"]
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    words[2:2] = ["--set", "training.steps=2", "--out", str(tmp_path / "run")]
    assert run(words) == 0
