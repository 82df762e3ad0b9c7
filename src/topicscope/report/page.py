"""The shell that every page shares: one file, no network, its script named by its hash, all outside text escaped.

A page is a jinja2 template that extends `page.html.j2`. Its charts are figures of matplotlib as inline SVG, seen on
paper and without scripts as well; the script lets them answer to the pointer and to keys.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from topicscope.records import dump_json
from topicscope.report.style import PaperFigure
from topicscope.report.svg import cells_document, inline_svg

# What the downloads of a page may weigh; a larger file lies beside the page and is named there.
_MOST_DOWNLOADED = 1_000_000
# CSS pixels to the inch of a figure: letters of 8 points are then as large as those of a note.
_PIXELS = 120


@dataclass(frozen=True)
class Chart:
    """A figure on a page. name: unique there, letters, digits and hyphens, the element's id; alt: the words that stand
    for it; width: in CSS pixels where there is room; part: of a model, where its cells are heads to be chosen;
    cells: what the script knows of its map, if it has one; asked: whether it answers to the pointer."""

    name: str
    caption: str
    alt: str
    svg: Markup
    width: int
    part: str = ""
    cells: Mapping[str, Any] | None = None
    asked: bool = False

    @classmethod
    def of(cls, figure: Figure, name: str, caption: str, alt: str, part: str = "") -> "Chart":
        """The figure as it is drawn now."""
        svg, width = inline_svg(figure, name, caption), round(_PIXELS * figure.get_figwidth())
        if not isinstance(figure, PaperFigure):
            return cls(name, caption, alt, svg, width, part)
        cells = None if figure.cells is None else cells_document(figure.cells)
        asked = cells is not None or bool(figure.points or figure.marks)
        return cls(name, caption, alt, svg, width, part, cells, asked)


@dataclass(frozen=True)
class Download:
    """A file to save from the page. name: with its ending; text: its content; None where it is too large to embed."""

    name: str
    text: str | None

    @property
    def href(self) -> str:
        """The file as a data address, which works without scripts."""
        assert self.text is not None
        kind = "application/json" if self.name.endswith(".json") else "text/csv"
        return f"data:{kind};charset=utf-8;base64," + base64.b64encode(self.text.encode()).decode()

    @property
    def size(self) -> str:
        """Kilobytes, as people read them."""
        return f"{max(1, round(len((self.text or '').encode()) / 1000)):,} kB"


def downloads(contents: Mapping[str, str]) -> list[Download]:
    """Every file by its name, smallest first into what a page may carry; one that does not fit is only named."""
    room, kept = _MOST_DOWNLOADED, {}
    for name, text in sorted(contents.items(), key=lambda item: len(item[1].encode())):
        size = len(text.encode())
        kept[name] = text if size <= room else None
        room -= size if size <= room else 0
    return [Download(name, kept[name]) for name in contents]


def render_page(
    template: str, *, charts: Sequence[Chart] = (), data: Mapping[str, Any] | None = None, **context: Any
) -> str:
    """The page of one template of this package.

    charts: those that the template places with `{{ chart(charts.NAME) }}` (hyphens as underscores); data: what the
    script reads, by the id of its element; context: what else the template uses.
    """
    policy = f"default-src 'none'; script-src 'sha256-{_sha256(_script())}'; style-src 'unsafe-inline'; img-src data:"
    documents = {f"cells-{chart.name}": chart.cells for chart in charts if chart.cells is not None} | dict(data or {})
    return (
        _environment()
        .get_template(template)
        .render(
            policy=policy,
            script=Markup(_script()),
            documents={name: script_json(document) for name, document in documents.items()},
            charts={chart.name.replace("-", "_"): chart for chart in charts},
            **context,
        )
    )


def script_json(document: Any) -> Markup:
    """JSON that no HTML parser takes for markup: <, > and & as \\u003c …; NaN as null; no spaces."""
    text = json.dumps(json.loads(dump_json(document)), ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@cache
def _environment() -> Environment:
    # Autoescape always: the templates' names do not end in .html, so jinja2 would not turn it on by itself.
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("topicscope.report", ""),
    )


@cache
def _script() -> str:
    return (files("topicscope.report") / "report.js").read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
