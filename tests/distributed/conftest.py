"""One small Ray cluster for all tests that do not break it, and what they read."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import topicscope
from cli.probe_files import OPTIONS_OF_SHARDS, corpus_of_shards, save_model, undrawn

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "OMP_NUM_THREADS": "1"}
# Workers must find the work that tests give them (cluster_work).
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
TOKEN = "0123456789abcdef" * 4  # of the cluster of `head`
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


@pytest.fixture(scope="session")
def whole(model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of one process, which a cluster must give as well."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with undrawn():
        topicscope.probe(str(model), documents=corpus, **OPTIONS_OF_SHARDS, out=out)
    return out


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    with undrawn():
        yield


def free_port() -> int:
    """A port that Ray does not keep for workers (10002 to 19999)."""
    while True:
        with socket.socket() as place:
            place.bind(("127.0.0.1", 0))
            port = int(place.getsockname()[1])
        if not 10001 < port < 20000:
            return port


@pytest.fixture
def head() -> Iterator[str]:
    """The address of a cluster that wants a token, which this user has."""
    pytest.importorskip("ray")
    port, ray = free_port(), [sys.executable, "-m", "ray.scripts.scripts"]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        start = [*ray, "start", "--head", "--block", f"--port={free_port()}", f"--ray-client-server-port={port}"]
        start += ["--num-cpus=2", "--include-dashboard=false", "--object-store-memory=200000000"]
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        process = subprocess.Popen(
            [*start, f"--temp-dir={folder}"],
            env=os.environ | secret,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            address = f"ray://127.0.0.1:{port}"
            for _ in range(120):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(1)
            yield address
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
