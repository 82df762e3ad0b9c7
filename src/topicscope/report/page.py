"""The shell that every page shares: one file, no network, its script named by its hash, all outside text escaped.

A page is a jinja2 template that extends `page.html.j2`. Its charts are figures of matplotlib as inline SVG, seen on
paper and without scripts as well; the script lets them answer to the pointer and to keys. One pass over the tree of
elements that matplotlib wrote makes of a drawing a part of the page: places that a figure notes in `points` become
transparent circles, shapes in `marks` and the cells of its map are found by their ids, and each gets a role and a
label. Greys become variables of the page's style, so that dark readers see a dark figure.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import LogNorm, to_hex

from topicscope.records import dump_json
from topicscope.report.style import CELLS, PaperFigure, rendered
from topicscope.report.tables import MISSING, significant

# What the downloads of a page may weigh; a larger file lies beside the page and is named there.
_MOST_DOWNLOADED = 1_000_000
# CSS pixels to the inch of a figure: letters of 8 points are then as large as those of a note.
_PIXELS = 120
_DPI = 72  # of the coordinates in SVG
_LEVELS = 256  # colors of a map
# The page's variable for each grey of a drawing, by its lightness; greys between 0x80 and 0xcf stay.
_THEMED = {
    "#" + 3 * f"{level:02x}": f"var(--{variable})"
    for variable, begin, end in (
        *(("text", 0x00, 0x48), ("soft", 0x48, 0x80), ("line", 0xD0, 0xF0), ("card", 0xF0, 0xFF)),
        ("back", 0xFF, 0x100),
    )
    for level in range(begin, end)
}

# Autoescape always: the templates' names do not end in .html, so jinja2 would not turn it on by itself.
_TEMPLATES = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    loader=PackageLoader("topicscope.report", ""),
)
# Every template knows the script, and the policy that lets no other one run.
_SCRIPT = (files("topicscope.report") / "report.js").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_TEMPLATES.globals |= {
    "script": Markup(_SCRIPT),
    "policy": f"default-src 'none'; script-src 'sha256-{_DIGEST}'; style-src 'unsafe-inline'; img-src data:",
}


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
    part: str
    cells: Mapping[str, Any] | None
    asked: bool

    @classmethod
    def of(cls, figure: PaperFigure, name: str, caption: str, alt: str, part: str = "") -> "Chart":
        """The figure as it is drawn now; numbers for the script have four digits."""
        svg, width, cells, document = inline_svg(figure, name, caption), figure.get_figwidth(), figure.cells, None
        if cells is not None:
            states = []
            for state, values in cells.states.items():
                numbers = [significant(value) for value in values.ravel().tolist()]
                texts = {"said": cells.said.get(state), "letters": cells.letters.get(state)}
                given = {key: found for key, found in texts.items() if found is not None}
                states.append({"name": state, "values": numbers, **given})
            document = {
                "rows": list(cells.rows),
                "columns": list(cells.columns),
                "text": cells.text,
                "more": list(cells.more),
                "prefix": cells.prefix,
                "slider": cells.slider,
                "caption": cells.caption,
                "shown": list(cells.states).index(cells.shown),
                "colors": [to_hex(cells.colors(level / (_LEVELS - 1))) for level in range(_LEVELS)],
                "low": cells.norm.vmin,
                "high": cells.norm.vmax,
                "log": isinstance(cells.norm, LogNorm),
                "states": states,
            }
        asked = bool(cells or figure.points or figure.marks)
        return cls(name, caption, alt, svg, round(_PIXELS * width), part, document, asked)


def downloads(contents: Mapping[str, str]) -> list[dict[str, str | None]]:
    """Every file by its name, smallest first into what a page may carry; one that does not fit is only named.

    Of each: name, with its ending; href, its content as a data address, which works without scripts, None where it is
    too large to embed; size, as people read it.
    """
    room, found = _MOST_DOWNLOADED, dict[str, dict[str, str | None]]()
    encoded = {name: text.encode() for name, text in contents.items()}
    for name, data in sorted(encoded.items(), key=lambda item: len(item[1])):
        href = None
        if len(data) <= room:
            room -= len(data)
            kind = "application/json" if name.endswith(".json") else "text/csv"
            href = f"data:{kind};charset=utf-8;base64,{base64.b64encode(data).decode()}"
        found[name] = {"name": name, "href": href, "size": f"{max(1, round(len(data) / 1000)):,} kB"}
    return [found[name] for name in contents]


def render_page(
    template: str, *, charts: Sequence[Chart] = (), data: Mapping[str, Any] | None = None, **context: Any
) -> str:
    """The page of one template of this package.

    charts: those that the template places with `{{ chart(charts.NAME) }}`; data: what the script reads, by the id of
    its element; context: what else the template uses.
    """
    documents = {f"cells-{chart.name}": chart.cells for chart in charts if chart.cells is not None} | dict(data or {})
    return _TEMPLATES.get_template(template).render(
        documents={name: script_json(document) for name, document in documents.items()},
        charts={chart.name: chart for chart in charts},
        **context,
    )


def script_json(document: Any) -> Markup:
    """JSON that no HTML parser takes for markup: <, > and & as \\u003c …; NaN as null; no spaces."""
    text = json.dumps(json.loads(dump_json(document)), ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


# ---- figures as elements of a page


def inline_svg(figure: PaperFigure, name: str, label: str) -> Markup:
    """The figure as an element for a page.

    name: unique on the page, begins every id; label: what the figure is, for those who cannot see it.
    """
    for number, (artist, _) in enumerate(figure.marks):
        artist.set_gid(f"mark-{number}")
    root = ElementTree.fromstring(rendered(figure, "svg", {"svg.fonttype": "none"}))  # letters stay text
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if "}" in key]:
            element.attrib[key.rpartition("}")[2]] = element.attrib.pop(key)
    for child in root.findall("metadata"):
        root.remove(child)
    for style in root.findall("defs/style/.."):
        root.remove(style)  # it would hold for the whole page; the page's own style says the same
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    asked = figure.marks or figure.points or figure.cells
    root.attrib.clear()
    root.attrib |= {"viewBox": f"0 0 {width:g} {height:g}", "role": "group" if asked else "img", "aria-label": label}
    for shape, text in _shapes(root, figure):
        shape.attrib |= {"class": "mark", "role": "img", "aria-label": text}
    # Ids and references become the page's own, coordinates short, and greys variables.
    for element in root.iter():
        found = element.attrib
        if "id" in found:
            if found["id"] == CELLS:
                found["class"] = CELLS
            found["id"] = f"{name}-{found['id']}"
        for key, value in found.items():
            if key == "href" and value.startswith("#"):
                found[key] = f"#{name}-{value[1:]}"
            elif key in ("style", "clip-path", "fill"):
                found[key] = value.replace("url(#", f"url(#{name}-")
            elif key in ("d", "x", "y", "transform"):
                short = value.replace("\n", " ")
                found[key] = re.sub(r"-?\d+\.\d{3,}", lambda digits: f"{float(digits[0]):.5g}", short)
        if "style" in found:
            css = re.sub(r"font-family: [^;]*", "font-family: system-ui, sans-serif", found["style"])
            if "data-row" not in found:  # the color of a cell is its value
                css = re.sub("#[0-9a-f]{6}", lambda color: _THEMED.get(color[0], color[0]), css)
            found["style"] = css
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _shapes(root: Element, figure: PaperFigure) -> list[tuple[Element, str]]:
    """Every shape of the drawing that has a value, with its words; a circle is added for each of the points."""
    places = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
    marks = {f"mark-{number}": text for number, (_, text) in enumerate(figure.marks)}
    found = [(shape, text) for name, text in marks.items() for shape in places[name].iter("path")]
    height, scale = figure.get_figheight() * _DPI, _DPI / figure.dpi
    for axes, x, y, text in figure.points:
        across, up = axes.transData.transform((x, y))
        if axes.bbox.padded(1).contains(across, up):
            middle = {"cx": f"{across * scale:.2f}", "cy": f"{height - up * scale:.2f}"}
            circle = ElementTree.SubElement(root, "circle", {**middle, "r": "3.5", "fill": "transparent"})
            found.append((circle, text))
    cells = figure.cells
    if cells is not None and places[CELLS].tag == "g":
        values = [significant(value) for value in cells.states[cells.shown].ravel().tolist()]
        said = cells.said.get(cells.shown, [MISSING if value is None else f"{value:.4g}" for value in values])
        # What the page's script says of a cell, in the state that is drawn.
        for number, shape in enumerate(places[CELLS].iter("path")):
            row, column = divmod(number, len(cells.columns))
            shape.attrib |= {"data-row": str(row), "data-column": str(column)}
            text = cells.text.replace("{row}", cells.rows[row]).replace("{column}", cells.columns[column])
            text = text.replace("{value}", said[number])
            found.append((shape, text.replace("{more}", cells.more[number] if cells.more else "")))
    return found
