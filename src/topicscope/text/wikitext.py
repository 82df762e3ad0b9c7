"""Wikitext to prose: what a reader of the article would read as running text, and nothing else."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import mwparserfromhell
from mwparserfromhell import nodes

# Part of the cache's key: raise it whenever the output changes.
STRIPPER_VERSION = 1

# Tags whose content is no running text. Every other tag is replaced by what it contains.
_DROPPED = (
    "ref references table gallery math chem ce timeline imagemap score source syntaxhighlight pre graph mapframe "
    "maplink hiero templatedata categorytree inputbox noinclude style script li ol ul dl"
)
DROPPED_TAGS = frozenset(_DROPPED.split())
LIST_TAGS = frozenset(("li", "dd", "dt"))
# Marks a line that was a list item, an indentation or a heading. XML cannot contain it.
_NO_PROSE = "\x00"
_FILE_ENDING = re.compile(r"\.(jpe?g|png|svg|gif|tiff?|webp|og[gva]|web[mp]|mp3|pdf|djvu|mid)\s*$", re.IGNORECASE)
_INTERLANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z-]+)?:\S")
_QUOTES = re.compile(r"'{2,}")
_MAGIC_WORD = re.compile(r"__[A-Z]+__")
_COMMENT = re.compile(r"<!--.*?(-->|$)", re.DOTALL)
_EMPTY_BRACKETS = re.compile(r"[(\[]\s*(?:[,;:/–—-]|\bor\b|\s)*\s*[)\]]")
_OPENED_BY_PUNCTUATION = re.compile(r"(^\s*|[(\[])(?:\s*[,;:])+\s*")
_CLOSED_BY_PUNCTUATION = re.compile(r"(?:\s*[,;:])+\s*([)\]])")
_SPACE_BEFORE = re.compile(r"\s+([,.;:!?)\]])")
_DOUBLED = re.compile(r"([,;:])(?:\s*[,;:])+")
_LEFTOVER = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|^\s*[|!]|</?[a-zA-Z]\w*[^<>]*>|https?://")


@dataclass(frozen=True)
class Namespaces:
    """The lower-case prefixes of links that show a picture or put the page in a category."""

    file: frozenset[str] = frozenset(("file", "image", "media"))
    category: frozenset[str] = frozenset(("category",))

    def with_file(self, name: str) -> "Namespaces":
        """Also the site's own name of the file namespace."""
        return replace(self, file=self.file | {name.strip().lower()})

    def with_category(self, name: str) -> "Namespaces":
        """Also the site's own name of the category namespace."""
        return replace(self, category=self.category | {name.strip().lower()})


def strip_wikitext(wikitext: str, namespaces: Namespaces | None = None) -> str:
    """The paragraphs of an article, each on one line, a blank line between them.

    Gone are templates, tables, references, comments, pictures with their captions, categories, links to other
    languages, formulas, headings, and list items, which are seldom sentences. Links leave their visible text.
    """
    code = mwparserfromhell.parse(_COMMENT.sub("", wikitext), skip_style_tags=True)
    rendered = "".join(_render(code, namespaces or Namespaces()))
    paragraphs = (_tidy(lines) for lines in _paragraphs(rendered))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _render(code: Any, namespaces: Namespaces) -> Iterator[str]:
    """The visible text of parsed wikitext, in pieces."""
    for node in code.nodes:
        if isinstance(node, nodes.Text):
            yield node.value
        elif isinstance(node, nodes.Wikilink):
            yield from _render_link(node, namespaces)
        elif isinstance(node, nodes.ExternalLink):
            if node.title is not None:
                yield from _render(node.title, namespaces)
        elif isinstance(node, nodes.HTMLEntity):
            yield _entity(node)
        elif isinstance(node, nodes.Heading):
            yield f"\n{_NO_PROSE}\n"
        elif isinstance(node, nodes.Tag):
            name = str(node.tag).strip().lower()
            if name in LIST_TAGS and node.wiki_markup:
                yield _NO_PROSE
            elif name in ("br", "hr", "p"):
                yield "\n" if name == "br" else "\n\n"
                yield from _render(node.contents, namespaces) if node.contents is not None else ()
            elif name not in DROPPED_TAGS and node.contents is not None:
                yield from _render(node.contents, namespaces)


def _render_link(node: Any, namespaces: Namespaces) -> Iterator[str]:
    title = str(node.title).strip()
    prefix = title.partition(":")[0].strip().lower() if ":" in title else ""
    if prefix in namespaces.file | namespaces.category or (prefix and _FILE_ENDING.search(title)):
        return
    if node.text is not None:
        yield from _render(node.text, namespaces)
    elif not _INTERLANGUAGE.match(title):
        yield title.removeprefix(":").partition("#")[0]


def _entity(node: Any) -> str:
    try:
        character = str(node.normalize())
    except (ValueError, OverflowError, KeyError):
        return " "
    return " " if "\ud800" <= character <= "\udfff" else character


def _paragraphs(rendered: str) -> Iterator[str]:
    """Lines that stand together, joined; a blank line, a list item or a heading ends a paragraph."""
    together: list[str] = []
    for line in [*rendered.split("\n"), ""]:
        if line.strip() and not line.startswith(_NO_PROSE) and not _LEFTOVER.search(line):
            together.append(line)
        elif together:
            yield " ".join(together)
            together = []


def _tidy(paragraph: str) -> str:
    """Without quote marks of bold and italics, and without the holes that templates leave in punctuation."""
    text = _MAGIC_WORD.sub("", _QUOTES.sub("", paragraph)).replace(_NO_PROSE, " ")
    text = html.unescape(text)
    text = _OPENED_BY_PUNCTUATION.sub(r"\1", _EMPTY_BRACKETS.sub("", text))
    text = _DOUBLED.sub(r"\1", _CLOSED_BY_PUNCTUATION.sub(r"\1", text))
    return " ".join(_SPACE_BEFORE.sub(r"\1", text).split())
