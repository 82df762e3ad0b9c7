"""`topicscope demo`: a real model on real Wikipedia text, offline."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from topicscope.cli.output import ProgressStyle
from topicscope.cli.probe import probe

OPTIONS = {"topics": "50", "topic_seeds": 3, "controls": 5, "threshold": (0.001, 0.002, 0.004), "max_units": 2500}


def demo(
    *,
    out: Path = Path("demo"),
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    progress: ProgressStyle = "auto",
) -> int:
    """Probe MiniLM, a sentence encoder of 22 million parameters, on gensim's sample of English Wikipedia.

    Parameters
    ----------
    out
        Folder for the result; an earlier result of the demo is replaced, anything else is refused.
    json
        Print result.json on stdout.
    progress
        How progress is shown on stderr.
    """
    return probe("minilm", out=out, overwrite=True, json=json, progress=progress, **OPTIONS)  # type: ignore[arg-type]
