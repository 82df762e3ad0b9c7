"""`topicscope report`: pages drawn again from what was saved; no model is loaded."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter

from topicscope.cli.options import OutFile, ResultFolder
from topicscope.cli.output import print_json, print_lines
from topicscope.errors import InputError
from topicscope.experiments import RECORD as SWEEP_RECORD
from topicscope.experiments import SweepResult
from topicscope.monitoring import PAGE, RECORD, CheckpointSeries
from topicscope.probing.results import compare
from topicscope.records import PROBE, RUN, SERIES, SWEEP, write_text
from topicscope.report import (
    Differences,
    load_reproduction,
    render_reproduction,
    write_comparison,
    write_probe,
    write_reproduction,
    write_run,
)

_LAYOUTS = {"probe": PROBE, "run": RUN, "sweep": SWEEP, "series": SERIES}
_GENERATOR = b'<meta name="generator" content="topicscope">'


def report(
    *folders: Annotated[ResultFolder, Parameter(name="DIR")],
    out: OutFile | None = None,
    json: bool = False,
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
    kinds = {str(folder): kind_of(folder) for folder in folders}
    if len(folders) > 1:
        others = {folder: kind for folder, kind in kinds.items() if kind != "probe"}
        if others:
            raise InputError("only results of probes stand side by side", received=others, expected="folders of probe")
        page = out or Path("comparison.html")
        _require_own_page(page)
        write_comparison(folders, page, _differences(folders))
    else:
        if out is not None:
            _require_own_page(out)
        page = _write(folders[0], out)
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


def _write(folder: Path, out: Path | None) -> Path:
    kind = kind_of(folder)
    if kind == "reproduction":
        if out is None:
            write_reproduction(folder)
            return folder / "reproduction.html"
        write_text(out, render_reproduction(load_reproduction(folder)))
        return out
    if kind == "probe":
        page = write_probe(folder, out=out)
    elif kind == "run":
        page = write_run(folder, out=out)
    else:
        page = out or folder / PAGE
        write_text(page, (SweepResult if kind == "sweep" else CheckpointSeries).load(folder).page())
    if out is None:
        _LAYOUTS[kind].add_to_list(folder, page.name)
    return page


def _differences(folders: Sequence[Path]) -> Differences:
    """What `topicscope compare` says; where it has nothing to say, why."""
    try:
        found = compare(*folders)
    except InputError as error:
        return Differences(pd.DataFrame(), (f"Differences were not computed: {str(error).splitlines()[0]}.",))
    return Differences(found.rows, found.notes)


def kind_of(folder: Path) -> str:
    """ "probe", "series", "run", "sweep" or "reproduction".

    Raises:
        InputError: none of these.
    """
    if (folder / "claims.json").is_file():
        return "reproduction"
    if (folder / "result.json").is_file():
        return "probe"
    if (folder / SWEEP_RECORD).is_file():
        return "sweep"
    if (folder / RECORD).is_file():
        return "series"
    if (folder / "summary.json").is_file():
        return "run"
    raise InputError(
        "no saved result",
        received=str(folder),
        expected="a folder that `topicscope probe`, `train`, `sweep` or `reproduce` wrote",
        advice="name the folder itself, as it was given to --out",
    )
