"""`topicscope reproduce`: the paper's claims, each with what theory says, what was measured, and a verdict."""

import shutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from topicscope.claims import CLAIMS, ClaimResult
from topicscope.claims import reproduce as run_claims
from topicscope.cli.options import RunOptions, command_line, going_on
from topicscope.cli.output import format_cell, print_json, print_lines, print_table, show_progress
from topicscope.options import Whole

_WIDE = 110  # columns of a terminal


def reproduce(
    *claims: str,
    quick: bool = False,
    seeds: Whole | None = None,
    models: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    run: RunOptions = RunOptions(),
) -> None:
    """Hold the paper's claims against theory and training, one verdict a claim.

    A verdict is a result: the exit code is 0 whatever it says. --resume keeps the claims that were finished in --out,
    and shows them whether or not they are named again.

    Parameters
    ----------
    claims
        Claims to run, such as value-block; all unless given.
    quick
        Shorter runs and fewer settings.
    seeds
        Independent runs behind every number, at least 2; 4, or 3 with --quick, unless given.
    models
        Pretrained models for pretrained-table: minilm, mpnet, smollm2, small-bert, hub names, folders, or paper for the
        paper's five. The paper's real table, where the hub is in reach: topicscope reproduce pretrained-table --models
        paper. Unless given minilm, mpnet and smollm2 where installed, and small-bert, which is trained here; with
        --quick minilm and small-bert.
    """
    target = run.folder("reproduce")
    try:
        with show_progress(run.progress) as shown:
            done = run_claims(
                claims,
                quick=quick,
                seeds=seeds,
                models=models,
                out=target,
                resume=run.resume,
                overwrite=run.overwrite,
                progress=shown,
                command=command_line(),
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"{going_on(target)}\n")
        raise
    if run.json:
        print_json(done.to_dict())
    else:
        for result in done.results:
            _show(result)
        _show_summary(done.results)
        print_lines([f"record: {target}", f"page: {target}/reproduction.html"])


def _show(result: ClaimResult) -> None:
    claim = next(claim for claim in CLAIMS if claim.id == result.id)
    judged = {criterion.id: criterion for criterion in claim.criteria}
    rows = [
        [
            row["quantity"],
            row["paper"],
            row["theory"],
            _measured(row),
            "-" if row["measured"] is None or not row["criterion"] else _answer(judged[row["criterion"]].met(row)),
        ]
        for row in result.rows
    ]
    missing = [row for row in result.rows if row.get("reason")]
    reasons = dict.fromkeys(f"not run: {row.get('model') or row['quantity']}: {row['reason']}" for row in missing)
    print_table(
        f"{claim.id}: {claim.title} ({claim.where})",
        ["quantity", "paper", "theory", "measured ± error", "holds"],
        rows,
        "\n".join([f"{_words(result.verdict)}: {result.statistic}", *reasons]),
    )


def _show_summary(results: Sequence[ClaimResult]) -> None:
    """One line a claim. What the number is stands in the claim's own table; here only where there is room for it."""
    columns = ["claim", "quantity", "paper", "theory", "measured ± error", "verdict"]
    left_out = {"quantity"} if shutil.get_terminal_size().columns < _WIDE else set()
    kept = [i for i, name in enumerate(columns) if name not in left_out]
    print_table(
        "Summary: the first number that each verdict rests on",
        [columns[i] for i in kept],
        [[line[i] for i in kept] for line in map(_summary, results)],
        unbroken=[name for name in columns if name != "quantity"],
    )


def _summary(result: ClaimResult) -> list[object]:
    """One line a claim: its first row that the first criterion judges, or dashes where nothing was measured."""
    claim = next(claim for claim in CLAIMS if claim.id == result.id)
    first = claim.criteria[0].id
    row = next((row for row in result.rows if row["criterion"] == first and row["measured"] is not None), None)
    if row is None:
        return [result.id, None, None, None, None, _words(result.verdict)]
    return [result.id, row["quantity"], row["paper"], row["theory"], _measured(row), _words(result.verdict)]


def _answer(met: bool) -> str:
    return "yes" if met else "NO"


def _measured(row: dict[str, Any]) -> str:
    if row["measured"] is None:
        return "not run"
    return format_cell(row["measured"]) + (f" ± {row['error']:.2g}" if row["error"] else "")


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")
