"""Between data frames and the rows that result.json holds, and what a damaged folder raises."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from topicscope.errors import InputError, TopicscopeError


@contextmanager
def undamaged(folder: Path) -> Iterator[None]:
    """Files that are cut short, missing or changed by hand fail in a dozen ways when they are read."""
    try:
        yield
    except TopicscopeError:
        raise
    except Exception as error:
        raise InputError(
            "the result is damaged",
            received=f"{type(error).__name__}: {error}",
            where=str(folder),
            advice="copy the whole folder again, or repeat the probe with --overwrite",
        ) from error


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as result.json holds them."""
    return [without_nan(row) for row in frame.to_dict(orient="records")]


def without_nan(row: Mapping[Any, Any]) -> dict[str, Any]:
    """None for NaN, as JSON has no word for it."""
    return {str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """The table again, with numbers as numbers and missing ones as NaN."""
    frame = pd.DataFrame.from_records(records)
    for column in frame.columns:
        if frame[column].map(lambda value: value is None or isinstance(value, (int, float))).all():
            # Counts and seeds stay whole numbers, so that a result saved again is the same file.
            whole = frame[column].map(lambda value: isinstance(value, int)).all()
            frame[column] = frame[column].astype(int if whole else float)
    return frame
