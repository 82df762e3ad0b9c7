"""`topicscope report`: pages drawn again from what was saved; no model is loaded."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter

from topicscope import load
from topicscope.cli.options import OutFile, ResultFolder
from topicscope.cli.output import print_json, print_lines
from topicscope.errors import InputError
from topicscope.options import OUTPUT
from topicscope.probing.results import ProbeResult, compare
from topicscope.records import Result
from topicscope.report import write_comparison

_GENERATOR = b'<meta name="generator" content="topicscope">'


def report(
    *folders: Annotated[ResultFolder, Parameter(name="DIR")],
    out: Annotated[OutFile | None, OUTPUT] = None,
    json: Annotated[bool, OUTPUT] = False,
) -> None:
    """Write the page of a saved result again, or one page for several results of probes side by side.

    Parameters
    ----------
    folders
        One folder that `topicscope probe` (also of `--checkpoints`), `train`, `sweep` or `reproduce` wrote, or two or
        more of `probe`.
    out
        File of the page. Unless given, report.html in the folder (reproduction.html after `reproduce`), or
        comparison.html here for several.
    json
        Print {"page": FILE} on stdout.
    """
    if not folders:
        raise InputError("nothing to report", received="no folder", expected="topicscope report DIR")
    if out is not None and out.is_dir():
        raise InputError("the page is a folder", received=str(out), expected="--out FILE, a name that ends in .html")
    if out is not None:
        _require_own_page(out)
    results = {folder: load(folder) for folder in folders}
    if len(folders) > 1:
        others = [str(folder) for folder, result in results.items() if not isinstance(result, ProbeResult)]
        if others:
            raise InputError("only results of probes stand side by side", received=others, expected="folders of probe")
        page = out or Path("comparison.html")
        if out is None:
            _require_own_page(page)
        write_comparison(folders, page, *_differences(folders))
    else:
        (result,) = results.values()
        if not isinstance(result, Result):
            raise InputError(
                "there is no page for a history",
                received=str(folders[0]),
                expected="a folder that `topicscope probe`, `train`, `sweep` or `reproduce` wrote",
                advice='draw it in Python: topicscope.load(DIR).plot("emergence")',
            )
        page = result.report(out)
    if json:
        print_json({"page": str(page)})
    else:
        print_lines([f"page: {page}"])


def _require_own_page(page: Path) -> None:
    """A file that is there is replaced only if it is a page that topicscope wrote."""
    if not os.path.lexists(page):
        return
    with suppress(OSError), page.open("rb") as stream:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and _GENERATOR in stream.read(1_000):
            return
    raise InputError(
        "a file is there that topicscope did not write",
        received=str(page),
        expected="a new file, or a page of topicscope",
        advice="choose another name with --out, or move the file away",
    )


def _differences(folders: Sequence[Path]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """What `topicscope compare` says; where it has nothing to say, why."""
    try:
        found = compare(*folders)
    except InputError as error:
        return pd.DataFrame(), (f"Differences were not computed: {str(error).splitlines()[0]}.",)
    return found.rows, found.notes
