"""The few names that golden results need besides the public ones, each under every place it ever had.

The recorder of the present commit also records the base commit, whose modules lie elsewhere. When something moves, put
its new place first and leave the old one behind it.
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import topicscope

PLACES = {
    "command line": ("topicscope.cli:run",),
    "numbers version": ("topicscope.records.files:NUMBERS_VERSION", "topicscope.records:NUMBERS_VERSION"),
    "tiny models": ("helpers.tiny:build", "tiny:build"),
    "tiny tokenizer": ("helpers.tiny:tokenizer_for", "tiny:tokenizer_for"),
}
# What draws pictures and pages, which take longer than all the rest; a place that is gone is passed over.
PICTURES = ("topicscope.report.figures:to_png",)
PAGES = (
    "topicscope.report.html:write_probe",
    "topicscope.report.training:write_run",
    "topicscope.cli.train:write_run",
)


def find(name: str, *default: Any) -> Any:
    """The object behind a name of PLACES; the default, if there is one, where no place has it."""
    for place in PLACES[name]:
        module, _, attribute = place.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    if default:
        return default[0]
    raise ImportError(f"{name}: at none of {', '.join(PLACES[name])}; add its new place to tests/golden/adapter.py")


def source_tree() -> Path:
    """The checkout whose topicscope is imported: its recipes and schemas are recorded with it."""
    return Path(topicscope.__file__).resolve().parents[2]


@contextmanager
def undrawn() -> Iterator[None]:
    """Results whose pictures and pages are empty files: golden values are numbers."""
    stubs = [(place, lambda *_, **__: b"") for place in PICTURES] + [(place, _empty_page) for place in PAGES]
    with ExitStack() as stack:
        for place, stub in stubs:
            module, _, attribute = place.partition(":")
            try:
                stack.enter_context(patch.object(importlib.import_module(module), attribute, stub))
            except (ImportError, AttributeError):
                continue
        yield


def _empty_page(folder: Path, *_: Any, **__: Any) -> Path:
    (folder / "report.html").touch()
    return folder / "report.html"
