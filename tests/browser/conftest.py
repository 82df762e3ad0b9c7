"""Real pages for the browser: a probe of MiniLM, two side by side, a short training and sweep, a reproduction."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.visits import Visitor
from experiments.small_sweeps import write
from report.reproduction_folders import make, row, run
from topicscope.cli import run as command_line

ROOT = Path(__file__).resolve().parents[2]
AXE = Path(os.environ.get("AXE", ROOT / "build" / "axe" / "package" / "axe.min.js"))
KINDS = ("probe", "comparison", "training", "sweep", "reproduction")

# All of the sample's documents for the topics, few of their sentences for the model.
SMALL = {"topics": 30, "controls": 1, "max-units": 300, "sweeps": 30, "permutations": 100, "progress": "none"}
THRESHOLDS = ("--threshold", 0.001, 0.002, 0.004)
RECIPE = """
name = "short"
[data]
num_topics = 6
words_per_topic = 4
alpha = 0.1
length = [100, 150]
[model]
sigmas = { W_V = 0.01, W_K = 0.1, W_Q = 0.1 }
[training]
loss = "squared"
optimizer = "sgd"
learning_rate = 10.0
steps = 60
"""


def topicscope(*arguments: Any) -> None:
    assert command_line([str(argument) for argument in arguments]) == 0


def small_probe(folder: Path, **changes: Any) -> Path:
    options = [word for name, value in (SMALL | changes).items() for word in (f"--{name}", value)]
    topicscope("probe", "minilm", *options, *THRESHOLDS, "--out", folder)
    return folder


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `topicscope probe minilm`: 72 heads on Wikipedia. PROBE names one that is there already."""
    if "PROBE" in os.environ:
        folder = Path(shutil.copytree(os.environ["PROBE"], tmp_path_factory.mktemp("probe") / "minilm"))
        topicscope("report", folder)
        return folder
    return small_probe(tmp_path_factory.mktemp("probe") / "minilm")


@pytest.fixture(scope="session")
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a kind of page, made when it is first asked for."""
    base = tmp_path_factory.mktemp("pages")

    @cache
    def page(kind: str) -> Path:
        if kind == "training":
            (base / "short.toml").write_text(RECIPE)
            topicscope("train", base / "short.toml", "--seeds", 2, "--out", base / "run", "--progress", "none")
            return base / "run" / "report.html"
        if kind == "sweep":
            topicscope("sweep", write(base / "sweep"), "--out", base / "swept", "--progress", "none")
            return base / "swept" / "report.html"
        if kind == "reproduction":
            return reproduction(base / "reproduction")
        probe = request.getfixturevalue("probe")
        if kind == "comparison":
            half = small_probe(base / "half", topics=probe / "topics.npz", **{"max-units": 150})
            topicscope("report", probe, half, "--out", base / "comparison.html")
            return base / "comparison.html"
        return Path(probe) / "report.html"

    return page


def reproduction(folder: Path) -> Path:
    """The page of a run of `make reproduce-quick` where there is one, otherwise of one made up, with its figures."""
    kept = ROOT / "reproduction-quick"
    if (kept / "claims.json").is_file():
        topicscope("report", kept, "--out", folder.with_suffix(".html"))
        return folder.with_suffix(".html")
    claims = {
        "value-block": ("confirmed", [row("W_same", 1.1, "c", theory=1.0), row("W_diff", -0.2, "c", holds=False)]),
        "two-stage": ("partly", [row("log10(k2/k1)", 1.0, "c")]),
        "landscape": ("not_confirmed", [row("γ*", 5.0, "c")]),
    }
    runs = [
        ("value-block", "theorem-2-a", run("theorem-2", seed=1, source="population")),
        ("two-stage", "two-stages-a", run("two-stages")),
    ]
    arrays = {"alpha": np.linspace(0, 2, 5), "beta": np.linspace(0, 4, 7)}
    arrays["loss"] = np.random.default_rng(0).random((5, 7))
    labels = {"words_per_topic": 2, "optimum": {"alpha": 1.0, "beta": 2.0, "gamma": 1.5}, "value": "block"}
    landscape = ("landscape", "landscape-block.npz", arrays, labels | {"title": "block W_V"})
    topicscope("report", make(folder, claims, runs=runs, arrays=[landscape]))
    return folder / "reproduction.html"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium; CHROMIUM names another one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visitor(browser: Any) -> Iterator[Visitor]:
    found = Visitor(browser)
    yield found
    found.leave()
