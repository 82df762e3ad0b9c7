"""Types of options that several commands share."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token


def _whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """cyclopts alone would round: "2.5" topics would silently become 2."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


Whole = Annotated[int, Parameter(converter=_whole_number)]


def fresh_folder(name: str) -> Path:
    """`topicscope-runs/NAME-DATE-TIME`, numbered where another run began in the same second."""
    wanted = Path("topicscope-runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    tried = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(path for path in chain([wanted], tried) if not path.exists())
