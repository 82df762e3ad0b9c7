"""The folder of a run under way: what stays after which end, and who may touch it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topicscope.errors import InputError, RunError
from topicscope.records import LOCK, UnfinishedRun, folder_lock, growing_run, unfinished_run
from topicscope.records.contents import Layout
from topicscope.records.files import HALF_WRITTEN

NAMES = {"model": "a", "options": [1, None]}
LAYOUT = Layout("topicscope test", ("record.json",), ("record.json", "shard", "part/shard", "x"))


def staged(run: UnfinishedRun, name: str = "x", text: str = "1") -> None:
    (run.staging / name).parent.mkdir(parents=True, exist_ok=True)
    (run.staging / name).write_text(text)


def dying(target: Path, error: BaseException) -> None:
    """A run that dies with something done."""
    with unfinished_run(target, LAYOUT) as run:
        run.require_same(NAMES)
        staged(run, "shard", "precious")
        raise error


def leave_work(target: Path) -> Path:
    with pytest.raises(ZeroDivisionError):
        dying(target, ZeroDivisionError())
    return target.with_name(f"{target.name}.unfinished")


def test_a_run_that_ends_well_leaves_only_its_result(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run"
    with unfinished_run(target, LAYOUT) as run:
        assert not run.resumed
        staged(run)
        run.publish()
    assert [p.name for p in target.parent.iterdir()] == ["run"]
    assert (target / "x").read_text() == "1"
    with pytest.raises(InputError, match="not empty"), unfinished_run(target, LAYOUT):
        pass


@pytest.mark.parametrize("name", [".", "absent/../run", "run/", "../here/run"])
def test_every_spelling_of_a_folder_is_fine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out at the end, it would have cost the whole run."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    target = (tmp_path / "here" / name).resolve()
    with unfinished_run(Path(name), LAYOUT) as run:
        staged(run)
        run.publish()
    assert (target / "x").read_text() == "1"
    assert {p.name for p in tmp_path.rglob("*")} <= {"here", "run", "x", "files.json"}


def test_bad_input_or_nothing_done_leaves_nothing_at_all(tmp_path: Path) -> None:
    for error in (InputError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "no space")):
        with (
            pytest.raises((InputError, KeyboardInterrupt, RunError)),
            unfinished_run(tmp_path / "a" / "b" / "run", LAYOUT),
        ):
            raise error
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError):
        dying(tmp_path / "a" / "run", InputError("the work of an input that cannot be used is worth nothing"))
    assert list(tmp_path.iterdir()) == []


def test_what_was_done_stays_and_can_be_gone_on_with(tmp_path: Path) -> None:
    target = tmp_path / "run"
    work = leave_work(target)
    with pytest.raises(InputError, match=r"(?s)not finished.*--resume.*--overwrite"), unfinished_run(target, LAYOUT):
        pass
    with pytest.raises(InputError, match="another one"), unfinished_run(target, LAYOUT, resume=True) as run:
        run.require_same(NAMES | {"model": "b"})
    assert (work / "result" / "shard").read_text() == "precious", "bad input to a resumed run costs nothing"
    with unfinished_run(target, LAYOUT, resume=True) as run:
        assert run.resumed
        run.require_same(dict(reversed(NAMES.items())))
        run.keep = True
    assert (work / "result" / "shard").read_text() == "precious"
    with unfinished_run(target, LAYOUT, overwrite=True) as run:
        assert not run.resumed
        assert [p.name for p in run.folder.iterdir()] == [LOCK]
    assert not work.exists()


def test_a_full_disk_is_said_and_costs_nothing(tmp_path: Path) -> None:
    work = leave_work(tmp_path / "run")
    with (
        pytest.raises(RunError, match=r"(?s)No space left.*--resume") as caught,
        unfinished_run(tmp_path / "run", LAYOUT, resume=True),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(work) in str(caught.value)
    assert (work / "result" / "shard").read_text() == "precious"


def test_what_was_half_written_is_cleared(tmp_path: Path) -> None:
    work = leave_work(tmp_path / "run")
    (work / "result" / "part").mkdir()
    (work / "result" / "part" / f".shard.abcd_123{HALF_WRITTEN}").write_text("half")
    (work / f".result.z_081pjh{HALF_WRITTEN}").mkdir()
    (work / f".result.z_081pjh{HALF_WRITTEN}" / "x").write_text("half")
    with unfinished_run(tmp_path / "run", LAYOUT, resume=True) as run:
        assert sorted(p.name for p in run.folder.rglob("*")) == [LOCK, "part", "result", "run.json", "shard"]
        run.keep = True


def test_a_folder_that_was_left_before_any_work_asks_for_nothing(tmp_path: Path) -> None:
    """As after a fault in the very first lock."""
    folder = tmp_path / "run.unfinished"
    folder.mkdir()
    for left in ((), (LOCK,), (LOCK, f".run.json.abcd_123{HALF_WRITTEN}")):
        for name in left:
            (folder / name).touch()
        with unfinished_run(tmp_path / "run", LAYOUT) as run:
            assert not run.resumed
        assert not folder.exists()
        folder.mkdir()


def test_a_fault_in_the_first_lock_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("topicscope.records.lock.FileLock.acquire", fail)
    with pytest.raises(InputError, match="cannot be locked"), unfinished_run(tmp_path / "run", LAYOUT):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}])
def test_a_folder_of_the_user_is_not_worked_in(flags: dict[str, bool], tmp_path: Path) -> None:
    notes = tmp_path / "run.unfinished" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    with (
        pytest.raises(InputError, match=r"(?s)received: notes\.txt.*move these files away"),
        unfinished_run(tmp_path / "run", LAYOUT, **flags),
    ):
        pass
    assert notes.read_text() == "mine"
    assert [p.name for p in notes.parent.iterdir()] == ["notes.txt"]


def test_files_of_the_user_in_the_work_are_never_removed(tmp_path: Path) -> None:
    target = tmp_path / "run"
    work = leave_work(target)
    (work / "result" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"result/notes\.txt"), unfinished_run(target, LAYOUT, overwrite=True):
        pass
    with unfinished_run(target, LAYOUT, resume=True) as run:
        assert run.resumed
    assert [p.name for p in work.rglob("*")] == ["result", "notes.txt"]
    assert (work / "result" / "notes.txt").read_text() == "mine"


def test_fresh_staging_removes_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    with unfinished_run(tmp_path / "run", LAYOUT) as run:
        staged(run, "shard")
        assert list(run.fresh_staging().iterdir()) == []
        (run.staging / "notes.txt").write_text("mine")
        with pytest.raises(InputError, match=r"(?s)in the way.*notes\.txt"):
            run.fresh_staging()
        assert (run.staging / "notes.txt").read_text() == "mine"
        run.keep = True


def test_two_holders_of_one_lock(tmp_path: Path) -> None:
    message = rf"(?s)another run is writing.*process {os.getpid()} on .*since 20"
    with folder_lock(tmp_path):
        with pytest.raises(InputError, match=message), folder_lock(tmp_path):
            pass
        with pytest.raises(InputError, match=message), folder_lock(tmp_path):
            pass
    with folder_lock(tmp_path):
        pass


HOLDER = """
import sys, time
from pathlib import Path
from topicscope.records import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {holder.pid} on "), folder_lock(tmp_path):
            pass
        holder.kill()
    with folder_lock(tmp_path):
        pass


