"""The command line as a whole: help on one screen, exit codes, and errors that are one clear message."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import cyclopts
import pytest
from rich.console import Console

import topicscope
from topicscope.cli import app, run
from topicscope.errors import InputError, RunError

BAYES = ["theory", "bayes", "--topics", "3", "--words-per-topic", "2", "--topics-per-document", "1"]
COMMANDS = ("probe", "topics", "theory", "train", "demo")


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(app, "console", Console())  # else the one of an earlier test, with that test's width


def leaves(parent: cyclopts.App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, as the words one types."""
    for name in parent:
        if not name.startswith("-"):
            child = parent[name]
            nested = [inner for inner in child if not inner.startswith("-")]
            yield from leaves(child, (*path, name)) if nested else [(*path, name)]


def test_help_is_one_screen_and_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for command in {path[0] for path in leaves()} | set(COMMANDS):
        assert any(line.strip("│ ").startswith(f"{command} ") for line in lines), command


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == topicscope.__version__ == metadata.version("topicscope")


@pytest.mark.parametrize("path", sorted(leaves()), ids=" ".join)
def test_every_command_has_help_for_every_option_and_json(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert max(map(len, shown.splitlines())) <= 80
    command = app[path[0]] if len(path) == 1 else app[path[0]][path[1]]
    found = command.assemble_argument_collection(parse_docstring=True)
    assert len(found) >= 1
    assert [argument.name for argument in found if argument.show and not argument.parameter.help] == []


def test_there_are_the_commands_of_the_table() -> None:
    """The walk over commands above must not be empty by accident."""
    assert {"probe", "demo", "train"} <= {" ".join(path) for path in leaves()}
    assert {"topics fit", "topics show", "theory attention", "theory value-matrix"} <= {" ".join(p) for p in leaves()}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["bogus"], "bogus"),
        (["--bogus"], "--bogus"),
        (["probe"], "MODEL"),
        (["probe", "model", "--thresold", "0.1"], "--thresold"),
        (["probe", "model", "--threshold", "much"], "much"),
        (["probe", "model", "--unit", "page"], "page"),
        (["probe", "model", "--controls", "some"], "some"),
        (["topics", "bogus"], "bogus"),
        (["theory", "bogus"], "bogus"),
        (["train"], "RECIPE"),
    ],
)
def test_bad_usage_is_exit_2_and_one_message(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    error, advice = printed.err.splitlines()
    assert error.startswith("error: ")
    assert named in error
    assert "--help" in advice


@pytest.mark.parametrize(
    ("raised", "code", "shown"),
    [
        (InputError("no such thing", received="[red]x[/red]", expected="y" * 100), 2, "received: [red]x[/red]"),
        (RunError("it broke", where="/a/" + "long/" * 30 + "path"), 1, "/a/" + "long/" * 30 + "path\n"),
        (OSError(36, "File name too long", "a" * 300), 1, "the system refused: [Errno 36] File name too long"),
        (MemoryError(), 1, "the system refused: not enough memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_exit_codes(
    raised: BaseException,
    code: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages come as they are: no markup read into them, no path broken at the 80th column."""

    def fails(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("topicscope.cli.theory._show", fails)
    assert run(BAYES) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert shown in printed.err
    assert "Traceback" not in printed.err


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("topicscope.cli.theory._show", fails)
    with pytest.raises(ZeroDivisionError):
        run(BAYES)


@pytest.mark.process
def test_the_installed_command_returns_the_code_and_prints_json_only() -> None:
    command = [sys.executable, "-c", "from topicscope.cli import main; main()"]
    good = subprocess.run([*command, *BAYES, "--json"], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    assert isinstance(json.loads(good.stdout), dict)
    bad = subprocess.run([*command, "bogus"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: ")
    (entry,) = metadata.entry_points(group="console_scripts", name="topicscope")
    assert entry.value == "topicscope.cli:main"
