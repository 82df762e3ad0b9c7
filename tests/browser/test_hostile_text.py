"""Text from outside that is markup, script or a template: it is shown as text, and nothing of it runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from browser.visits import Visitor
from topicscope.report.comparison_page import render_comparison
from topicscope.report.probe_page import ProbeRecord, render_probe

pytestmark = pytest.mark.browser
HOSTILE = "<script>window.ran=1</script><img src=x onerror=window.ran=1><svg onload=window.ran=1>{{7*7}}</style>&\"'"


def spoiled(value: Any, key: str = "") -> Any:
    """The record with hostile text in every name, word, text and id."""
    if isinstance(value, dict):
        return {name: spoiled(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, key) for one in value]
    outside = key in ("name", "document_id", "text", "words", "word", "query", "key", "warnings", "command", "platform")
    return HOSTILE + value if outside and isinstance(value, str) else value


@pytest.fixture
def hostile(probe: Path) -> ProbeRecord:
    loaded = ProbeRecord.load(probe)
    record = spoiled(json.loads(json.dumps(loaded.record)))
    for part, before in zip(record["model"]["parts"], loaded.record["model"]["parts"], strict=True):
        part["name"] = before["name"]  # the project's own word
    words = np.array([HOSTILE + str(word) for word in loaded.similarities["words"]])
    return replace(loaded, record=record, similarities=dict(loaded.similarities) | {"words": words})


def test_nothing_of_a_hostile_corpus_runs(hostile: ProbeRecord, visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_probe(hostile))
    visit = visitor.open(tmp_path / "report.html")
    found = hostile.record["head_examples"][0]
    visit.page.locator(".heads-panel select").select_option(f"encoder/{found['layer']}/{found['head']}")
    assert HOSTILE in visit.page.locator(".example").inner_text()
    assert HOSTILE in visit.page.locator("h1").inner_text()
    for chart in ("#blocks", "#ratios", "#heads-encoder"):
        visit.page.locator(chart).scroll_into_view_if_needed()
        box = visit.page.locator(f"{chart} .cells, {chart} .mark").first.bounding_box()
        visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        visit.page.wait_for_timeout(200)
        assert visit.page.locator(".tip").inner_text()
        assert (HOSTILE in visit.page.locator(".tip").inner_text()) == (chart == "#blocks")
    assert visit.page.locator("#blocks img, .tip *").count() == 0
    assert visit.page.evaluate("window.ran") is None
    assert visit.faults == []


def test_nothing_runs_side_by_side(hostile: ProbeRecord, visitor: Visitor, tmp_path: Path) -> None:
    page = render_comparison({HOSTILE: hostile, "b": hostile}, pd.DataFrame(), (HOSTILE,))
    (tmp_path / "comparison.html").write_text(page)
    visit = visitor.open(tmp_path / "comparison.html")
    assert visit.page.evaluate("window.ran") is None
    assert visit.faults == []


def test_the_same_text_as_markup_does_run(browser: Any) -> None:
    page = browser.new_page(offline=True)
    page.set_content(f"<p>{HOSTILE}</p>")
    assert page.evaluate("window.ran") == 1
    page.close()
