"""A probe on a Ray cluster whose machines share nothing but a storage: the same numbers, and faults before any work."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS
from cluster.test_cluster_probe import Kills
from probing.test_probe_resume import same
from topicscope.cluster import Cluster, exchange, preflight
from topicscope.errors import InputError
from topicscope.probing.result import ProbeResult
from topicscope.records.cache import cache_folder
from topicscope.records.output import working_folder

pytestmark = pytest.mark.cluster
OPTIONS = OPTIONS_OF_SHARDS | {"exclude_sinks": False, "controls": 0, "profile": 0}


@pytest.fixture(autouse=True)
def _tokens_of_the_workers_are_removed() -> Iterator[None]:
    """They keep them in the cache that they were started with."""
    root = cache_folder() / "tokens"
    before = set(root.glob("tokens-*"))
    yield
    for folder in set(root.glob("tokens-*")) - before:
        shutil.rmtree(folder)


def run(model: Path, corpus: Path, out: str, **more: Any) -> Any:
    with Cluster("auto", workers=2) as cluster:
        return topicscope.probe(str(model), documents=corpus, **OPTIONS, out=out, cluster=cluster, **more)


def hidden(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What workers are told: they must never hear of the driver's folder."""
    told: list[str] = []
    give = topicscope.cluster.pool.Pool.give

    def heard(pool: Any, work: Any, *arguments: Any) -> bool:
        told.append(arguments[-1])
        return give(pool, work, *arguments)

    monkeypatch.setattr("topicscope.cluster.pool.Pool.give", heard)
    return told


def test_by_way_of_a_storage_the_bits_of_one_process(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topicscope.probe(str(model), documents=corpus, **OPTIONS, out=tmp_path / "whole")
    told, collected, original = hidden(monkeypatch), [], exchange.collect_shard

    def fails_once(url: Any, folder: Path) -> str | None:
        """The first shard cannot be fetched the first time."""
        collected.append(str(url))
        return "the network is down" if len(collected) == 1 else original(url, folder)

    monkeypatch.setattr("topicscope.cluster.readers.collect_shard", fails_once)
    url = f"file://{tmp_path}/store/run"
    kills = Kills("reading", 1)
    result = run(model, corpus, url, progress=kills)
    assert result.complete
    assert len(kills.killed) == 1
    assert told
    assert all(place.startswith(f"{url}.unfinished/") for place in told)
    same(tmp_path / "whole", tmp_path / "store" / "run")
    assert len(ProbeResult.load(url).documents) == len(result.documents)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["run"]
    assert not working_folder(url).parent.exists()


def test_workers_that_cannot_write_to_the_url_are_named_before_any_work(
    ray: Any, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"(?s)workers cannot write.*memory://bucket/run\.unfinished.*credentials"):
        run(model, corpus, "memory://bucket/run")  # the memory of another process
    original = preflight._look_around

    def elsewhere() -> Any:
        look = original()
        return lambda packages, question, answer: look(packages, question, answer.replace("file://", "nowhere://"))

    monkeypatch.setattr(preflight, "_look_around", elsewhere)
    url = f"file://{tmp_path}/store/run"
    with pytest.raises(InputError, match=r"(?s)workers cannot write to the output folder.*nowhere"):
        run(model, corpus, url)
    assert not working_folder(url).parent.exists()
