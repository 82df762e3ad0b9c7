"""What every command prints: progress on stderr, one JSON document or rich tables on stdout."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from topicscope.options import OUTPUT
from topicscope.progress import Progress, SilentProgress
from topicscope.records import dump_json

Json = Annotated[bool, Parameter(name="--json", help="Print the result as one JSON document on stdout."), OUTPUT]
ProgressStyle = Literal["auto", "bar", "json", "none"]
INTERRUPTED = 130  # exit code after Ctrl-C


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    print(dump_json(document, indent=2))


def print_lines(lines: Sequence[str]) -> None:
    """Plain lines on stdout, as they are."""
    for line in lines:
        print(line)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str | None = None,
    *,
    unbroken: Sequence[str] = (),
) -> None:
    """A rich table on stdout; numbers to four significant digits, right aligned.

    unbroken: columns that stay on one line where the terminal is narrow.
    """
    # Title and caption are lines of their own: inside a narrow table they would wrap to its width.
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name in unbroken)
    for row in rows:
        table.add_row(*[format_cell(cell) for cell in row])
    console = Console(markup=False)  # or "topicscope[demo]" would lose its end
    if title:
        console.print(title, style="bold", highlight=False)
    console.print(table)
    if caption is not None:
        console.print(caption, style="dim", highlight=False)
    console.print()


def _is_number(cell: object) -> bool:
    return cell is None or isinstance(cell, (int, float)) or (isinstance(cell, str) and cell[:1] in "-0123456789")


def format_cell(cell: object) -> str:
    """A cell's text: '-' for nothing (None or NaN), four significant digits for fractions."""
    if cell is None or (isinstance(cell, float) and cell != cell):  # noqa: PLR0124
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


class JsonProgress:
    """One JSON event a line on stderr, at most one a second and task."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[float, int | float | None, str]] = {}
        self._last: dict[str, float] = {}
        self._figures: dict[str, dict[str, float]] = {}

    def start(self, task: str, total: int | float | None, unit: str) -> None:
        """Announce the task."""
        self._tasks[task] = (time.monotonic(), total, unit)
        self._emit("start", task, 0.0)

    def update(self, task: str, done: int | float) -> None:
        """Report, unless the last report is younger than a second."""
        if time.monotonic() - self._last.get(task, 0.0) >= 1.0:
            self._emit("progress", task, done)

    def note(self, task: str, figures: Mapping[str, float]) -> None:
        """Figures that the next reports of the task hold as well."""
        self._figures[task] = {name: round(value, 3) for name, value in figures.items()}

    def finish(self, task: str) -> None:
        """Report the end."""
        self._emit("finish", task, None)

    def _emit(self, event: str, task: str, done: int | float | None) -> None:
        started, total, unit = self._tasks[task]
        elapsed = time.monotonic() - started
        left = elapsed / done * (total - done) if done and total else None
        self._last[task] = time.monotonic()
        line: dict[str, Any] = {
            "event": event,
            "task": task,
            "done": done,
            "total": total,
            "unit": unit,
            "elapsed_s": round(elapsed, 2),
        }
        line["left_s"] = None if left is None else round(left, 2)
        line |= self._figures.get(task, {})
        sys.stderr.write(json.dumps(line) + "\n")
        sys.stderr.flush()


class BarProgress:
    """Rich bars with time left, on stderr."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._ids: dict[str, Any] = {}

    def start(self, task: str, total: int | float | None, unit: str) -> None:
        """Add a bar."""
        self._ids[task] = self._bars.add_task(task, total=total, unit=unit, figures="")

    def update(self, task: str, done: int | float) -> None:
        """Move the bar."""
        self._bars.update(self._ids[task], completed=done)

    def note(self, task: str, figures: Mapping[str, float]) -> None:
        """Show figures behind the bar."""
        shown = ", ".join(f"{value:,.0f} {name}" for name, value in figures.items())
        self._bars.update(self._ids[task], figures=shown)

    def finish(self, task: str) -> None:
        """Stop the bar's clock."""
        self._bars.stop_task(self._ids[task])


@contextmanager
def show_progress(style: ProgressStyle) -> Iterator[Progress]:
    """A receiver of progress: bars on a terminal, JSON lines on request, nothing when stderr is a file."""
    if style == "json":
        yield JsonProgress()
    elif style == "none" or (style == "auto" and not sys.stderr.isatty()):
        yield SilentProgress()
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        with RichProgress(*columns, console=Console(stderr=True)) as bars:
            yield BarProgress(bars)
