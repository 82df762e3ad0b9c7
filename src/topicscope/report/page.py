"""The shell that every page shares: one file, no network, scripts named by their hash, all outside text escaped.

A page is a jinja2 template that extends `page.html.j2`. Charts are plotly's, with its source inlined once; each chart
has a static picture beside it, seen on paper and without scripts. A page without charts carries no plotly.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from plotly.offline import get_plotlyjs

from topicscope.records import dump_json
from topicscope.report.style import to_svg

# What the downloads of a page may weigh; a larger file lies beside the page and is named there.
_MOST_DOWNLOADED = 1_000_000


@dataclass(frozen=True)
class Picture:
    """A static picture. source: a data address; alt: the words that stand for it; width, height in CSS pixels."""

    source: str
    caption: str
    alt: str
    width: int
    height: int

    @classmethod
    def of(cls, figure: Figure, caption: str, alt: str) -> "Picture":
        """The figure as inlined SVG."""
        source = "data:image/svg+xml;base64," + base64.b64encode(to_svg(figure).encode()).decode()
        return cls(source, caption, alt, round(96 * figure.get_figwidth()), round(96 * figure.get_figheight()))


@dataclass(frozen=True)
class Chart:
    """A plotly chart and the picture that stands for it on paper and without scripts.

    name: unique on the page, letters, digits and hyphens, the element's id. spec: data, layout and, for a slider,
    frames (see `plotly_charts`). height: CSS pixels. part: of a model, where the cells are its heads to be chosen.
    width: the largest, for charts that keep their shape; the height shrinks with it.
    """

    name: str
    spec: Mapping[str, Any]
    picture: Picture
    height: int = 420
    part: str = ""
    width: int | None = None


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
    scripts = [*([_plotly()] if charts else []), _script()]
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    documents = {f"spec-{chart.name}": chart.spec for chart in charts} | dict(data or {})
    return (
        _environment()
        .get_template(template)
        .render(
            policy=policy,
            scripts=[Markup(script) for script in scripts],
            documents={name: script_json(document) for name, document in documents.items()},
            charts={chart.name.replace("-", "_"): chart for chart in charts},
            **context,
        )
    )


def script_json(document: Any) -> Markup:
    """JSON that no HTML parser takes for markup: <, > and & as \\u003c …; NaN as null; no spaces."""
    text = json.dumps(json.loads(dump_json(document)), ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def significant(value: float, digits: int = 4) -> float | None:
    """A number rounded as coarsely as a 16-bit float has it; None for NaN and infinities."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


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
def _plotly() -> str:
    # A browser reads \r as \n, and the hash must be that of what it reads.
    source: str = get_plotlyjs()
    return source.replace("\r\n", "\n").replace("\r", "\n")


@cache
def _script() -> str:
    return (files("topicscope.report") / "report.js").read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
