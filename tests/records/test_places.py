"""URLs as users write them: what is refused, what is said of them, and that work never leaves its own folder."""

import socket
from pathlib import Path

import pytest
from upath import UPath

from topicscope.errors import InputError
from topicscope.records.output import working_folder
from topicscope.records.places import address, kind_of, shown, url_of, without_secrets
from topicscope.records.storage import check_folder

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("s3://key:s3cr3t@bucket/x", "s3://bucket/x"),
        ("s3://key:p@s3cr3t@bucket/x", "s3://bucket/x"),
        ("s3:/key:s3cr3t@bucket/x", "s3:/bucket/x"),
        ("https://host/x.jsonl?token=s3cr3t' failed", "https://host/x.jsonl' failed"),
        ("simplecache::https://u:s3cr3t@host/x", "simplecache::https://host/x"),
        ("from ftp://u:s3cr3t@a/x to ftp://u:s3cr3t@b/y", "from ftp://a/x to ftp://b/y"),
        ("s3://bucket/a@b.jsonl", "s3://bucket/a@b.jsonl"),
        ("C:/me@home/x.jsonl", "C:/me@home/x.jsonl"),
        ("--corpus=texts/what?.jsonl", "--corpus=texts/what?.jsonl"),
        ("mail me@there.org: ask?", "mail me@there.org: ask?"),
    ],
)
def test_passwords_and_queries_are_left_out_and_nothing_else(text: str, rest: str) -> None:
    assert without_secrets(text) == rest


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (Path("s3://key:s3cr3t@bucket/x"), "lost a slash"),
        ("simplecache::s3://key:s3cr3t@bucket/x", "chain of URLs"),
        ("zip://x.jsonl::s3://key:s3cr3t@bucket/x.zip", "chain of URLs"),
        ("ftp://user:s3cr3t/x@host/x", "cannot be used"),
        ("nope://user:s3cr3t@host/x", "unknown kind"),
        ("memory://", "no name"),
        ("memory:///", "no name"),
        ("file://", "no name"),
        ("file:///", "no name"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(location: str | Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        url_of(location)
    assert SECRET not in str(raised.value)


def test_a_file_may_have_colons_in_its_name() -> None:
    assert url_of("std::vector.jsonl") is None
    assert url_of(Path("a:/b")) is None


@pytest.mark.parametrize(
    "url",
    ["ftp://me:pa%40ss@host:21/a/x", "ftp://host/x", "webhdfs://me@host:9870/a/x", "memory://a/x", "file:///a/x"],
)
def test_from_its_address_the_same_url_is_made(url: str) -> None:
    one = url_of(url)
    assert one is not None
    other = url_of(address(one))
    assert other is not None
    assert (other.protocol, other.path) == (one.protocol, one.path)
    given = {name: value for name, value in one.storage_options.items() if name != "port" or value != 21}
    assert given.items() <= dict(other.storage_options).items()
    assert "pa%40ss" not in shown(one)


def test_hosts_have_working_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path))
    places = [working_folder(f"ftp://{user}{host}/a/x") for host in ("one", "two") for user in ("", "me:pw@")]
    assert len(set(places)) == 2, "the same place, whoever asks"


@pytest.mark.parametrize("url", ["webhdfs://host/a", "ftp://host/a", "memory://a", "https://host/a?b=/c"])
def test_work_is_kept_inside_the_cache(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--overwrite clears the folder around it."""
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path))
    folder = working_folder(url)
    assert folder.parent.parent == tmp_path / "runs"
    assert folder.name == "a"


@pytest.mark.parametrize("url", ["memory://a/..", "memory://.."])
def test_a_folder_above_is_no_name(url: str) -> None:
    with pytest.raises(InputError, match="no name"):
        check_folder(UPath(url), "record.json", overwrite=True)


def test_a_server_that_does_not_answer_is_not_a_file_that_is_missing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        with pytest.raises(InputError, match="cannot be used"):
            kind_of(UPath(f"http://127.0.0.1:{taken.getsockname()[1]}/x.jsonl"))
