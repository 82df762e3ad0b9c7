"""Errors a user can meet. Each says what was received, what was expected, where, and what to do."""

from pathlib import PurePath


class TopicscopeError(Exception):
    """Base of every error topicscope raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(
        self,
        summary: str,
        *,
        received: object = None,
        expected: object = None,
        where: object = None,
        advice: str | None = None,
    ) -> None:
        self.summary = summary
        self.received = received
        self.expected = expected
        self.where = where
        self.advice = advice
        super().__init__(self.render())

    def render(self) -> str:
        """The message of one screen: the summary, then one labelled line for each part that is known."""
        parts = [
            ("received", self.received),
            ("expected", self.expected),
            ("where", self.where),
            ("what to do", self.advice),
        ]
        lines = [self.summary]
        lines += [f"  {label}: {_short(value)}" for label, value in parts if value is not None]
        return "\n".join(lines)


class InputError(TopicscopeError):
    """What the user gave cannot be used (exit code 2); nothing was written."""

    exit_code = 2


class RunError(TopicscopeError):
    """The input was fine, but the work failed (exit code 1); what was finished is kept."""


class UnsupportedModelError(InputError):
    """A model that topicscope cannot view; the message names the model type and the reason."""


def _short(value: object, limit: int = 400) -> str:
    text = str(value) if isinstance(value, (str, PurePath)) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
