"""Figures of matplotlib as SVG inside a page: shapes that say their values, ids of their own, the reader's colors.

One pass over the tree of elements that matplotlib wrote makes of a drawing a part of the page. Places that a figure
notes in `points` become transparent circles, shapes in `marks` and the cells of its map are found by their ids; each
has a role and a label. Greys become variables of the page's style, so that dark readers see a dark figure.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.colors import LogNorm, to_hex
from matplotlib.figure import Figure

from topicscope.report.style import CELLS, STYLE, Cells, PaperFigure
from topicscope.report.tables import MISSING, significant

_DPI = 72  # of the coordinates in SVG
_LEVELS = 256  # colors of a map
_GREYS = ((0x48, "var(--text)"), (0x80, "var(--soft)"), (0xD0, ""), (0xF0, "var(--line)"), (0xFF, "var(--card)"))


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """The figure as an element for a page.

    name: unique on the page, begins every id; label: what the figure is, for those who cannot see it.
    """
    root = _drawn(figure)
    for child in list(root):
        if child.tag == "metadata":
            root.remove(child)
    for style in root.findall("defs/style/.."):
        root.remove(style)  # it would hold for the whole page; the page's own style says the same
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    root.attrib.clear()
    root.attrib |= {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": label}
    if isinstance(figure, PaperFigure):
        _speak(root, figure)
    for element in root.iter():
        _adopt(element, name)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _drawn(figure: Figure) -> Element:
    """What matplotlib writes, with letters as text and names without their spaces."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE | {"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        Figure.savefig(figure, buffer, format="svg", dpi=200, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if "}" in key]:
            element.attrib[key.rpartition("}")[2]] = element.attrib.pop(key)
    return root


def _speak(root: Element, figure: PaperFigure) -> None:
    """Give every shape that has a value its words."""
    places = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
    for name, text in figure.marks.items():
        for shape in places[name].iter("path"):
            _mark(shape, text)
    height = figure.get_figheight() * _DPI
    for axes, x, y, text in figure.points:
        across, up = axes.transData.transform((x, y)) * (_DPI / figure.dpi)
        if axes.bbox.padded(1).contains(across * figure.dpi / _DPI, up * figure.dpi / _DPI):
            circle = {"cx": f"{across:.2f}", "cy": f"{height - up:.2f}", "r": "3.5", "fill": "transparent"}
            _mark(ElementTree.SubElement(root, "circle", circle), text)
    cells = figure.cells
    if cells is not None and places[CELLS].tag == "g":
        across = len(cells.columns)
        for number, (shape, text) in enumerate(zip(places[CELLS].iter("path"), cell_texts(cells), strict=True)):
            _mark(shape, text)
            shape.attrib |= {"data-row": str(number // across), "data-column": str(number % across)}
    if figure.marks or figure.points or cells is not None:
        root.attrib["role"] = "group"


def _mark(shape: Element, text: str) -> None:
    shape.attrib |= {"class": "mark", "role": "img", "aria-label": text}


def _adopt(element: Element, name: str) -> None:
    """Make ids and references the page's own, coordinates short, and greys variables."""
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
            found[key] = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.5g}", value.replace("\n", " "))
    if "style" in found:
        style = re.sub(r"font-family: [^;]*", "font-family: system-ui, sans-serif", found["style"])
        # The color of a cell is its value.
        found["style"] = style if "data-row" in found else re.sub(r"#[0-9a-f]{6}", _themed, style)
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = None


def _themed(color: re.Match[str]) -> str:
    """The variable of the page's style for a grey; any other color as it is."""
    red, green, blue = (int(color[0][place : place + 2], 16) for place in (1, 3, 5))
    if not red == green == blue:
        return color[0]
    if red == 0xFF:
        return "var(--back)"
    return next(variable for most, variable in _GREYS if red < most) or color[0]


def cell_texts(cells: Cells) -> Iterator[str]:
    """What each cell of a map says in the state that is drawn, row by row; the page's script does it for others."""
    values = [significant(value) for value in cells.states[cells.shown].ravel().tolist()]
    said = cells.said.get(cells.shown, [MISSING if value is None else f"{value:.4g}" for value in values])
    across = len(cells.columns)
    for number, value in enumerate(said):
        text = cells.text.replace("{row}", cells.rows[number // across])
        text = text.replace("{column}", cells.columns[number % across]).replace("{value}", value)
        yield text.replace("{more}", cells.more[number] if cells.more else "")


def cells_document(cells: Cells) -> dict[str, Any]:
    """What the page's script needs to color the cells anew and to say what they hold; numbers have four digits."""
    low, high = cells.norm.vmin, cells.norm.vmax
    assert low is not None
    assert high is not None
    return {
        "rows": list(cells.rows),
        "columns": list(cells.columns),
        "text": cells.text,
        "more": list(cells.more),
        "prefix": cells.prefix,
        "slider": cells.slider,
        "caption": cells.caption,
        "shown": list(cells.states).index(cells.shown),
        "colors": [to_hex(cells.colors(level / (_LEVELS - 1))) for level in range(_LEVELS)],
        "low": low,
        "high": high,
        "log": isinstance(cells.norm, LogNorm),
        "states": [_state(name, values, cells) for name, values in cells.states.items()],
    }


def _state(name: str, values: np.ndarray, cells: Cells) -> Mapping[str, Any]:
    state: dict[str, Any] = {"name": name, "values": [significant(value) for value in values.ravel().tolist()]}
    for key, texts in (("said", cells.said), ("letters", cells.letters)):
        if name in texts:
            state[key] = list(texts[name])
    return state
