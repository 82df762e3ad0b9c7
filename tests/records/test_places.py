"""URLs as users write them: what is refused and what is said of them; results are never at one."""

import socket
from pathlib import Path
from typing import Any

import pytest

import topicscope
from topicscope.errors import InputError
from topicscope.experiments import SweepResult
from topicscope.lab import load_recipe
from topicscope.monitoring import CheckpointSeries
from topicscope.probing.results import ProbeResult
from topicscope.records import kind_of, output_path, place_of, result_path, shown, without_secrets
from topicscope.records.urls import url_of

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
    ("text", "protocol", "path", "said"),
    [
        ("ftp://me:pa%40ss@host:21/a/x", "ftp", "/a/x", "ftp://host:21/a/x"),
        ("webhdfs://me@host:9870/a/x", "webhdfs", "/a/x", "webhdfs://host:9870/a/x"),
        ("memory://a/x/", "memory", "/a/x", "memory://a/x"),
        ("HTTPS://host/x?token=s3cr3t", "https", "https://host/x?token=s3cr3t", "https://host/x"),
    ],
)
def test_a_url_keeps_what_it_was_given_and_says_it_without_secrets(
    text: str, protocol: str, path: str, said: str
) -> None:
    url = url_of(text)
    assert url is not None
    assert (url.text, url.protocol, url.path) == (protocol + text.rstrip("/")[len(protocol) :], protocol, path)
    assert str(url) == shown(url) == said
    assert repr(url) == f"Url({said!r})"


def test_a_url_that_went_through_pathlib_has_lost_a_slash() -> None:
    for lost in (Path("s3://bucket/x"), Path("memory://bucket/x.txt")):
        with pytest.raises(InputError, match=r"(?s)lost a slash.*as a string"):
            place_of(lost)
    assert place_of(Path("odd:/x")) == Path("odd:/x")


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:s3cr3t@bucket/run",
        Path("s3://key:s3cr3t@bucket/run"),
        "memory://run?token=s3cr3t",
        "nope://key:s3cr3t@host/run",
        "simplecache::s3://key:s3cr3t@bucket/run",
        "file:///run?s3cr3t",
    ],
)
def test_a_result_is_neither_written_to_a_url_nor_read_from_one(url: str | Path) -> None:
    for take, words in (
        (output_path, "(?s)received: .*a folder of this machine.*then copy it, .*aws s3 sync"),
        (result_path, "(?s)received: .*a folder of this machine.*copy the folder .*aws s3 sync"),
    ):
        with pytest.raises(InputError, match=words) as raised:
            take(url)
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize("path", ["results/run", "C:/x", "odd:name", "odd:/x", "a::b", "~/x", ""])
def test_what_is_no_url_is_a_path_as_it_is(path: str) -> None:
    for take in (output_path, result_path):
        assert take(path) == take(Path(path)) == Path(path)


def test_from_python_a_url_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the model, the text, or the recipe is looked at: none of these exists."""
    monkeypatch.chdir(tmp_path)
    url, missing = "s3://bucket/run", tmp_path / "missing"
    recipe = load_recipe(Path(__file__).parents[2] / "recipes" / "value-matrix.toml", ())
    calls: list[Any] = [
        lambda: topicscope.probe(str(missing), documents=missing, out=url),
        lambda: topicscope.probe_checkpoints(str(missing), missing, out=url),
        lambda: topicscope.train(recipe, seeds=0, out=url),
        lambda: topicscope.sweep({"recipe": "missing.toml"}, out=url),
        lambda: topicscope.reproduce(["missing"], out=url),
        lambda: topicscope.load(url),
        lambda: topicscope.compare(url, url),
        lambda: ProbeResult.load(url),
        lambda: CheckpointSeries.load(url),
        lambda: SweepResult.load(url),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"(?s)this machine only.*s3://bucket/run"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_not_a_file_that_is_missing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        url = url_of(f"http://127.0.0.1:{taken.getsockname()[1]}/x.jsonl")
        assert url is not None
        with pytest.raises(InputError, match="cannot be used"):
            kind_of(url)
