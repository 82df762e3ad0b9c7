"""Tokens and shards by way of a storage: each arrives as it was sent, or not at all. No Ray is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

from storages import Faulty, clear, fault, names
from topicscope.cluster.exchange import collect_shard, leave_shard, send_tokens, tokens_here
from topicscope.errors import InputError
from topicscope.probing.shards import STATE
from topicscope.records.places import url_of

TOKENS = {"header.json": b"{}", "ids.npy": b"12345"}
OTHERS = {"header.json": b"{}", "ids.npy": b"54321"}  # of the same sizes
SHARD = {"documents.parquet": b"rows", STATE: b"sums"}


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "cache"))
    clear()
    yield
    clear()


@pytest.fixture
def exchange() -> UPath:
    found = url_of("faulty://bucket/out.unfinished")
    assert found is not None
    return found


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def files_in(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_tokens_are_those_that_were_sent_and_are_fetched_once(tmp_path: Path, exchange: UPath) -> None:
    places = {}
    for name, files in (("one", TOKENS), ("two", OTHERS)):
        places[name] = send_tokens(folder(tmp_path / name, files), exchange)
        here, owner = tokens_here(places[name])
        assert files_in(here) == files
        assert owner is None, "this machine keeps them"
    assert places["one"] != places["two"]
    with fault("forbidden"):
        assert files_in(tokens_here(places["one"])[0]) == TOKENS, "from the cache"
    assert tokens_here(str(tmp_path / "one")) == (tmp_path / "one", None)


def test_tokens_that_were_sent_in_part_are_sent_again(tmp_path: Path, exchange: UPath) -> None:
    here = folder(tmp_path / "one", TOKENS)
    with fault("full", 1), pytest.raises(InputError, match="connection was reset"):
        send_tokens(here, exchange)
    assert len(names(str(exchange))) == 1
    place = send_tokens(here, exchange)
    assert files_in(tokens_here(place)[0]) == TOKENS
    with fault("full", 0):
        assert send_tokens(here, exchange) == place, "there is nothing left to send"


def test_half_fetched_tokens_are_not_kept(tmp_path: Path, exchange: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    place = send_tokens(folder(tmp_path / "one", TOKENS), exchange)
    with monkeypatch.context() as broken:
        broken.setattr(Faulty, "get_file", lambda system, path, here: Path(here).write_bytes(b"1"))
        with pytest.raises(InputError, match="bytes arrived"):
            tokens_here(place)
    assert files_in(tokens_here(place)[0]) == TOKENS


def test_where_no_cache_can_be_written_tokens_go_with_their_owner(
    tmp_path: Path, exchange: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = send_tokens(folder(tmp_path / "one", TOKENS), exchange)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "file"))
    here, owner = tokens_here(place)
    assert files_in(here) == TOKENS
    del owner
    assert not here.exists()


def test_a_shard_moves_whole_or_not_at_all(tmp_path: Path, exchange: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, place, here = folder(tmp_path / "shard", SHARD), exchange / "model" / "shard-1", tmp_path / "here"
    with fault("full", 1), pytest.raises(InputError, match="connection was reset"):
        leave_shard(shard, str(place))
    assert names(str(place)) == ["documents.parquet"], "its state comes last"
    leave_shard(shard, str(place))
    with monkeypatch.context() as broken:
        broken.setattr(Faulty, "get_file", lambda system, path, here: Path(here).write_bytes(b"1"))
        assert "bytes arrived" in str(collect_shard(place, here))
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("shard", "cache")] == []
    assert collect_shard(place, here) is None
    assert files_in(here) == SHARD
    assert names(str(exchange)) == [], "what was fetched is removed"
