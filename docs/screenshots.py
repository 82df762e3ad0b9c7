"""Pictures of a real report for README and docs: docs/images/report.png, report-dark.png and report-head.png.

    python docs/screenshots.py demo          a folder that `topicscope demo` wrote

Needs playwright (the extra `browser`) and Debian's chromium; CHROMIUM names another one. The page is read from disk,
with the network forbidden.
"""

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent / "images"
SIZE = {"width": 1100, "height": 1150}  # the answer, its warnings and the map of heads


def main(folder: Path) -> None:
    """Draw the top of the folder's report in both colour schemes, and its panel of one head."""
    page_file = (folder / "report.html").resolve()
    if not page_file.is_file():
        raise SystemExit(f"{page_file} is not there; run `make demo` first")
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, scheme in (("report.png", "light"), ("report-dark.png", "dark")):
            context = browser.new_context(viewport=SIZE, color_scheme=scheme, offline=True)
            page = context.new_page()
            page.goto(page_file.as_uri())
            page.wait_for_timeout(1500)  # until the charts are drawn
            page.screenshot(path=IMAGES / name)
            sys.stderr.write(f"{IMAGES / name}\n")
            if scheme == "light":
                page.locator(".heads-panel").screenshot(path=IMAGES / "report-head.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
