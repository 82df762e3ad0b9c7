"""What options are made of: the groups that `--help` shows them in, and the types that several of them share."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

MODEL, TEXT, TOPICS, MEASUREMENT, STATISTICS, COMPUTE, OUTPUT, ADVANCED = (
    Parameter(group=Group.create_ordered(name))
    for name in ("Model", "Text", "Topics", "Measurement", "Statistics", "Compute", "Output", "Advanced")
)


def _whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """cyclopts alone would round: "2.5" topics would silently become 2."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None


Whole = Annotated[int, Parameter(converter=_whole_number)]
