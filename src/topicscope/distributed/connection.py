"""Find Ray, connect to it or start it on this machine, and say clearly what is wrong when that fails."""

import logging
import os
import shutil
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from topicscope.errors import InputError, RunError

PATIENCE_S = 10.0  # for a cluster to answer
# For a cluster that answers to start the process that serves this one; Ray's own limit is 30 s.
SERVING_S = 40.0
# How a conversation in HTTP/2 begins, which Ray's client speaks: fixed words, and a frame of settings, here empty.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # the kind of frame that every answer begins with
STARTS = 3
_STORE_BYTES = 200_000_000  # only lookups of topics travel through it


def require_ray() -> Any:
    """The module ray, set up to be quiet.

    Raises:
        InputError: it is not installed.
    """
    # Read when ray is first imported: no report of use, no environments built by uv.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "a cluster needs Ray",
            received="ray is not installed",
            advice='pip install "topicscope[cluster]"',
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    return ray


def check_address(address: str) -> None:
    """Make sure that an address has a known form and, where it names a host, that something listens there.

    Raises:
        InputError: it has not, or nothing that may be Ray answers within ten seconds.
    """
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not address.startswith("ray://") or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            "bad option --cluster",
            received=address,
            expected="local (this machine), auto (the cluster that this machine belongs to) or ray://HOST:PORT",
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S / 3) as connection:
            answered = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connection)
    except OSError as error:
        raise _unreachable(address, str(error)) from error
    if not answered:
        raise _unreachable(address, "what listens there is no Ray client server")


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side answers as Ray would, which is asked here since Ray's client waits much longer."""
    connection.sendall(_HELLO)
    answer = b""
    while len(answer) < 4:
        part = connection.recv(4 - len(answer))
        if not part:
            return False
        answer += part
    return answer[3] == _SETTINGS


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[Any]:
    """The module ray, connected to the cluster at `address` for the length of the block.

    "local" starts one here for `workers` processes, which ends with the block and with this process; one that is there
    already is only joined. If this process is connected to Ray before, "local" and "auto" use and keep that connection.

    Raises:
        InputError: Ray is missing, or the cluster cannot be reached: nobody answers within ten seconds.
        RunError: Ray cannot be started here.
    """
    check_address(address)
    if address.startswith("ray://") and _has_token():
        # Ray's client, unlike its other parts, does not send a token that is there unless it is told to.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray = require_ray()
    if ray.is_initialized() and not address.startswith("ray://"):
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": False}
    folder = None
    if address == "local":
        # A folder of its own, with a short path: those of sockets have at most 107 characters.
        folder = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
        options |= {
            "num_cpus": max(workers or 0, os.cpu_count() or 1),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            "_temp_dir": folder,
        }
    with quiet():
        try:
            if folder is None:
                patience = SERVING_S if address.startswith("ray://") else PATIENCE_S
                _within(patience, address, lambda: _connect(ray, address, options))
            else:
                _start(ray, options)
            yield ray
        finally:
            ray.shutdown()
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def quiet() -> Iterator[None]:
    """Ray prints deaths of workers on standard output, where results go, although nothing is to be logged there."""
    from ray._private import worker

    printing = getattr(worker, "print_to_stdstream", None)
    if printing is None:  # another Ray, which may do it in another way
        yield
        return
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = printing


def _has_token() -> bool:
    """Whether this user has a token of a Ray cluster."""
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (Path.home() / ".ray" / "auth_token").is_file()


def _start(ray: Any, options: dict[str, Any]) -> None:
    """Start Ray on this machine, in this thread, with which all that it starts will end."""
    for attempt in range(STARTS):
        try:
            _connect(ray, "local", options)
            return
        except Exception as error:  # of no particular type: Ray allows its helpers 15 s, which a busy machine exceeds
            ray.shutdown()
            if attempt == STARTS - 1:
                raise RunError(
                    "Ray cannot be started on this machine", received=_first_line(error), advice="run without --cluster"
                ) from error


def _connect(ray: Any, address: str, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own future
        ray.init(address=address, **options)


def _within(seconds: float, address: str, connect: Callable[[], None]) -> None:
    """Run `connect` for at most so long: what listens at the address may not be Ray, and never answer."""
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            connect()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise _unreachable(address, f"no answer within {seconds:.0f} s")
    if failures:
        raise _unreachable(address, _first_line(failures[0])) from failures[0]


def _unreachable(address: str, why: str) -> InputError:
    return InputError(
        "the cluster cannot be reached",
        received=address,
        where=why,
        advice="start one by `ray start --head` (and look for the address it prints), or use --cluster local; the "
        "Python and Ray of both sides must be the same, and a cluster with a token wants that one here: "
        "~/.ray/auth_token, or RAY_AUTH_TOKEN",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
