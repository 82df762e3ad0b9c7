"""What `topicscope probe` prints: the answer, the tables of the page, the paper's rows and the warnings."""

from collections.abc import Iterator
from shutil import get_terminal_size

from topicscope.cli.output import print_lines, print_table
from topicscope.probing.results import ProbeResult
from topicscope.report import EMBEDDING_COLUMNS, Table, attention_table, embedding_table, paper_table

_WIDTH, _WIDEST = 78, 24  # characters of a terminal of unknown width, and of a column before it is broken


def show(result: ProbeResult, folder: str) -> None:
    """The answer, the measured tables, the paper's rows and the warnings, on stdout."""
    print_lines([str(result), ""])
    rows = result.rows.to_dict(orient="records")
    attention = attention_table([row for row in rows if row["source"] == "measured"])
    one_part = result.rows["part"][result.rows["source"] == "measured"].nunique() == 1
    _show(attention.only(*attention.columns[1:]) if one_part else attention)
    if result.costs:
        seconds = "{collecting:.1f} s to collect word pairs, {shuffling:.1f} s to shuffle".format(**result.costs)
        print_lines([f"shuffles cost {seconds}"])
    embeddings = result.embeddings
    if len(embeddings):
        # The dot product of what is not the model's own, and what stands beside S and D, are on the page.
        shown = embeddings[embeddings["place"].isin(("raw", "layer")) | (embeddings["kind"] == "cosine")]
        _show(embedding_table(shown.to_dict(orient="records")).only(*EMBEDDING_COLUMNS))
    _show(paper_table([row for row in rows if row["source"] == "paper"]))
    print_lines([f"warning: {warning}" for warning in result.warnings])
    print_lines([f"report: {folder}/report.html", f"result: {folder}/result.json"])


def _show(table: Table) -> None:
    """A table on stdout: where it is too wide, its further columns in a table below, beside what names the rows."""
    blocks = list(_blocks(table))
    for number, block in enumerate(blocks):
        rows = [[cell.replace("\u00a0", " ") for cell in row] for row in block.rows]
        note = table.note if number == len(blocks) - 1 else None
        print_table("" if number else table.caption, block.columns, rows, note)


def _blocks(table: Table) -> Iterator[Table]:
    columns = [
        [title.split(), *([cell] for cell in cells)]
        for title, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True)
    ]
    widths = [min(max(len(word) for words in column for word in words), _WIDEST) + 3 for column in columns]
    names, start = list(table.columns[: table.row_headers]), sum(widths[: table.row_headers])
    terminal = get_terminal_size((_WIDTH, 24)).columns
    shown, width = list(names), start
    for name, wide in zip(table.columns[len(names) :], widths[len(names) :], strict=True):
        if width + wide > terminal and len(shown) > len(names):
            yield table.only(*shown)
            shown, width = list(names), start
        shown.append(name)
        width += wide
    yield table.only(*shown)
