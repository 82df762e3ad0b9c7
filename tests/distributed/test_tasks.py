"""Jobs on a cluster: each once, whoever does it, and what fails is said."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from distributed import job_work
from topicscope.distributed import Cluster, tasks
from topicscope.distributed.pool import TRIES
from topicscope.errors import InputError, RunError
from topicscope.runner import Failed, Finished, Here, Job, Runner

pytestmark = pytest.mark.cluster


def jobs(folder: Path | None, numbers: Any) -> list[Job]:
    return [Job(f"job {number}", (number, folder)) for number in numbers]


def values(runner: Runner, work: Any, listed: list[Job]) -> dict[str, Any]:
    done = list(runner.run(work, listed))
    assert all(isinstance(one, Finished) for one in done), done
    assert len(done) == len(listed)
    return {one.name: one.value[0] for one in done if isinstance(one, Finished)}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_values_of_this_process(workers: int, ray: Any, tmp_path: Path) -> None:
    listed = jobs(tmp_path, range(11))
    with Cluster("auto", workers=workers) as cluster:
        assert isinstance(cluster, Runner)
        assert values(cluster, job_work.mean_of, listed) == values(Here(), job_work.mean_of, jobs(None, range(11)))
        [one] = cluster.run(job_work.mean_of, listed[:1])
        assert list(cluster.run(job_work.mean_of, [])) == []
    assert len(list(tmp_path.iterdir())) == 12, "each job once"
    assert isinstance(one, Finished)
    assert one.value[1] == 1, "one thread each"


def test_few_of_many_jobs_are_with_ray_at_once(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    most, original = 0, ray.wait

    def wait(references: list[Any], **more: Any) -> Any:
        nonlocal most
        most = max(most, len(references))
        return original(references, **more)

    monkeypatch.setattr(ray, "wait", wait)
    with Cluster("auto", workers=2) as cluster:
        values(cluster, job_work.mean_of, jobs(None, range(100)))
    assert most == 2


def test_a_job_whose_worker_is_killed_is_done_again(ray: Any, tmp_path: Path) -> None:
    with Cluster("auto", workers=2) as cluster:
        found = values(cluster, job_work.dies_once, jobs(tmp_path, range(4)))
    assert found == values(Here(), job_work.mean_of, jobs(None, range(4)))
    assert len(list(tmp_path.glob("1-*"))) == 2


def test_a_job_that_always_fails_is_given_up_after_the_others(ray: Any, tmp_path: Path) -> None:
    with Cluster("auto", workers=1) as cluster:
        *others, last = cluster.run(job_work.fails, jobs(tmp_path, (1, 3, 4)))
    assert {one.name for one in others if isinstance(one, Finished)} == {"job 3", "job 4"}
    assert last == Failed("job 1", f"ValueError: one is too many (tried {TRIES} times)")
    assert len(list(tmp_path.glob("1-*"))) == TRIES


def test_bad_input_ends_the_whole_with_its_own_words(ray: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"(?s)^bad two.*expected: not two") as caught,
        Cluster("auto", workers=1) as cluster,
    ):
        list(cluster.run(job_work.fails, jobs(tmp_path, (2, 3, 4, 5))))
    assert caught.value.summary == "bad two"
    assert not list(tmp_path.glob("5-*"))


def test_a_cluster_that_lost_all_its_machines_is_not_waited_for_for_ever(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_S", 0.5)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": False, "Resources": {"CPU": 4.0}}])
    with Cluster("auto", workers=1) as cluster, pytest.raises(RunError, match=r"(?s)no room.*--resume"):
        list(cluster.run(job_work.slow, jobs(tmp_path, (1,))))


def test_leaving_ends_what_runs(ray: Any, tmp_path: Path) -> None:
    """As Ctrl-C does: the loop over what is done ends, and with it the jobs."""
    with Cluster("auto", workers=2) as cluster:
        done = cluster.run(job_work.slow, jobs(tmp_path, range(9)))
        with pytest.raises(KeyboardInterrupt):
            interrupt_after(done, tmp_path)
    processes = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(processes) == 2
    until = time.monotonic() + 30
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, processes))


def interrupt_after(done: Any, folder: Path) -> None:
    import _thread
    import threading

    def watch() -> None:
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.05)
        _thread.interrupt_main()

    threading.Thread(target=watch, daemon=True).start()
    for _ in done:
        pass


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
