"""Runs the pages of docs/theory: their python blocks, and their `topicscope theory` commands, in order.

    python tests/theory/theory_pages.py            fill every ```text block and redraw every figure, in place

A ```text block right after a ```python or ```sh block holds what that block prints.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from doc_pages import page_width

PAGES = Path(__file__).resolve().parents[2] / "docs" / "theory"
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def run_block(kind: str, source: str, names: dict[str, object]) -> str:
    """What one block prints; `names` is the page's namespace."""
    printed = io.StringIO()
    with page_width(), contextlib.redirect_stdout(printed):
        if kind == "python":
            exec(compile(source, "page", "exec"), names)
        else:
            from topicscope.cli import run

            for line in source.replace("\\\n", " ").splitlines():
                program, *arguments = shlex.split(line)
                assert program == "topicscope", line
                assert run(arguments) == 0, line
    lines = "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n" if lines.strip() else ""


def outcomes(page: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each block of a page with what it prints."""
    names: dict[str, object] = {"__name__": "page"}
    for block in _BLOCK.finditer(page):
        yield block, run_block(block[1], block[2], names)


def filled(page: str) -> str:
    """The page with every block followed by what it prints now."""
    parts, end = [], 0
    for block, printed in outcomes(page):
        parts += [page[end : block.start()], f"```{block[1]}\n{block[2]}```\n"]
        parts += [f"\n```text\n{printed}```\n"] if printed else []
        end = block.end()
    return "".join([*parts, page[end:]])


def main() -> None:
    """Fill every page in place."""
    os.chdir(PAGES.parents[1])
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        sys.stderr.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
