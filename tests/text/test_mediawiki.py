"""Dumps: which pages are articles, what is left of their markup, and the sample that gensim ships."""

import bz2
import json
import re
from html import escape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError
from topicscope.records import cache_folder
from topicscope.text import Document, mediawiki, open_corpus, split_words, wikipedia_sample
from topicscope.text.mediawiki import Namespaces, articles, read_sample, sample_dump, strip_wikitext
from topicscope.text.source import Faults

SITE = """<siteinfo><namespaces><namespace key="0" /><namespace key="6">Datei</namespace>
<namespace key="14">Kategorie</namespace></namespaces></siteinfo>"""


def page(title: str, text: str, *, ns: str = "<ns>0</ns>", extra: str = "", model: str = "wikitext") -> str:
    return (
        f"<page><title>{title}</title>{ns}<id>1</id>{extra}<revision><id>2</id><contributor><username>text</username>"
        f'</contributor><model>{model}</model><text xml:space="preserve">{escape(text)}</text></revision></page>'
    )


def dump(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "wiki.xml"
    path.write_text(
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{body}</mediawiki>', encoding="utf-8"
    )
    return path


def test_articles_only_and_the_rest_counted(tmp_path: Path) -> None:
    body = SITE + "".join(
        [
            page("One", "First '''article'''."),
            page("Two", "#REDIRECT [[One]]", extra='<redirect title="One" />'),
            page("Drei", "#WEITERLEITUNG [[One]]"),
            page("Talk:One", "Chatter.", ns="<ns>1</ns>"),
            page("Data", "{}", model="json"),
            page("Empty", "{{only a template}}"),
            page("Old", "No namespace element.", ns=""),
            page("Bild", "Vor. [[Datei:A.jpg|mini|Unterschrift]] Nach. [[Kategorie:X]]"),
        ]
    )
    corpus = open_corpus(dump(tmp_path, body))
    assert list(corpus) == [
        Document("One", "First article."),
        Document("Old", "No namespace element."),
        Document("Bild", "Vor. Nach."),
    ]
    assert corpus.skipped == {"redirect": 2, "not an article": 2, "empty document": 1}


def test_the_last_revision_counts(tmp_path: Path) -> None:
    body = "<page><title>t</title><revision><text>old</text></revision><revision><text>new</text></revision></page>"
    assert [d.text for d in open_corpus(dump(tmp_path, body))] == ["new"]


def test_text_may_be_cut_by_the_parser_anywhere(tmp_path: Path) -> None:
    long = "Wörter & mehr. " * 20_000
    assert next(iter(open_corpus(dump(tmp_path, page("Long", long))))).text == long.strip()


@pytest.mark.parametrize("name", ["x-pages-articles1.xml-p1p41242.bz2", "x.xml.bz2"])
def test_names_of_dump_parts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bz2.compress(f"<mediawiki>{page('One', 'Text.')}</mediawiki>".encode()))
    assert [d.id for d in open_corpus(path)] == ["One"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<!DOCTYPE m [<!ENTITY a "b"><!ENTITY c "&a;&a;&a;">]><mediawiki>&c;</mediawiki>', "document type"),
        ("<html><body>No such page</body></html>", "root element <html>"),
        ("<mediawiki><page><title>a</title>", "not well-formed"),
        (f"<mediawiki>{page('One', 'Text.')}<page>", "not well-formed"),
        ("<?xml version='1.0' encoding='klingon'?><mediawiki/>", "not well-formed"),
        ("plain text", "not well-formed"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "wiki.xml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        list(open_corpus(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("wikitext", "prose"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("[[Cat|cats]] and [[dog]]s, [[:Category:Pets|pets]], [[Cat#Diet]].", "cats and dogs, pets, Cat."),
        ("A[[File:A.jpg|thumb|left|A caption with a [[link|text]].]]B [[Image:x.png]]", "AB"),
        ("A [[Bild:x.JPG|mini|Unterschrift]]B", "A B"),
        ("Text.\n[[Category:Pets]]\n[[fr:Chat]] [[zh-min-nan:Niau]]", "Text."),
        ("[http://a.org A site], [http://b.org], see http://c.org", "A site, see"),
        ("See [http://a.org the site] [http://b.org].", "See the site."),
        ("A<ref>Note {{cite|a=b}}</ref> B<ref name=x /> C.<!-- hidden -->", "A B C."),
        ("{{Infobox\n| a = {{b|c}}\n}}\nText {{convert|5|km}}.", "Text."),
        ("Before.\n{| class=x\n! head\n|-\n| cell || {{t}}\n|}\nAfter.", "Before.\n\nAfter."),
        ("Before.\n\n{|\n| open table\n\nAfter.", "Before.\n\nAfter."),
        ("== Heading ==\nText.\n=== Sub ===\nMore.", "Text.\n\nMore."),
        ("Intro:\n* item one\n** item two\n# three\n; term : def\n: indented\nEnd.", "Intro:\n\nEnd."),
        ("One line\nsame paragraph.\n\nNext.", "One line same paragraph.\n\nNext."),
        ("Let <math>x^2</math> be, with <code>f(x)</code>.", "Let be, with f(x)."),
        ("AT&amp;T&nbsp;Inc &ndash; &#x41;&#xD800;", "AT&T Inc – A"),
        ("Name ({{lang|x}}, {{IPA|y}}; ) is ( ) a [ ] name (; born 1900 , ).", "Name is a name (born 1900)."),
        ("{{As of|2010}}, it holds.", "it holds."),
        ("__NOTOC__ Text<br />more <span style='x'>words</span> <gallery>\nA.jpg|b\n</gallery>", "Text more words"),
        ("<blockquote>Quoted words.</blockquote>", "Quoted words."),
        ("<nowiki>[[kept]]</nowiki> is left out when it looks like markup\n\nText.", "Text."),
        ("", ""),
    ],
)
def test_wikitext_becomes_prose(wikitext: str, prose: str) -> None:
    assert strip_wikitext(wikitext) == prose


def test_the_site_names_its_own_namespaces() -> None:
    german = Namespaces().named("6", "Datei").named("14", "Kategorie").named("2", "Benutzer")
    assert strip_wikitext("A. [[Datei:X|mini|u]] [[File:X|b]] [[Kategorie:K]]", german) == "A."
    assert strip_wikitext("A. [[Datei:X|visible]]") == "A. visible"


PIECES = [
    "[[",
    "]]",
    "{{",
    "}}",
    "{|",
    "|}",
    "|",
    "\n",
    "'''",
    "==",
    "<ref>",
    "</ref>",
    "<!--",
    "-->",
    "*",
    ":",
    "File:",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=30).map("".join))
def test_no_wikitext_breaks_the_stripper(wikitext: str) -> None:
    prose = strip_wikitext(wikitext.encode(errors="ignore").decode())
    assert "\x00" not in prose
    assert all(paragraph.strip() for paragraph in prose.split("\n\n")) or prose == ""


LEFTOVERS = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|''|==|https?://|</?ref|&[a-z]+;|thumb\||\dpx|(?:Category|File|Image):|\(\s*\)|^\s*[|!*#:;]",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mediawiki.Articles]:
    """(cache folder, articles) of the sample, stripped once."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, articles(sample_dump(), cache)


def test_the_sample_is_what_was_counted_by_other_means(sample: tuple[Path, mediawiki.Articles]) -> None:
    documents, skipped = sample[1]
    # Read by mwxml, the dump has 106 articles; a prototype found 3,919 paragraphs of 40 words, 373k words in them.
    assert (len(documents), skipped) == (106, {"redirect": 100})
    lengths = [len(split_words(p)) for d in documents for p in d.text.split("\n\n")]
    long = [n for n in lengths if n >= 40]
    assert abs(len(long) - 3919) < 60
    assert abs(sum(long) - 373_000) < 4000
    assert len({d.id for d in documents}) == 106
    assert documents[0].text.startswith(
        "Anarchism is a political philosophy that advocates self-governed societies based"
    )


def test_the_sample_reads_as_prose(sample: tuple[Path, mediawiki.Articles]) -> None:
    documents, _ = sample[1]
    # The one article that is nothing but a list.
    assert [d.id for d in documents if not d.text] == ["List of anthropologists"]
    text = "\n\n".join(d.text for d in documents if d.text)
    assert LEFTOVERS.findall(text) == []
    # Paragraphs end like sentences, or introduce a list that was left out.
    ends = [paragraph.rstrip()[-1] in ".:!?\"”')" for paragraph in text.split("\n\n")]
    assert sum(ends) / len(ends) > 0.97
    # The negative control: the same search finds markup in the dump itself.
    with bz2.open(sample_dump(), "rt", encoding="utf-8") as stream:
        assert len(LEFTOVERS.findall(stream.read(2_000_000))) > 10_000


def test_the_cache_gives_what_the_dump_gave(
    sample: tuple[Path, mediawiki.Articles], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, fresh = sample
    monkeypatch.setattr(mediawiki, "read_dump", lambda *_: pytest.fail("stripped again"))
    assert articles(sample_dump(), cache) == fresh


def test_the_named_corpus_is_the_sample(
    sample: tuple[Path, mediawiki.Articles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(sample[0]))
    corpus = open_corpus("wikipedia-sample")
    assert list(corpus) == [d for d in sample[1][0] if d.text]
    assert corpus.skipped == {"redirect": 100, "empty document": 1}
    assert corpus.name == "wikipedia-sample"
    assert corpus.fingerprint() == wikipedia_sample().fingerprint()


@pytest.fixture
def small_dump(tmp_path: Path) -> Path:
    path = tmp_path / "small.xml.bz2"
    path.write_bytes(bz2.compress(("<mediawiki>" + page("One", "Text & \u2028 more.") + "</mediawiki>").encode()))
    return path


def test_a_damaged_cache_is_made_anew(tmp_path: Path, small_dump: Path) -> None:
    fresh = articles(small_dump, tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_text(encoding="utf-8")
    assert json.loads(good.split("\n", maxsplit=1)[0]) == {"documents": 1, "skipped": {}}
    for bad in ("", "{", good.split("\n", maxsplit=1)[0], '{"documents": 1}\n[1]', "[]"):
        file.write_text(bad, encoding="utf-8")
        assert articles(small_dump, tmp_path / "cache") == fresh
        assert file.read_text(encoding="utf-8") == good


def test_a_cache_folder_that_cannot_be_written_is_done_without(tmp_path: Path, small_dump: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    assert articles(small_dump, blocked) == articles(small_dump, tmp_path / "cache")
    faults = Faults()
    assert [d.id for d in read_sample(small_dump, faults)] == ["One"]


def test_another_dump_or_stripper_has_another_cache(
    tmp_path: Path, small_dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    articles(small_dump, tmp_path / "cache")
    monkeypatch.setattr(mediawiki, "STRIPPER_VERSION", 99)
    articles(small_dump, tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_without_gensim_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"topicscope\[demo\]"):
        open_corpus("wikipedia-sample")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TOPICSCOPE_CACHE")
    assert cache_folder() == Path("/x/topicscope")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "topicscope"


@pytest.mark.parametrize(
    ("name", "documents", "skipped", "start"),
    [
        ("enwiki-table-markup.xml.bz2", 5, {}, "The constructive vote of no confidence (in German"),
        (
            "bgwiki-latest-pages-articles-shortened.xml.bz2",
            1,
            {"not an article": 2},
            "Григорианският календар (понякога",
        ),
    ],
)
def test_other_dumps_of_gensim(name: str, documents: int, skipped: dict[str, int], start: str) -> None:
    corpus = open_corpus(sample_dump().parent / name)
    read = list(corpus)
    assert len(read) == documents
    assert corpus.skipped == skipped
    assert read[0].text.startswith(start)
    assert LEFTOVERS.findall("\n\n".join(d.text for d in read)) == []
