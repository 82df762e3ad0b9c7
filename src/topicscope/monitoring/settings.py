"""What a user of the callback or the monitor chooses, read and checked before training begins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from topicscope.errors import InputError
from topicscope.monitoring.probe_set import MonitorTopics, read_given
from topicscope.monitoring.schedule import Every, Share, grid, share_of
from topicscope.probing import Documents, Given, corpus_of
from topicscope.text import Corpus

ON_ERROR = ("log", "raise")
Log = Callable[[int, Mapping[str, float]], None]


@dataclass(frozen=True, eq=False)
class Settings:
    """See `TopicStructureMonitor`; topics and documents are opened, the budget is a share."""

    given: Given
    corpus: Corpus
    every: Every
    share: float | None
    on_error: str
    threshold: float | None
    language: str
    seed: int
    log: Log | None

    @classmethod
    def checked(
        cls,
        topics: MonitorTopics,
        documents: Documents,
        *,
        every: Every,
        budget: Share,
        on_error: str,
        threshold: float | None,
        language: str,
        seed: int,
        log: Log | None,
    ) -> "Settings":
        """Open what is named and refuse what cannot be used.

        Raises:
            InputError: see `read_given`, `corpus_of`, `grid` and `share_of`; an unknown `on_error`.
        """
        if on_error not in ON_ERROR:
            raise InputError("unknown on_error", received=on_error, expected='"log" or "raise"')
        grid(every, None)
        share = share_of(budget)
        return cls(read_given(topics), corpus_of(documents), every, share, on_error, threshold, language, seed, log)
