"""Pages opened in chromium without a network, and what a reader would notice about them."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Every box that is wider than the window, and each table or picture that its own scrolling box does not hold.
_WIDER = """() => [...document.querySelectorAll("body *")]
  .filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1)
  .filter((e) => !e.closest(".scroll, svg") || e.classList.contains("scroll"))
  .map((e) => e.tagName + "." + e.className)"""


@dataclass
class Visit:
    """A page in the browser. page: playwright's; requests: addresses asked for; faults: errors told by the page."""

    page: Any
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def until(self, expression: str, seconds: float = 120) -> None:
        """Wait until it is true; playwright's own way to wait is refused by the policy of the pages."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            self.page.wait_for_timeout(50)

    def ready(self) -> "Visit":
        """Wait until every chart is drawn; a page whose script failed never is."""
        self.until("document.documentElement.classList.contains('scripted')")
        self.until("[...document.querySelectorAll('.plot')].every((box) => box.querySelector('svg .mark, svg .cells'))")
        self.until(
            "[...document.querySelectorAll('script[id^=cells-]')].every((cells) =>"
            " JSON.parse(cells.textContent).states.length < 2"
            " || document.querySelector('#' + cells.id.slice(6) + ' + .steps'))"
        )
        return self

    def wider(self) -> list[str]:
        """Elements beyond the right edge of the window, other than inside a box that scrolls."""
        found: list[str] = self.page.evaluate(_WIDER)
        return found

    def scrolls_sideways(self) -> bool:
        """Whether the page as a whole can be moved to the side."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


class Visitor:
    """Opens pages in one browser; every visit has a context of its own, closed by `leave`."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.contexts: list[Any] = []

    def open(self, file: Path, *, width: int = 1280, scheme: str = "light", **options: Any) -> Visit:
        """The page with its charts drawn. Whatever it asks for beside itself is refused and noted."""
        size = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=size, color_scheme=scheme, offline=True, **options)
        context.set_default_timeout(120_000)
        self.contexts.append(context)
        visit = Visit(context.new_page())

        def judge(route: Any) -> None:
            visit.requests.append(route.request.url)
            route.continue_() if route.request.url == file.as_uri() else route.abort()

        context.route("**/*", judge)
        visit.page.on("console", lambda said: said.type in ("error", "warning") and visit.faults.append(said.text))
        visit.page.on("pageerror", lambda error: visit.faults.append(str(error)))
        visit.page.on("dialog", lambda dialog: (visit.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        visit.page.goto(file.as_uri())
        return visit if options.get("java_script_enabled") is False else visit.ready()

    def leave(self) -> None:
        """Close every page that was opened."""
        while self.contexts:
            self.contexts.pop().close()
