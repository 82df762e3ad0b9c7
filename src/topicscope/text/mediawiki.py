"""Articles of a MediaWiki XML dump, page by page; and the sample of Wikipedia that gensim ships, its text cached.

Wikitext to prose: what a reader of the article would read as running text, and nothing else.
"""

import contextlib
import functools
import html
import importlib.util
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.parser import ParserError

from topicscope.errors import InputError
from topicscope.records import cache_folder, sha256_of_file, write_text
from topicscope.text.source import MAX_DOCUMENT_BYTES, Document, Faults, Source, open_bytes

# Part of the cache's key: raise it whenever the output changes.
STRIPPER_VERSION = 1

_FILE_KEY, _CATEGORY_KEY = "6", "14"
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

    def named(self, key: str, name: str) -> "Namespaces":
        """Also the site's own name of the namespace with this key, if it is one of the two."""
        names = {name.strip().lower()}
        if key == _FILE_KEY:
            return replace(self, file=self.file | names)
        return replace(self, category=self.category | names) if key == _CATEGORY_KEY else self


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


_CHUNK = 1 << 18
_REDIRECT = re.compile(r"\s*#[^\W\d_]+\s*:?\s*\[\[")


class ForbiddenDoctypeError(Exception):
    """A dump declares no document type; one that does could hold entity bombs."""


@dataclass
class Page:
    """One page as dumped; of several revisions the last one in the file counts."""

    title: str = ""
    namespace: str = "0"
    is_redirect: bool = False
    model: str = "wikitext"
    text: str = ""
    too_large: bool = False


@dataclass
class DumpTarget:
    """Receives the events of the XML parser and gathers finished pages; at most one chunk's pages are held.

    max_bytes: characters of one element beyond which its page is only marked; events: how many there were.

    Written against `xml.etree.ElementTree.XMLParser`, whose target sees the document type before any entity of it.
    """

    max_bytes: int
    events: int = 0
    pages: list[Page] = field(default_factory=list)
    namespaces: Namespaces = field(default_factory=Namespaces)
    root: str | None = None
    _page: Page | None = None
    _path: list[str] = field(default_factory=list)
    _data: list[str] = field(default_factory=list)
    _size: int = 0
    _key: str = ""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Refuse."""
        raise ForbiddenDoctypeError(name)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element opens."""
        name = tag.rpartition("}")[2]
        self.events += 1
        self.root = self.root or name
        self._path.append(name)
        self._data.clear()
        self._size = 0
        if name == "page":
            self._page = Page()
        elif name == "redirect" and self._page is not None:
            self._page.is_redirect = True
        elif name == "namespace":
            self._key = attributes.get("key", "")

    def data(self, data: str) -> None:
        """Characters."""
        self.events += 1
        self._size += len(data)
        if self._size <= self.max_bytes:
            self._data.append(data)
        elif self._page is not None:
            self._page.too_large = True
            self._data.clear()

    def end(self, tag: str) -> None:
        """An element closes."""
        name = self._path.pop()
        value = "".join(self._data)
        self._data.clear()
        parent = self._path[-1] if self._path else ""
        page = self._page
        if name == "namespace":
            self.namespaces = self.namespaces.named(self._key, value)
        elif page is None:
            return
        elif name == "page":
            self.pages.append(page)
            self._page = None
        elif parent == "page" and name == "title":
            page.title = value
        elif parent == "page" and name == "ns":
            page.namespace = value.strip()
        elif parent == "revision" and name == "model":
            page.model = value
        elif parent == "revision" and name == "text":
            page.text = value

    def close(self) -> None:
        """The document ends."""


