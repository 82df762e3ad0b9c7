"""The code blocks of README.md and docs/, and what is done with each of them.

Every block of python, sh or console is run, in the order of its page and in one namespace, unless the comment right
before it says something else:

    <!-- not run: REASON -->              left alone
    <!-- parsed: REASON -->               the command line reads every line, and nothing is done
    <!-- run smaller: OPTIONS -->         run, with these options in place of the page's (`--set` is added to them)

A block of text right behind one that is run holds what it prints; with words in between it is not compared. In a shell
block lines start with `topicscope` (`$ ` may stand before it in console blocks); nothing else can be run, so it needs a
reason.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from topicscope.cli import app, run

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("python", "sh", "console")
# What is shown, not done; {…} is sphinx's.
SHOWN = ("text", "toml", "json", "csv", "bibtex", "jsonl")
WIDTH = "100"
_MARK = re.compile(r"<!-- (not run|parsed|run smaller): (.+?) -->")
_FENCE = re.compile(r"^( *)(`{3,})(.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, source and line, its mark with the reason, and the output shown behind it."""

    kind: str
    source: str
    line: int
    mark: str = "run"
    reason: str = ""
    shown: str = ""


def pages() -> list[str]:
    """README.md, CONTRIBUTING.md and every page of docs/, relative to the root."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file.relative_to(ROOT).as_posix() for file in files]


def read(name: str) -> str:
    """The text of a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str) -> Iterator[tuple[str, str, int, str]]:
    """(language, source, line, what stands before it since the block before) of every fenced block."""
    lines, before = iter(enumerate(text.splitlines(), start=1)), ""
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            before += line + "\n"
            continue
        source = []
        for _, inner in lines:
            if inner.strip() == opening[2]:
                break
            source.append(inner.removeprefix(opening[1]))
        else:
            raise ValueError(f"line {number}: the block has no end")
        yield opening[3].strip(), "".join(f"{inner}\n" for inner in source), number, before
        before = ""


def blocks(text: str) -> list[Block]:
    """Every block of python, sh or console with its mark; a language that nobody knows is an error."""
    found: list[Block] = []
    follows = False
    for language, source, line, before in fences(text):
        if language in KINDS:
            last = before.rstrip().rpartition("\n")[2]
            mark = _MARK.fullmatch(last)
            if mark is None and "<!--" in last and ("run" in last or "parse" in last):
                raise ValueError(f"line {line}: {last} is no mark")
            found.append(Block(language, source, line, *((mark[1], mark[2]) if mark else ("run", ""))))
        elif language == "text" and follows and not before.strip():
            found[-1] = Block(**vars(found[-1]) | {"shown": source})
        elif language not in SHOWN and not language.startswith("{"):
            raise ValueError(f'line {line}: a block of "{language}" is neither run nor known to be text')
        follows = language in KINDS
    return found


def commands(block: Block) -> list[list[str]]:
    """The lines of a shell block as words; comments and empty lines left out."""
    lines = block.source.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line.removeprefix("$ "), comments=True))]


def parse(arguments: list[str]) -> None:
    """Let the command line read the words behind `topicscope`; raises what it raises."""
    app.parse_args(arguments, exit_on_error=False, print_error=False)


def replaced(arguments: list[str], extra: list[str]) -> list[str]:
    """The arguments with those options of `extra` in place of their own; `--set` may stand several times."""
    named = {word for word in extra if word.startswith("--")} - {"--set"}
    kept, dropping = [], False
    for word in arguments:
        dropping = word in named or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
    return kept + extra


def do(block: Block, names: dict[str, object]) -> str | None:
    """Do with a block what its mark says; what it printed, where that can be compared with what the page shows."""
    if block.mark == "not run":
        return None
    if block.kind == "python":
        assert block.mark == "run", f"line {block.line}: python is run or not run"
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.source, f"line {block.line}", "exec"), names)
        return printed.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as printed, page_width():
        for program, *arguments in commands(block):
            assert program == "topicscope", f"line {block.line}: {program} needs a reason why it is not run"
            parse(arguments)
            if block.mark != "parsed":
                extra = shlex.split(block.reason) if block.mark == "run smaller" else []
                assert run(replaced(arguments, extra)) == 0, f"line {block.line}: topicscope {shlex.join(arguments)}"
    return printed.getvalue() if block.mark == "run" else None


def same(shown: str, printed: str) -> bool:
    """Whether the words and numbers agree; frames and spaces of tables are the terminal's business."""
    first, second = (re.sub("[\u2500-\u257f]", " ", text).split() for text in (shown, printed))
    return first == second


@contextlib.contextmanager
def page_width() -> Iterator[None]:
    """Tables as wide as the pages show them, wherever the test runs."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
