"""Find Ray, connect to it or start it on this machine, and say clearly what is wrong when that fails."""

import logging
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from topicscope.errors import InputError, RunError

# For a cluster to answer. Ray itself gives up after half a minute or, where a cluster has ended, after three.
PATIENCE_S = 50.0
STARTS = 3


def require_ray() -> Any:
    """The module ray, set up to be quiet.

    Raises:
        InputError: it is not installed.
    """
    # Read when ray is first imported: no report of use, no environments built by uv, and no task that needs more
    # memory than there is tried for ever.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_task_oom_retries", "3")
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
    """Make sure that an address has a known form.

    Raises:
        InputError: it has not.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    named = address.startswith("ray://") and host and port.isdecimal() and 0 < int(port) < 65536
    if address not in ("local", "auto") and not named:
        raise InputError(
            "bad option --cluster",
            received=address,
            expected="local (this machine), auto (the cluster that this machine belongs to) or ray://HOST:PORT",
        )


@contextmanager
def connected(address: str, workers: int | None) -> Iterator[Any]:
    """The module ray, connected to the cluster at `address` for the length of the block.

    "local" starts one here for `workers` processes, which ends with the block and with this process; one that is there
    already is only joined. If this process is connected to Ray before, "local" and "auto" use and keep that connection.

    Raises:
        InputError: Ray is missing, or the cluster cannot be reached within a minute.
        RunError: Ray cannot be started here.
    """
    check_address(address)
    with ExitStack() as end:
        if address.startswith("ray://") and _has_token() and "RAY_AUTH_MODE" not in os.environ:
            # Ray's client, unlike its other parts, does not send a token that is there unless it is told to.
            os.environ["RAY_AUTH_MODE"] = "token"
            end.callback(os.environ.pop, "RAY_AUTH_MODE", None)
        ray = require_ray()
        if ray.is_initialized() and not address.startswith("ray://"):
            yield ray
            return
        end.enter_context(_quiet())
        if address == "local":
            # A folder of its own, with a short path: those of sockets have at most 107 characters.
            folder = tempfile.mkdtemp(prefix="ray-", dir=os.environ.get("RAY_TMPDIR") or "/tmp")
            end.callback(shutil.rmtree, folder, ignore_errors=True)
            end.callback(ray.shutdown)
            _start(ray, num_cpus=max(workers or 0, os.cpu_count() or 1), include_dashboard=False, _temp_dir=folder)
        else:
            end.callback(ray.shutdown)
            _reach(ray, address)
        yield ray


def _start(ray: Any, **options: Any) -> None:
    """Start Ray on this machine, in this thread, with which all that it starts will end."""
    for attempt in range(STARTS):
        failure = _attempt(ray, "local", **options)
        if failure is None:
            return
        ray.shutdown()  # Ray allows its helpers 15 s, which a busy machine exceeds
        if attempt == STARTS - 1:
            raise RunError(
                "Ray cannot be started on this machine", received=_first_line(failure), advice="run without --cluster"
            ) from failure


def _reach(ray: Any, address: str) -> None:
    """Connect in another thread, which is left alone where there is no answer."""
    outcome: list[Exception | None] = []
    thread = threading.Thread(target=lambda: outcome.append(_attempt(ray, address)), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    failure = outcome[0] if outcome else TimeoutError(f"no answer within {PATIENCE_S:.0f} s")
    if failure is not None:
        raise InputError(
            "the cluster cannot be reached",
            received=address,
            where=_first_line(failure),
            advice="start one by `ray start --head` (and look for the address it prints), or use --cluster local; the "
            "Python and Ray of both sides must be the same, and a cluster with a token wants that one here: "
            "~/.ray/auth_token, or RAY_AUTH_TOKEN",
        ) from failure


def _attempt(ray: Any, address: str, **options: Any) -> Exception | None:
    """Why the connection failed, in whatever type Ray raises; None where it did not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray's own future
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.CRITICAL, configure_logging=False, **options
            )
    except Exception as error:
        return error
    return None


@contextmanager
def _quiet() -> Iterator[None]:
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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
