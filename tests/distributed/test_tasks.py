"""Tasks of a cluster: each once, whoever does it, few at a time, and what fails is said."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from distributed import cluster_work
from topicscope.distributed import Cluster, tasks
from topicscope.distributed.tasks import Shared, Task, Tasks
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
        assert values(cluster, cluster_work.mean_of, listed) == values(
            Here(), cluster_work.mean_of, jobs(None, range(11))
        )
        [one] = cluster.run(cluster_work.mean_of, listed[:1])
        assert list(cluster.run(cluster_work.mean_of, [])) == []
    assert len(list(tmp_path.iterdir())) == 12, "each job once"
    assert isinstance(one, Finished)
    assert one.value[1] == 1, "one thread each"


def test_few_tasks_and_blocks_are_with_ray_at_once(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, put, taken, original = [0], 0, 0, ray.put

    def counted(value: Any) -> Any:
        nonlocal put
        put += isinstance(value, bytes)
        return original(value)

    monkeypatch.setattr(ray, "put", counted)
    waits = ray.wait
    monkeypatch.setattr(ray, "wait", lambda these, **more: running.append(len(these)) or waits(these, **more))
    listed = [
        Task(n, cluster_work.total, (), (Shared(lambda: [7]),), lambda n: [bytes([n])] * (1 + n % 3)) for n in range(30)
    ]
    for one in Tasks(ray, 2, 0.0).outcomes(listed):
        number = one.name
        taken += 1 + number % 3
        assert one == Finished(number, 7 + number * (1 + number % 3))
        assert put - taken <= 4
    assert max(running) == 2
    # A task of more blocks than that is sent alone.
    [outcome] = Tasks(ray, 1, 0.0).outcomes(
        [Task(0, cluster_work.total, (), (Shared(lambda: [7]),), lambda _: [b"1"] * 9)]
    )
    assert outcome == Finished(0, 7 + 9 * ord("1"))


def test_outcomes_in_order_come_in_order_and_tasks_are_taken_no_further_ahead(ray: Any) -> None:
    taken = 0

    def listed() -> Any:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield Task(number, cluster_work.mean_of, (number,))

    found = Tasks(ray, 2, 0.0).outcomes(listed(), in_order=True)
    assert next(found).name == 0
    assert taken <= 5
    assert [outcome.name for outcome in found] == list(range(1, 20))


def test_a_job_whose_worker_is_killed_is_done_again(ray: Any, tmp_path: Path) -> None:
    with Cluster("auto", workers=2) as cluster:
        found = values(cluster, cluster_work.dies_once, jobs(tmp_path, range(4)))
    assert found == values(Here(), cluster_work.mean_of, jobs(None, range(4)))
    assert len(list(tmp_path.glob("1-*"))) == 2


def test_what_ray_lost_is_sent_again(ray: Any, tmp_path: Path) -> None:
    task = Task("a", cluster_work.loses_once, (tmp_path,), (Shared(lambda: [1, 2]),), lambda _: [b"\1", b"\2"])
    assert list(Tasks(ray, 1, 0.0).outcomes([task])) == [Finished("a", 6)]
    assert (tmp_path / "lost").exists()


def test_a_job_that_fails_or_kills_its_workers_is_named_with_the_reason(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RETRIES", 1)  # each costs a worker
    with Cluster("auto", workers=1) as cluster:
        done = {one.name: one for one in cluster.run(cluster_work.fails, jobs(tmp_path, (1, 3, 4)))}
        assert done.pop("job 1") == Failed("job 1", "ValueError: one is too many")
        assert all(isinstance(one, Finished) for one in done.values())
        [killed] = cluster.run(cluster_work.dies, jobs(tmp_path, (1,)))
    assert isinstance(killed, Failed)
    assert killed.reason.endswith("(tried 2 times)")


def test_bad_input_ends_the_whole_with_its_own_words(ray: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"(?s)^bad two.*expected: not two") as caught,
        Cluster("auto", workers=1) as cluster,
    ):
        list(cluster.run(cluster_work.fails, jobs(tmp_path, (2, 3, 4, 5))))
    assert caught.value.summary == "bad two"
    assert not list(tmp_path.glob("5-*"))


def test_a_cluster_that_lost_all_its_machines_is_not_waited_for_for_ever(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_S", 0.5)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": False, "Resources": {"CPU": 4.0}}])
    with Cluster("auto", workers=1) as cluster, pytest.raises(RunError, match=r"(?s)no room.*--resume"):
        list(cluster.run(cluster_work.slow, jobs(tmp_path, (1,))))


def test_leaving_ends_what_runs(ray: Any, tmp_path: Path) -> None:
    """As Ctrl-C does: the loop over what is done ends, and with it the jobs."""
    with Cluster("auto", workers=2) as cluster:
        done = cluster.run(cluster_work.slow, jobs(tmp_path, range(9)))
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
