"""Articles of a MediaWiki XML dump, page by page."""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field

from mwparserfromhell.parser import ParserError

from topicscope.errors import InputError
from topicscope.text.source import MAX_DOCUMENT_BYTES, Document, Faults, Source
from topicscope.text.wikitext import Namespaces, strip_wikitext

_CHUNK = 1 << 18
_REDIRECT = re.compile(r"\s*#[^\W\d_]+\s*:?\s*\[\[")
_FILE_KEY, _CATEGORY_KEY = "6", "14"


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
        if name == "namespace" and self._key == _FILE_KEY:
            self.namespaces = self.namespaces.with_file(value)
        elif name == "namespace" and self._key == _CATEGORY_KEY:
            self.namespaces = self.namespaces.with_category(value)
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


def read_dump(stream: io.BufferedIOBase | io.RawIOBase, source: Source, faults: Faults) -> Iterator[Document]:
    """The articles as plain prose; id = page title. Redirects, other namespaces and other content are counted."""
    where = source.label
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
                problem = InputError("an article cannot be parsed", received=str(error), where=f"{where}, {page.title}")
                faults.bad("wikitext not parsed", problem)
                continue
            yield Document(page.title, text)
