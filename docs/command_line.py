"""A sphinx extension: every command with its options and their help, where a page says `<!-- commands -->`."""

import re
from typing import Any

PLACE = "<!-- commands -->"


def setup(app: Any) -> dict[str, bool]:
    """Called by sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}


def _fill(_app: Any, _page: str, source: list[str]) -> None:
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, commands())


def commands() -> str:
    """The commands in Markdown, as cyclopts writes them, without the title and the list of contents."""
    from topicscope.cli import app

    whole = app.generate_docs(output_format="markdown", recursive=True)
    return whole[re.search(r"^## topicscope ", whole, re.MULTILINE).start() :]
