"""What is said where no cluster can be had; Ray itself is needed only by the tests that are marked so."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from topicscope.cli import run
from topicscope.distributed import Cluster, connection
from topicscope.distributed.connection import check_address
from topicscope.errors import InputError


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


def test_options_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="--workers"):
        Cluster("local", workers=0)
    for share in (-1, 1.5, float("nan")):
        with pytest.raises(InputError, match="--gpus-per-worker"):
            Cluster("local", gpus_per_worker=share)
    assert run(["probe", "bert-base-uncased", "--workers", "2", "--out", str(tmp_path / "run")]) == 2
    assert "--cluster local" in capsys.readouterr().err


@pytest.mark.cluster
def test_a_machine_of_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", raises)
    with pytest.raises(InputError, match=r"(?s)cannot be reached.*no running Ray.*ray start"), Cluster("auto"):
        pass


def raises(**_: Any) -> None:
    raise ConnectionError("no running Ray instance\nand more")


@pytest.mark.cluster
def test_an_address_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    waiting = threading.Event()
    monkeypatch.setattr(ray, "init", lambda **_: waiting.wait(60))
    monkeypatch.setattr(ray, "shutdown", waiting.set)
    monkeypatch.setattr(connection, "PATIENCE_S", 0.1)
    with pytest.raises(InputError, match=r"(?s)cannot be reached.*no answer within"), Cluster("ray://127.0.0.1:1"):
        pass


@pytest.mark.cluster
def test_ray_does_not_print_deaths_of_workers_where_results_go(capsys: pytest.CaptureFixture[str]) -> None:
    worker = pytest.importorskip("ray._private.worker")
    for number in (1, 2):  # other words, as Ray leaves out what it has said before
        message = {"lines": [f"A {'w' * number}orker died"], "pid": "raylet", "is_err": False}
        with connection._quiet():
            worker.print_to_stdstream(message, ignore_prefix=False)
        assert capsys.readouterr() == ("", "")
        worker.print_to_stdstream(message, ignore_prefix=False)
        assert "orker died" in capsys.readouterr().out
