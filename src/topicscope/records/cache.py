"""Where topicscope keeps what it can make again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$TOPICSCOPE_CACHE, or topicscope in $XDG_CACHE_HOME or in ~/.cache."""
    own = os.environ.get("TOPICSCOPE_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "topicscope"
