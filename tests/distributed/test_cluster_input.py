"""What is said where no cluster can be had; Ray itself is needed only by the tests that are marked so."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from topicscope.cli import run
from topicscope.distributed import Cluster
from topicscope.distributed.connection import check_address, quiet
from topicscope.errors import InputError

ENTER = """
import sys, time
from topicscope.distributed import Cluster
from topicscope.errors import InputError
import ray
started = time.monotonic()
try:
    with Cluster(sys.argv[1]):
        print("connected")
except InputError as error:
    print(time.monotonic() - started, error)
"""


def entered(address: str) -> tuple[float, str]:
    """Seconds until the error, and its text, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ENTER, address], capture_output=True, text=True, check=True, timeout=120
    )
    seconds, text = done.stdout.split(maxsplit=1)
    return float(seconds), text


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install \"topicscope\[cluster\]\""), Cluster("local"):
        pass


@pytest.mark.parametrize(
    "address", ["", "cluster", "localhost:6379", "ray://", "ray://host", "ray://:1", "ray://host:x", "ray://host:70000"]
)
def test_an_address_of_no_known_form_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="--cluster"):
        check_address(address)


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(InputError, match=r"(?s)cannot be reached.*--cluster local"):
        check_address(address)
    assert time.monotonic() - started < 10


def test_options_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="--workers"):
        Cluster("local", workers=0)
    for share in (-1, 1.5, float("nan")):
        with pytest.raises(InputError, match="--gpus-per-worker"):
            Cluster("local", gpus_per_worker=share)
    assert run(["probe", "bert-base-uncased", "--workers", "2", "--out", str(tmp_path / "run")]) == 2
    assert "--cluster local" in capsys.readouterr().err


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """The address of a server that says `answer` to whoever comes, and hangs up; None: it says nothing and waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                if answer is None:
                    time.sleep(15)
                else:
                    connection.recv(1000)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"ray://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0"])
def test_what_listens_and_is_not_ray_is_no_cluster(answer: bytes | None) -> None:
    with answering(answer) as address:
        started = time.monotonic()
        with pytest.raises(InputError, match="cannot be reached"):
            check_address(address)
        assert time.monotonic() - started < 10


def test_what_answers_as_ray_does_may_be_a_cluster() -> None:
    with answering(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as address:
        check_address(address)


@pytest.mark.cluster
def test_a_machine_of_no_cluster() -> None:
    pytest.importorskip("ray")
    seconds, text = entered("auto")
    assert "cannot be reached" in text
    assert seconds < 16


@pytest.mark.cluster
def test_ray_does_not_print_deaths_of_workers_where_results_go(capsys: pytest.CaptureFixture[str]) -> None:
    worker = pytest.importorskip("ray._private.worker")
    for number in (1, 2):  # other words, as Ray leaves out what it has said before
        message = {"lines": [f"A {'w' * number}orker died"], "pid": "raylet", "is_err": False}
        with quiet():
            worker.print_to_stdstream(message, ignore_prefix=False)
        assert capsys.readouterr() == ("", "")
        worker.print_to_stdstream(message, ignore_prefix=False)
        assert "orker died" in capsys.readouterr().out
