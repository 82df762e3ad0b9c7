"""A sphinx extension: the docstrings of the code, which are read as they stand, turned into reStructuredText.

They are written for people: code in single backticks, formulas indented, tables in Markdown, and a line `name: meaning`
for each argument or field. Without this a page would run the lines together and take `|i-j|` for a substitution.
"""

import re
from collections.abc import Iterator
from typing import Any

_ITEM = re.compile(r"(`?\w+`?(?:, `?\w+`?)*): (.*)")
_SECTION = re.compile(r"(Raises|Returns|Yields|Args):$")


def setup(app: Any) -> dict[str, bool]:
    """Called by sphinx. Before napoleon (priority 500), which turns `Raises:` into fields."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}


def _process(_app: Any, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def restructured(lines: list[str]) -> list[str]:
    """The docstring's lines as reStructuredText."""
    made: list[str] = []
    for paragraph in _paragraphs(lines):
        made += [*_paragraph(paragraph), ""]
    return made


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Lines between blank lines."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _paragraph(lines: list[str]) -> list[str]:
    if _SECTION.match(lines[0]):  # napoleon's business, but for the code spans
        return [lines[0], *(escaped(line) for line in lines[1:])]
    if lines[0].startswith(" "):  # a formula or an example
        return ["::", "", *(f"    {line}" for line in lines)]
    if lines[0].startswith("|"):
        return _table(lines)
    if any(_ITEM.match(line) for line in lines):
        return list(_items(lines))
    return list(_prose(lines))


def _prose(lines: list[str]) -> Iterator[str]:
    """Sentences; lines that are indented under one are a formula."""
    inside = False
    for line in lines:
        if line.startswith("    ") and not inside:
            yield from ("", "::", "")
        elif inside and not line.startswith(" "):
            yield ""
        inside = line.startswith("    ")
        yield f"    {line}" if inside else escaped(line)


def _items(lines: list[str]) -> Iterator[str]:
    """`name: meaning` as a bullet each; whatever follows a name belongs to it."""
    started = False
    for line in lines:
        item = _ITEM.match(line)
        if item:
            if not started:
                yield ""
            started = True
            names = ", ".join(f"``{name.strip('`')}``" for name in item[1].split(", "))
            yield f"* {names}: {escaped(item[2])}"
        else:
            yield f"  {escaped(line.strip())}" if started else escaped(line)


def _table(lines: list[str]) -> list[str]:
    """A Markdown table as a list-table."""
    whole = re.sub(r"(?<!\|)\n\s*", " ", "\n".join(lines)).splitlines()  # a row may go on in the next line
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in whole]
    made = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        made += [f"   {'* -' if number == 0 else '  -'} {escaped(cell)}" for number, cell in enumerate(row)]
    return made


def escaped(text: str) -> str:
    """Code spans doubled, and everything outside them taken literally."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"`{part}`" if number % 2 else re.sub(r"([\\*|@]|_(?!\w))", r"\\\1", part) for number, part in enumerate(parts)
    )
