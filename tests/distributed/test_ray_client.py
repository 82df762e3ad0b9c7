"""A Ray cluster reached from elsewhere, by ray://, as people do it: `ray start`, then the command line."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.probe_files import OPTIONS_OF_SHARDS, WORDS_CSV
from distributed.conftest import TOKEN

pytestmark = [pytest.mark.cluster, pytest.mark.long]
TOPICSCOPE = [sys.executable, "-c", "from topicscope.cli import main; main()"]


def probe(command: list[str], token: str) -> "subprocess.CompletedProcess[str]":
    own = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"} | {"RAY_AUTH_TOKEN": token}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=own)


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


@pytest.mark.parametrize("listens", [True, False])
def test_an_address_that_is_no_cluster_is_told_within_a_minute(
    listens: bool, model: Path, corpus: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        started = time.monotonic()
        done = probe([*TOPICSCOPE, "probe", str(model), "--corpus", str(corpus), "--cluster", address], "f" * 64)
    assert time.monotonic() - started < 90, "30 s, and the start of Python on a busy machine"
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
