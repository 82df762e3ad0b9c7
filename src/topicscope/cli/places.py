"""Options and arguments that are a folder or file, and what is said of them."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from topicscope.records import output_path, result_path, without_secrets


def _out_folder(_: Any, tokens: Sequence[Token]) -> Path:
    return output_path(tokens[0].value)


def _out_file(_: Any, tokens: Sequence[Token]) -> Path:
    return output_path(tokens[0].value, "file")


def _result_folder(_: Any, tokens: Sequence[Token]) -> Path:
    return result_path(tokens[0].value)


# A URL is refused as it was given: a path would lose a slash of s3://bucket.
OutFolder = Annotated[Path, Parameter(converter=_out_folder)]
OutFile = Annotated[Path, Parameter(converter=_out_file)]
ResultFolder = Annotated[Path, Parameter(converter=_result_folder)]


def command_line() -> str:
    """The command as it was given, for the record: without passwords and queries of URLs."""
    return shlex.join(["topicscope", *map(without_secrets, sys.argv[1:])])


def going_on(out: Path) -> str:
    """How to go on with a run that was stopped."""
    return f"to go on: the same command with --out {shlex.quote(str(out))} --resume"