def test_a_lock_whose_file_was_removed_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    with folder_lock(tmp_path):
        (tmp_path / LOCK).unlink()
        with folder_lock(tmp_path):
            assert (tmp_path / LOCK).is_file()


def grow(target: Path, error: BaseException, *, done: bool = True, **flags: bool) -> None:
    """A run that dies where its result grows."""
    with growing_run(target, LAYOUT, **flags) as run:
        if done:
            (run.folder / "record.json").write_text('{"schema_version": 1}')
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("a bad shard")])
def test_growing_run_keeps_what_is_done_after_any_error(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        grow(tmp_path / "run", error)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["record.json"]
    with growing_run(tmp_path / "run", LAYOUT, resume=True) as run:
        assert run.resumed


def test_growing_run_leaves_no_folder_in_which_nothing_was_done(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        grow(tmp_path / "deep" / "run", InputError("no"), done=False)
    assert not list(tmp_path.iterdir())


def test_growing_run_takes_a_full_disk_for_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)could not be written.*--resume"):
        grow(tmp_path / "run", OSError(errno.ENOSPC, "No space left on device"))
    assert (tmp_path / "run" / "record.json").is_file()


def test_growing_run_holds_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with growing_run(target, LAYOUT) as run:
        (run.folder / "record.json").write_text('{"schema_version": 1}')
        for flags in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError, match="another run is writing"), growing_run(target, LAYOUT, **flags):
                pass
    assert not (target / LOCK).exists()


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}])
def test_growing_run_starts_where_a_run_was_killed_before_it_wrote(flags: dict[str, bool], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with folder_lock(tmp_path / "run"):
        held = (tmp_path / "run" / LOCK).read_text()
    (tmp_path / "run" / LOCK).write_text(held)  # as a killed process leaves it
    with growing_run(tmp_path / "run", LAYOUT, **flags) as run:
        assert not run.resumed


def test_growing_run_resumes_only_what_is_of_its_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="nothing to resume"), growing_run(tmp_path, LAYOUT, resume=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
