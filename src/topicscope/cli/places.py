"""Options and arguments that are a folder or file, of this machine or at a URL, and what is said of them."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token
from upath import UPath

from topicscope.records.output import OutputFolder, output_folder
from topicscope.records.places import shown, url_of, without_secrets


def _location(_: Any, tokens: Sequence[Token]) -> Path | UPath:
    """A path would lose a slash of s3://bucket."""
    url = url_of(tokens[0].value)
    return Path(tokens[0].value) if url is None else url


Location = Annotated[Path | UPath, Parameter(converter=_location)]


def command_line() -> str:
    """The command as it was given, for the record: without passwords and queries of URLs."""
    return shlex.join(["topicscope", *map(without_secrets, sys.argv[1:])])


def where(place: Path | UPath) -> str:
    """How a place is called on the terminal."""
    return shown(place)


def going_on(out: Path | UPath) -> str:
    """How to go on with a run that was stopped."""
    return f"to go on: the same command with --out {shlex.quote(shown(out))} --resume"


@contextmanager
def stored(out: Path | UPath, record: str, *, resume: bool = False, overwrite: bool = False) -> Iterator[OutputFolder]:
    """`output_folder`; after Ctrl-C it is said how to go on where that is kept out of sight."""
    try:
        with output_folder(out, record, resume=resume, overwrite=overwrite) as output:
            yield output
    except KeyboardInterrupt:
        if url_of(out) is not None:
            sys.stderr.write(f"{going_on(out)}\n")
        raise
