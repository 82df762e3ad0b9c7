"""The command line: one module a command, loaded only when that command is called."""

import sys
from collections.abc import Sequence

import cyclopts
from cyclopts import Parameter
from rich.console import Console

import topicscope
from topicscope.errors import TopicscopeError

__all__ = ["app", "main", "run"]

app = cyclopts.App(
    name="topicscope",
    help="See how transformers learn topic structure: probe any model, train the paper's, check both against theory.",
    version=topicscope.__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=""),
    suppress_keyboard_interrupt=False,
)
app.command("topicscope.cli.probe:probe", name="probe", help="Measure topic structure in a pretrained model.")
app.command("topicscope.cli.compare:compare", name="compare", help="Compare probe results, paired over documents.")
app.command(
    "topicscope.cli.circuits:circuits", name="circuits", help="Topic structure in a model's own matrices, without text."
)
app.command("topicscope.cli.topics:app", name="topics", help="Fit and show topic models.")
app.command("topicscope.cli.theory:app", name="theory", help="Closed forms for any setting: optima, bounds, dynamics.")
app.command("topicscope.cli.train:train", name="train", help="Train the paper's transformers from a recipe.")
app.command("topicscope.cli.sweep:sweep", name="sweep", help="Train a recipe at many settings, and one table of them.")
app.command(
    "topicscope.cli.reproduce:reproduce", name="reproduce", help="Hold the paper's claims against theory and training."
)
app.command(
    "topicscope.cli.report:report", name="report", help="Draw the page of saved results again, or several at once."
)
app.command("topicscope.cli.probe:demo", name="demo", help="Probe a real model on real Wikipedia text, offline.")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 fine, 1 failed, 2 bad usage, 130 interrupted."""
    # Soft wrap: a path or line number that a log keeps must stay in one piece.
    errors = Console(stderr=True, soft_wrap=True)
    try:
        outcome = app(
            list(sys.argv[1:] if arguments is None else arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except cyclopts.CycloptsError as error:
        errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
        errors.print("  what to do: add --help to see the options of this command", markup=False, highlight=False)
        return 2
    except TopicscopeError as error:
        errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
        return error.exit_code
    except (OSError, MemoryError) as error:  # such as a name that is too long for the file system
        reason = str(error) or "not enough memory"
        errors.print(f"error: the system refused: {reason}", style="bold red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        errors.print("interrupted", style="bold yellow")
        return 130
    return outcome if isinstance(outcome, int) else 0


def main() -> None:
    """Entry point of the `topicscope` command."""
    sys.exit(run())
