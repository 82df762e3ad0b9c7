"""Text at URLs: the documents of the same file on this machine, and clear errors from storages that fail."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from storages import clear, fault, put
from text.text_files import KINDS, sample_file
from topicscope.errors import InputError
from topicscope.records import name_of, place_of, shown, without_secrets
from topicscope.text import Corpus, open_corpus


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    clear()
    yield
    clear()


def rows(corpus: Corpus) -> list[tuple[str, str]]:
    return [(document.id, document.text) for document in corpus]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".zst"])
def test_a_file_at_a_url_is_the_file(tmp_path: Path, kind: str, compression: str) -> None:
    path, _ = sample_file(tmp_path, kind, compression)
    url = put(f"memory://bucket/{path.name}", path.read_bytes())
    corpora = [open_corpus(place) for place in (path, url, f"file://{path}")]
    assert len({corpus.fingerprint() for corpus in corpora}) == 1
    assert rows(corpora[1]) == rows(corpora[0])
    assert [corpus.name for corpus in corpora] == [path.name] * 3


def test_a_path_of_this_machine_stays_a_plain_path(tmp_path: Path) -> None:
    for location in (tmp_path, str(tmp_path), f"file://{tmp_path}", "corpus.txt", "C:/x", "odd:name"):
        assert type(place_of(location)) is type(Path())
    assert place_of(f"file://{tmp_path}") == tmp_path


def test_a_folder_at_a_url_is_the_folder(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a.txt", "notes.md"):
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
        put(f"memory://bucket/texts/{name}", path.read_bytes())
    here, there = open_corpus(tmp_path / "texts"), open_corpus("memory://bucket/texts/")
    assert rows(there) == rows(here)
    assert there.skipped == here.skipped == {"not a .txt file": 1}
    assert there.name == "texts"


def test_http_with_a_token_in_the_query(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    path, _ = sample_file(tmp_path, "jsonl", ".gz")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        corpus = open_corpus(f"{base}/{path.name}?token=secret")
        assert rows(corpus) == rows(open_corpus(path))
        assert corpus.name == path.name
        with pytest.raises(InputError) as raised:
            open_corpus(f"{base}/missing.jsonl?token=secret")
        server.shutdown()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("compression", ["", ".zst"])
@pytest.mark.parametrize("how", ["breaks off", "fails"])
@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_a_stream_that_ends_too_early_is_noticed(tmp_path: Path, kind: str, compression: str, how: str) -> None:
    path, _ = sample_file(tmp_path, kind, compression)
    corpus = open_corpus(put(f"faulty://bucket/{path.name}", path.read_bytes()))
    rows(corpus)
    with fault(how), pytest.raises(InputError, match=r"(?s)cannot be read.*faulty:/+bucket/corpus"):
        rows(corpus)
    rows(corpus)  # every pass opens the stream anew


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://bucket/missing.txt", "no such file"),
        ("memory://bucket/missing/*.txt", "no file matches the pattern"),
        ("cloud://bucket/x.txt", r"(?s)unknown kind of storage.*cloud://bucket.*s3://"),
        ("s3x+y://bucket/x.txt", "unknown kind of storage"),
    ],
)
def test_what_is_not_there(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_corpus(url)


def test_a_kind_of_storage_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol, package in (("s3", "s3fs"), ("gs", "gcsfs"), ("az", "adlfs")):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(InputError, match=rf"(?s){protocol}://.*not installed.*pip install {package}"):
            open_corpus(f"{protocol}://bucket/corpus.jsonl")


@pytest.mark.parametrize(("how", "words"), [("forbidden", "Access Denied"), ("strange", "no credentials")])
def test_a_storage_that_refuses(how: str, words: str) -> None:
    put("faulty://bucket/corpus.txt", b"text")
    with fault(how), pytest.raises(InputError, match=rf"(?s)storage cannot be used.*{words}.*credentials") as raised:
        open_corpus("faulty://bucket/corpus.txt")
    assert not {"pw", "secret"} & set(str(raised.value).replace("=", " ").replace(":", " ").split())


def test_names_and_messages_hold_no_secrets() -> None:
    assert shown("sftp://me:pw@host/a/b.txt") == "sftp://host/a/b.txt"
    assert without_secrets("get https://u:p@h/x.txt?sig=1&b=2 'q'") == "get https://h/x.txt 'q'"
    assert without_secrets("what? me@home") == "what? me@home"
    assert name_of(place_of("memory://b/x.jsonl?token=1")) == "x.jsonl"


def test_a_text_that_is_changed_between_passes_is_noticed() -> None:
    line = json.dumps({"text": "one"}).encode()
    corpus = open_corpus(put("memory://bucket/a.jsonl", line))
    rows(corpus)
    put("memory://bucket/a.jsonl", line.replace(b"one", b"two"))
    with pytest.raises(InputError, match="changed between two passes"):
        rows(corpus)
