"""Every page: alone, on a phone, on paper, by the rules for readers with other needs, in light and in dark."""

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from browser.conftest import AXE, KINDS
from browser.visits import Visit, Visitor

Pages = Callable[[str], Path]
pytestmark = pytest.mark.browser
# What is left between the margins of an A4 sheet, at 96 pixels to the inch.
PAPER = (717, 1046)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_needs_nothing_but_itself(pages: Pages, visitor: Visitor, kind: str) -> None:
    for width, scheme in ((1280, "light"), (360, "dark")):
        visit = visitor.open(pages(kind), width=width, scheme=scheme)
        assert visit.requests == [pages(kind).as_uri()]
        assert visit.faults == []
        assert not visit.scrolls_sideways()
        assert visit.wider() == []


def test_a_page_that_asks_for_more_or_fails_is_noticed(pages: Pages, visitor: Visitor, tmp_path: Path) -> None:
    page = re.sub(r"<meta http-equiv=[^>]*>", "", pages("training").read_text())  # the policy would stop it
    other = '<img src="https://example.org/a.png"><div style="width: 500px">wide</div></main>'
    (tmp_path / "bad.html").write_text(page.replace("</main>", other))
    visit = visitor.open(tmp_path / "bad.html", width=360)
    assert visit.requests[-1] == "https://example.org/a.png"
    assert len(visit.faults) == 1
    assert visit.scrolls_sideways()
    assert visit.wider() == ["DIV."]


def faults(visit: Visit) -> list[str]:
    """Serious and critical violations that axe-core finds, with the elements."""
    # As a script of the page it would be refused by the page's own policy.
    visit.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found = visit.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_serious_fault_of_accessibility(pages: Pages, visitor: Visitor, kind: str, scheme: str) -> None:
    visit = visitor.open(pages(kind), scheme=scheme)
    visit.page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
    assert faults(visit) == []


def test_a_fault_of_accessibility_is_noticed(pages: Pages, visitor: Visitor, tmp_path: Path) -> None:
    pale = '<p style="color: #ccc; background: #fff">pale</p><img src="data:,"></main>'
    (tmp_path / "bad.html").write_text(pages("training").read_text().replace("</main>", pale))
    assert {fault.partition(":")[0] for fault in faults(visitor.open(tmp_path / "bad.html"))} == {
        "color-contrast",
        "image-alt",
    }


def cut(page: Any) -> list[str]:
    """On paper: pictures that are hidden, beyond the edge or higher than a sheet; cells cut; what only screens show."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER[0], "height": PAPER[1]})
    found: list[str] = page.evaluate(
        """(height) => {
          const out = [];
          const pictures = [...document.querySelectorAll(".picture > img, .picture > svg")];
          if (!pictures.length) out.push("no picture");
          for (const one of pictures) {
            one.alt ??= one.getAttribute("aria-label");
            const box = one.getBoundingClientRect();
            const frame = one.closest("figure").getBoundingClientRect();
            if (!box.width) out.push("hidden: " + one.alt);
            if (box.right > innerWidth + 1 || frame.height > height) out.push("too large: " + one.alt);
            if (getComputedStyle(one.closest("figure")).breakInside !== "avoid") out.push("may be cut: " + one.alt);
          }
          for (const one of document.querySelectorAll("button, .steps, .tip, .heads-panel"))
            if (one.getClientRects().length) out.push("of the screen: " + one.className);
          for (const one of document.querySelectorAll("td, th"))
            if (one.getBoundingClientRect().right > innerWidth + 1) out.push("cut: " + one.textContent);
          return out;
        }""",
        PAPER[1],
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_paper_has_whole_pictures_and_tables(pages: Pages, visitor: Visitor, kind: str, scheme: str) -> None:
    visit = visitor.open(pages(kind), scheme=scheme)
    printed = visit.page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 2
    assert cut(visit.page) == []
    back, text = visit.page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    assert (back, text) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")


def test_a_picture_that_paper_would_cut_is_noticed(pages: Pages, visitor: Visitor, tmp_path: Path) -> None:
    page = pages("training").read_text()
    wide = "<style>@media print { .picture svg { width: 900px !important; max-width: none } }</style></main>"
    (tmp_path / "bad.html").write_text(page.replace("</main>", wide))
    assert any("too large" in fault for fault in cut(visitor.open(tmp_path / "bad.html").page))


def test_without_scripts_every_chart_is_a_picture(pages: Pages, visitor: Visitor) -> None:
    for kind in KINDS:
        page = visitor.open(pages(kind), java_script_enabled=False).page
        pictures = page.locator(".picture > img, .picture > svg").all()
        assert pictures
        assert all(picture.is_visible() for picture in pictures)
        assert page.locator(".tip:visible, .steps:visible, .heads-panel:visible, button:visible").count() == 0


def pixels(box: Any) -> np.ndarray:
    """What is seen of an element, from 0 to 1."""
    return np.asarray(imread(io.BytesIO(box.screenshot())), dtype=float)


def test_the_slider_of_a_training_run_changes_the_matrix(pages: Pages, visitor: Visitor) -> None:
    visit = visitor.open(pages("training"))
    box = visit.page.locator(".plot[id^='matrix-']").first
    slider = visit.page.locator(".steps input").first
    said = visit.page.locator(".steps output").first
    box.scroll_into_view_if_needed()
    last, label, drawn = pixels(box), said.inner_text(), box.inner_html()
    slider.focus()
    visit.page.keyboard.press("Home")
    visit.until(f"document.querySelector('.steps output').textContent !== '{label}'")
    visit.page.wait_for_timeout(300)
    first = pixels(box)
    assert said.inner_text() == "step 0"
    assert slider.get_attribute("aria-valuetext") == "step 0"
    assert np.abs(first - last).max() > 0.2
    assert box.inner_html() != drawn
    visit.page.keyboard.press("End")
    visit.page.wait_for_timeout(300)
    assert said.inner_text() == label
    # To the last character; of the pixels, chromium draws the edges of shapes again a little otherwise.
    assert box.inner_html() == drawn
    assert np.abs(pixels(box) - last).max() < 0.2
    assert visit.faults == []


def test_changing_to_dark_redraws_the_charts(pages: Pages, visitor: Visitor) -> None:
    visit = visitor.open(pages("probe"))
    ink = "getComputedStyle(document.querySelector('#ratios [id*=xtick] text')).fill"
    light = visit.page.evaluate(ink)
    visit.page.emulate_media(color_scheme="dark")
    visit.until(f"{ink} !== '{light}'")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 24)"


def test_a_demo_that_was_run_has_a_page_like_the_others(visitor: Visitor, tmp_path: Path) -> None:
    from topicscope.cli import run as command_line

    demo = Path(__file__).resolve().parents[2] / "demo"
    if not (demo / "result.json").is_file():
        pytest.skip("no demo was run here")
    shutil.copytree(demo, tmp_path / "demo")
    assert command_line(["report", str(tmp_path / "demo")]) == 0
    visit = visitor.open(tmp_path / "demo" / "report.html", width=360)
    assert (visit.faults, visit.scrolls_sideways(), faults(visit)) == ([], False, [])
