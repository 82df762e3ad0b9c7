"""One small Ray cluster for all tests that do not break it, and what they read."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.probe_files import corpus_of_shards, save_model, undrawn

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "OMP_NUM_THREADS": "1"}
# Workers must find the work that tests give them (job_work).
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
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
    return corpus_of_shards(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    with undrawn():
        yield
