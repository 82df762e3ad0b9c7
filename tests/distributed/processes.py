"""Processes that this one has started, directly or through others, by what they call themselves."""

import os
from pathlib import Path


def descendants(title: str) -> list[int]:
    """Their ids, where the command line holds `title`."""
    parents, titles = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                titles[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])

    def is_ours(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == os.getpid():
                return True
        return False

    return sorted(process for process, name in titles.items() if title in name and is_ours(process))
