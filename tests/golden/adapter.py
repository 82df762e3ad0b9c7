"""The few names that golden results need besides the public ones, each under every place it ever had.

The recorder of the present commit also records the base commit, whose modules lie elsewhere. When something moves, put
its new place first and leave the old one behind it.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
PICTURES = ("topicscope.report.style:to_png", "topicscope.report.figures:to_png")
# What gives the text of a page since results write their own.
TEXTS = ("topicscope.report.probe_page:render_probe", "topicscope.report.training_page:render_run")
PAGES = (
    "topicscope.report.probe_page:write_probe",
    "topicscope.report.training_page:write_run",
    "topicscope.report.html:write_probe",
    "topicscope.report.training:write_run",
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
    # All modules first: one that is imported meanwhile would keep the stand-in.
    for found in pkgutil.walk_packages(topicscope.__path__, "topicscope."):
        with suppress(ImportError):
            importlib.import_module(found.name)
    ours = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "topicscope"]
    stubs = [(place, lambda *_, **__: b"") for place in PICTURES] + [(place, _empty_page) for place in PAGES]
    stubs += [(place, lambda *_, **__: "") for place in TEXTS]
    with ExitStack() as stack:
        for place, stub in stubs:
            name, _, attribute = place.partition(":")
            drawing = getattr(sys.modules.get(name), attribute, None)
            for module in ours:
                for held in [key for key, value in vars(module).items() if drawing is not None and value is drawing]:
                    stack.enter_context(patch.object(module, held, stub))
        yield


def _empty_page(folder: Path, *_: Any, **__: Any) -> Path:
    (folder / "report.html").touch()
    return folder / "report.html"
