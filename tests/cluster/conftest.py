"""One small Ray cluster for all tests that do not break it, and what they read."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.probe_files import jsonl, save_model, texts

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "OMP_NUM_THREADS": "1"}
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}


def started(start: Callable[[], Any]) -> Any:
    """What `start` gives, after at most two failures: a busy machine needs longer than Ray allows."""
    for _ in range(2):
        try:
            return start()
        except Exception:
            sys.modules["ray"].shutdown()
    return start()


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """Ray with room for four workers, whatever this machine has."""
    ray = pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        started(
            lambda: ray.init(address="local", num_cpus=4, object_store_memory=200_000_000, _temp_dir=folder, **QUIET)
        )
        yield ray
        ray.shutdown()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny-bert")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a document of more units than a shard asks for, in the middle."""
    documents = texts(40)
    documents[12] = " ".join(texts(16, seed=1))
    return jsonl(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents)


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Drawing takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicscope.report.figures.to_png", lambda *_, **__: b"")
        patch.setattr("topicscope.report.html.write_probe", lambda folder: (folder / "report.html").touch())
        yield
