"""The sample of Wikipedia that the package gensim ships, its stripped text cached.

The cache is a JSON-lines file in the cache folder (`records.cache`). Its name
holds the dump's sha256 and the stripper's version, so that neither can change unnoticed.
"""

import contextlib
import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

from topicscope.errors import InputError
from topicscope.records import cache_folder, sha256_of_file, write_text
from topicscope.text.mediawiki import STRIPPER_VERSION
from topicscope.text.readers import read_mediawiki
from topicscope.text.source import Document, Faults, Source

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

    A cache that cannot be read is made anew; one that cannot be written is done without.
    """
    path = cache / f"wikipedia-sample-{sha256_of_file(dump)[:16]}-v{STRIPPER_VERSION}.jsonl"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _load(path.read_text(encoding="utf-8"))
    found = _strip(dump)
    # A cache that cannot be written is no failure: the text is here, and only the next run pays again.
    with contextlib.suppress(OSError):
        write_text(path, _dump(found))
    return found


# Where no cache can be written, a second pass in one process must not strip again.
_articles_once = functools.cache(articles)


def _strip(dump: Path) -> Articles:
    faults = Faults()
    documents = tuple(read_mediawiki(Source(dump), faults))
    return documents, dict(faults.counts)


def _dump(found: Articles) -> str:
    documents, skipped = found
    rows = [{"documents": len(documents), "skipped": skipped}, *({"id": d.id, "text": d.text} for d in documents)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _load(text: str) -> Articles:
    head, *rows = [json.loads(line) for line in text.rstrip("\n").split("\n")]
    documents = tuple(Document(row["id"], row["text"]) for row in rows)
    if len(documents) != head["documents"]:
        raise ValueError("a cache cut short")
    return documents, {str(reason): int(count) for reason, count in head["skipped"].items()}
