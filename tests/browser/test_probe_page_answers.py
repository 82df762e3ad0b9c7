"""What a reader gets to see who points at, clicks or types in a probe's page: the numbers of heads.csv."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from browser.visits import Visit, Visitor
from topicscope.report.probe_page import ProbeRecord, render_probe

pytestmark = pytest.mark.browser
MAP = "#heads-encoder"


@pytest.fixture
def visit(probe: Path, visitor: Visitor) -> Visit:
    return visitor.open(probe / "report.html")


@pytest.fixture(scope="module")
def heads(probe: Path) -> pd.DataFrame:
    """heads.csv at the headline's threshold."""
    record = json.loads((probe / "result.json").read_text())
    frame = pd.read_csv(probe / "heads.csv")
    return frame[frame["threshold"] == record["headline"]["threshold"]].set_index(["layer", "head"])


def middle(page: Any, layer: int, head: int) -> tuple[float, float]:
    """Where the cell is on the screen, from the axes as they are drawn: the picture's, not the script's, geometry."""
    page.locator(MAP).scroll_into_view_if_needed()
    box = page.locator(f"{MAP} .cells").first.bounding_box()
    x = box["x"] + box["width"] * (head + 0.5) / 12
    return x, box["y"] + box["height"] * (layer + 0.5) / 6


