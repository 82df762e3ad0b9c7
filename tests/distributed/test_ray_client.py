"""A Ray cluster reached from elsewhere, by ray://, as people do it: `ray start`, then the command line."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cli.probe_files import OPTIONS_OF_SHARDS, WORDS_CSV
from topicscope.distributed.connection import check_address
from topicscope.errors import InputError

pytestmark = [pytest.mark.cluster, pytest.mark.long]
TOKEN = "0123456789abcdef" * 4
TOPICSCOPE = [sys.executable, "-c", "from topicscope.cli import main; main()"]


def probe(command: list[str], token: str) -> "subprocess.CompletedProcess[str]":
    own = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"} | {"RAY_AUTH_TOKEN": token}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=own)


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
                with suppress(InputError):
                    check_address(address)
                    break
                time.sleep(1)
            yield address
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_probe_by_ray_s_client_gives_the_bits_of_one_process(
    head: str, model: Path, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.csv").write_text(WORDS_CSV)
    command = [*TOPICSCOPE, "probe", str(model), "--corpus", str(corpus), "--topics", str(tmp_path / "words.csv")]
    command += ["--controls", "1", "--permutations", "20", "--shard-units", str(OPTIONS_OF_SHARDS["shard_units"])]
    for name, more in (("here", []), ("there", ["--cluster", head, "--workers", "2"])):
        done = probe([*command, "--out", str(tmp_path / name), *more], TOKEN)
        assert done.returncode == 0, done.stderr
    for name in ("documents.parquet", "moments.npz", "heads.csv"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name


def test_without_its_token_the_cluster_is_out_of_reach(head: str, model: Path, corpus: Path, tmp_path: Path) -> None:
    command = [*TOPICSCOPE, "probe", str(model), "--corpus", str(corpus), "--out", str(tmp_path / "run")]
    done = probe([*command, "--cluster", head], "f" * 64)
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert "token" in done.stderr
    assert not (tmp_path / "run").exists()
