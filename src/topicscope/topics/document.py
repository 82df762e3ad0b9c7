"""Document, and the one place that decides whether a bad piece of input stops the reading or is counted."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from topicscope.errors import InputError

OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class Document:
    """One text with the id it keeps to the end; documents of one id are one cluster in every standard error."""

    id: str
    text: str


@dataclass
class Faults:
    """Counts what one pass over a corpus left out, by reason."""

    on_error: OnError = "stop"
    counts: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str) -> None:
        """Leave something out that is no fault, such as a redirect."""
        self.counts[reason] += 1

    def bad(self, reason: str, error: InputError) -> None:
        """Raise `error`, or with on_error="skip" count it under `reason`."""
        if self.on_error == "stop":
            raise error
        self.skip(reason)


def is_encodable(text: str) -> bool:
    """Whether a string is text: no lone surrogate, which neither UTF-8 nor a tokenizer could take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