def numbers(text: str) -> list[float]:
    """Every number of a text, in order."""
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def panel(page: Any) -> dict[str, str]:
    """The profile of the chosen head by its labels."""
    rows = page.locator(".profile tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in rows}


@pytest.mark.parametrize("place", [(0, 0), (5, 11), (2, 7)])
def test_the_pointer_shows_the_numbers_of_its_head(visit: Visit, heads: pd.DataFrame, place: tuple[int, int]) -> None:
    visit.page.mouse.move(*middle(visit.page, *place))
    visit.until("document.querySelector('.tip').textContent !== ''")
    lines = visit.page.locator(".tip").inner_text().split("\n")
    row = heads.loc[place]
    assert lines[0] == f"layer {place[0]}, head {place[1]}"
    ratio, error = numbers(lines[1])
    assert ratio == pytest.approx(row["attention_ratio"], abs=6e-3)
    assert error == pytest.approx(row["attention_ratio_se"], abs=6e-3)
    for line, kind in ((lines[2], "same"), (lines[3], "different")):
        mean, pairs = numbers(line)
        assert mean == pytest.approx(row[f"mean_{kind}"], abs=6e-5)
        assert pairs == row[f"pairs_{kind}"]


def test_the_other_ratio_colors_the_same_cells(visit: Visit, heads: pd.DataFrame) -> None:
    cells = visit.page.locator(f"{MAP} .cells .mark")
    before = [cell.get_attribute("style") for cell in cells.all()]
    visit.page.locator(f"{MAP} + .steps select").select_option(label="distinct words")
    after = [cell.get_attribute("style") for cell in cells.all()]
    assert len(before) == len(after) == 72
    assert sum(a != b for a, b in zip(before, after, strict=True)) > 36
    visit.page.mouse.move(*middle(visit.page, 2, 7))
    ratio, error = numbers(visit.page.locator(".tip").inner_text().split("\n")[1])
    assert ratio == pytest.approx(heads.loc[2, 7]["attention_ratio_distinct"], abs=6e-3)
    assert error == pytest.approx(heads.loc[2, 7]["attention_ratio_distinct_se"], abs=6e-3)
    assert cells.nth(2 * 12 + 7).get_attribute("aria-label") == visit.page.locator(".tip").inner_text()


def test_keys_move_over_the_cells_of_a_map_and_choose_a_head(visit: Visit) -> None:
    visit.page.locator(MAP).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft"):
        visit.page.keyboard.press(key)
    assert visit.page.locator(".tip").inner_text().startswith("layer 2, head 0\n")
    assert visit.page.locator(f"{MAP} .cursor").count() == 1
    visit.page.keyboard.press("Enter")
    assert visit.page.locator(".heads-panel select").input_value() == "encoder/2/0"
    visit.page.keyboard.press("Escape")
    assert visit.page.locator(".tip").inner_text() == ""


@pytest.mark.parametrize("width", [1280, 360])
def test_pointer_and_keys_find_the_cells_of_an_image(probe: Path, visitor: Visitor, width: int) -> None:
    record = ProbeRecord.load(probe).similarities
    names, cosine = record["words"], record["cosine"]
    page = visitor.open(probe / "report.html", width=width).page
    page.locator("#blocks").scroll_into_view_if_needed()
    assert page.locator("#blocks .mark").count() == 0
    box = page.locator("#blocks .cells").bounding_box()
    size = len(cosine)
    for row, column in ((0, 1), (size // 3, size // 5)):
        page.mouse.move(box["x"] + box["width"] * (column + 0.5) / size, box["y"] + box["height"] * (row + 0.5) / size)
        lines = page.locator(".tip").inner_text().split("\n")
        assert lines[0].startswith(str(names[record["edges"][row]]))
        assert lines[1].startswith(f"× {names[record['edges'][column]]}")
        assert numbers(lines[2])[-1] == pytest.approx(abs(cosine[row, column]), rel=1e-3)
    page.mouse.move(0, 0)
    page.locator("#blocks").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    lines = page.locator(".tip").inner_text().split("\n")
    assert lines[0].startswith(str(names[record["edges"][1]]))
    assert lines[1].startswith(f"× {names[record['edges'][1]]}")


@pytest.mark.parametrize("place", [(1, 4), (5, 0)])
def test_a_click_shows_the_profile_of_its_head(visit: Visit, heads: pd.DataFrame, place: tuple[int, int]) -> None:
    visit.page.mouse.move(*middle(visit.page, *place))
    visit.page.mouse.click(*middle(visit.page, *place))
    visit.until(f"document.querySelector('.heads-panel select').value === 'encoder/{place[0]}/{place[1]}'")
    shown, row = panel(visit.page), heads.loc[place]
    for label, column in (
        ("ratio, all pairs", "attention_ratio"),
        ("mean attention × L/100, same topic", "mean_same"),
        ("entropy of its attention (nats)", "entropy"),
        ("attention to the first token (sink)", "first_token"),
    ):
        assert float(shown[label]) == pytest.approx(row[column], rel=6e-3), label
    median = visit.page.locator(".profile tbody tr td:nth-child(3)").first.inner_text()
    assert float(median) == pytest.approx(heads["attention_ratio"].median(), rel=6e-3)


def test_the_sentence_of_a_head_is_drawn_with_its_arcs(visit: Visit, probe: Path) -> None:
    examples = json.loads((probe / "result.json").read_text())["head_examples"]
    assert len(examples) > 3
    for found in (examples[0], examples[-1]):
        choose = visit.page.locator(".heads-panel select")
        choose.select_option(f"encoder/{found['layer']}/{found['head']}")
        sentence = visit.page.locator(".sentence p")
        words = [mark.evaluate("mark => mark.firstChild.textContent") for mark in sentence.locator("mark").all()]
        assert [word.lower() for word in words] == [word["word"].lower() for word in found["words"]]
        arcs = visit.page.locator(".sentence svg.arcs > path").all()
        assert len(arcs) == len(found["pairs"])
        # An arc begins above the word that looks and ends above the one it looks at.
        for arc, pair in zip(arcs, found["pairs"], strict=True):
            ends = arc.evaluate("a => [a.getPointAtLength(0), a.getPointAtLength(a.getTotalLength())].map(p => p.x)")
            left = visit.page.locator(".sentence").bounding_box()["x"]
            for end, place in zip(ends, (pair["query_place"], pair["key_place"]), strict=True):
                word = visit.page.locator(f".sentence [data-place='{place}']").bounding_box()
                assert word["x"] - 4 <= left + end <= word["x"] + word["width"] + 4
        listed = visit.page.locator(".example > ul:last-child li").all_inner_texts()
        assert numbers(listed[0])[-1] == pytest.approx(found["pairs"][0]["attention"], rel=6e-3)


def test_a_head_without_a_sentence_says_so(probe: Path, visitor: Visitor, tmp_path: Path) -> None:
    loaded = ProbeRecord.load(probe)
    kept = [one for one in loaded.record["head_examples"] if (one["layer"], one["head"]) != (3, 5)]
    page = render_probe(replace(loaded, record=dict(loaded.record) | {"head_examples": kept}))
    (tmp_path / "report.html").write_text(page)
    visit = visitor.open(tmp_path / "report.html")
    visit.page.locator(".heads-panel select").select_option("encoder/3/5")
    assert "No example sentence is kept" in visit.page.locator(".example").inner_text()
    assert visit.page.locator(".example .sentence").count() == 0


def test_the_keyboard_alone_chooses_a_head(visit: Visit) -> None:
    for _ in range(60):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.matches('.heads-panel select')"):
            break
    else:
        pytest.fail("Tab never reached the choice of heads")
    outline = visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"  # one sees where one is
    before, profile = visit.page.locator(".heads-panel select").input_value(), panel(visit.page)
    visit.page.keyboard.press("ArrowDown")
    after = visit.page.locator(".heads-panel select").input_value()
    assert after != before
    assert panel(visit.page) != profile
    assert visit.page.evaluate("document.activeElement.matches('.heads-panel select')")


def test_what_is_saved_from_the_page_is_the_table(visit: Visit, probe: Path) -> None:
    with visit.page.expect_download() as saved:
        visit.page.get_by_text("Save heads.csv").click()
    pd.testing.assert_frame_equal(pd.read_csv(saved.value.path()), pd.read_csv(probe / "heads.csv"))


def test_the_command_can_be_copied(visit: Visit) -> None:
    button = visit.page.locator(".copy").first
    button.click()
    visit.until("/Copied|Selected/.test(document.querySelector('.copy').textContent)")
    assert visit.faults == []
