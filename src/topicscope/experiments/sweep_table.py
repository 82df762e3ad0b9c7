"""The table of a sweep: one row a point, plain columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from topicscope.records import dump_json

STATUSES = ("finished", "diverged", "failed", "waiting")


def flat(point: Mapping[str, Any]) -> dict[str, Any]:
    """id, status, seconds, the swept fields by their names, and of every measurement X the columns X (mean over seeds),
    X_sd, X_count and, where theory speaks of it, X_theory and X_deviation.

    A value that is no plain one (a list, a table) is JSON text.
    """
    row = {name: point[name] for name in ("id", "status", "seconds")}
    row |= {name: plain(value) for name, value in point["values"].items()}
    for name, measured in point["measurements"].items():
        row |= {name: measured["mean"], f"{name}_sd": measured["sd"], f"{name}_count": measured["count"]}
        if measured["theory"] is not None:
            row |= {f"{name}_theory": measured["theory"], f"{name}_deviation": measured["deviation"]}
    return row


def plain(value: Any) -> Any:
    """The value itself, or JSON text of a list or a table."""
    return dump_json(value) if isinstance(value, (list, tuple, Mapping)) else value


def frame(points: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> pd.DataFrame:
    """Every point's `flat` row; columns in the order in which they first occur, the swept fields right after `status`.

    Numbers that are not known are NaN.
    """
    rows = [flat(point) for point in points]
    names = dict.fromkeys(["id", "status", *swept, "seconds", *(name for row in rows for name in row)])
    table = pd.DataFrame(rows, columns=list(names))
    numbers = [name for name in names if name not in ("id", "status", *swept)]
    return table.astype(dict.fromkeys(numbers, float))