def read_pages(
    stream: io.BufferedIOBase | io.RawIOBase, where: object, max_bytes: int = MAX_DOCUMENT_BYTES
) -> Iterator[tuple[Page, Namespaces]]:
    """Every page of a dump, with the names that the site gives to files and categories.

    The elements `siteinfo` and `ns` may be missing: the English names are always known, and a page without a
    namespace counts as an article.

    Raises:
        InputError: not XML, cut off, not a MediaWiki dump, or with a document type.
    """
    target = DumpTarget(max_bytes)
    parser = ET.XMLParser(target=target)
    chunk = b"start"
    events = silent = 0
    try:
        while chunk:
            chunk = stream.read(_CHUNK) or b""
            if chunk:
                parser.feed(chunk)
            else:
                parser.close()
            # A tag without end would fill the parser's memory without an event.
            silent = silent + len(chunk) if target.events == events else 0
            events = target.events
            if silent > max_bytes:
                raise ValueError(f"more than {max_bytes} bytes in one tag or comment")
            if target.root not in (None, "mediawiki"):
                raise InputError(
                    "the XML file is not a MediaWiki dump",
                    received=f"root element <{target.root}>",
                    expected="<mediawiki>",
                    where=where,
                )
            for page in target.pages:
                yield page, target.namespaces
            target.pages.clear()
    except ForbiddenDoctypeError as error:
        raise InputError(
            "the XML file declares a document type, which could hide an entity bomb",
            received=f"<!DOCTYPE {error}>",
            expected="a MediaWiki dump, which has none",
            where=where,
        ) from error
    except (ET.ParseError, LookupError, ValueError) as error:
        raise InputError(
            "the file is not well-formed XML",
            received=str(error),
            expected="a MediaWiki XML dump",
            where=where,
            advice="download it again if it is cut off",
        ) from error


def read_dump(source: Source, faults: Faults) -> Iterator[Document]:
    """The articles as plain prose; id = page title. Redirects, other namespaces and other content are counted.

    The encoding is the one that the XML declares.
    """
    where = str(source.path)
    with open_bytes(source.path) as stream:
        for page, namespaces in read_pages(stream, where, source.max_document_bytes):
            if page.too_large:
                source.bad_length(faults, f"{where}, {page.title}")
            elif page.is_redirect or _REDIRECT.match(page.text):
                faults.skip("redirect")
            elif page.namespace != "0" or page.model != "wikitext":
                faults.skip("not an article")
            else:
                try:
                    text = strip_wikitext(page.text, namespaces)
                except (ParserError, RecursionError) as error:
                    problem = InputError(
                        "an article cannot be parsed", received=str(error), where=f"{where}, {page.title}"
                    )
                    faults.bad("wikitext not parsed", problem)
                    continue
                yield Document(page.title, text)


DUMP = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def sample_dump() -> Path:
    """The dump inside the installed gensim, which is not imported.

    Raises:
        InputError: gensim is missing or ships no such file.
    """
    spec = importlib.util.find_spec("gensim")
    path = Path(spec.origin).parent / "test" / "test_data" / DUMP if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise InputError(
            "the Wikipedia sample is not here",
            received="gensim is not installed" if path is None else f"no {path}",
            expected="the package gensim, which ships it",
            advice='pip install "topicscope[demo]"',
        )
    return path


def read_sample(dump: Path, faults: Faults) -> Iterator[Document]:
    """The articles of the sample; redirects are counted whether the text comes from the dump or the cache."""
    documents, skipped = _articles_once(dump, cache_folder())
    faults.counts.update(skipped)
    yield from documents


Articles = tuple[tuple[Document, ...], dict[str, int]]


def articles(dump: Path, cache: Path) -> Articles:
    """(documents, what was skipped by reason) of a dump, from the cache where it has them.

    The cache is a JSON-lines file, whose name holds the dump's sha256 and the stripper's version, so that neither can
    change unnoticed. A cache that cannot be read is made anew; one that cannot be written is done without.
    """
    path = cache / f"wikipedia-sample-{sha256_of_file(dump)[:16]}-v{STRIPPER_VERSION}.jsonl"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _load(path.read_text(encoding="utf-8"))
    faults = Faults()
    documents, skipped = tuple(read_dump(Source(dump), faults)), dict(faults.counts)
    rows = [{"documents": len(documents), "skipped": skipped}, *({"id": d.id, "text": d.text} for d in documents)]
    # A cache that cannot be written is no failure: the text is here, and only the next run pays again.
    with contextlib.suppress(OSError):
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return documents, skipped


# Where no cache can be written, a second pass in one process must not strip again.
_articles_once = functools.cache(articles)


def _load(text: str) -> Articles:
    head, *rows = [json.loads(line) for line in text.rstrip("\n").split("\n")]
    documents = tuple(Document(row["id"], row["text"]) for row in rows)
    if len(documents) != head["documents"]:
        raise ValueError("a cache cut short")
    return documents, {str(reason): int(count) for reason, count in head["skipped"].items()}
