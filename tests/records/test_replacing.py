"""Replacing a result: nothing foreign is lost, and a crash at any moment leaves the old or the new result whole."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topicscope.errors import InputError, RunError, TopicscopeError
from topicscope.records import check_output_folder, growing_run, replaced_folder, unfinished_run
from topicscope.records import run_folder as folder_module
from topicscope.records.contents import CONTENTS, Layout
from topicscope.records.run_folder import recover

LAYOUT = Layout("topicscope circuits", ("record.json",), ("record.json", "part-#.npz", "rows/*.json"))
NAMES = ("record.json", "part-0.npz", "rows/a.json")


@pytest.fixture(autouse=True)
def _layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(folder_module.LAYOUTS, LAYOUT.name, LAYOUT)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a disk takes its time, and these tests pull no plug


def fill(folder: Path, text: str, *, listed: bool = True) -> None:
    """The files of a result."""
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"schema_version": 1, "text": text}))
    if listed:
        LAYOUT.write_list(folder)


def saved(target: Path, text: str = "new") -> None:
    with replaced_folder(target, LAYOUT, overwrite=True) as staging:
        fill(staging, text)


def run(target: Path, text: str = "new") -> None:
    with unfinished_run(target, LAYOUT, overwrite=True) as unfinished:
        unfinished.require_same({"text": text})
        fill(unfinished.staging, text)
        unfinished.publish()


def grown(target: Path, text: str = "new") -> None:
    with growing_run(target, LAYOUT, overwrite=True) as growing:
        fill(growing.folder, text)


WAYS: tuple[Callable[..., None], ...] = (saved, run, grown)
ways = pytest.mark.parametrize("replace", WAYS)


def text_of(target: Path) -> str | None:
    """What the result at a path says, if it is whole and of one piece."""
    recover(target)
    try:
        said = {json.loads((target / name).read_text())["text"] for name in NAMES}
    except FileNotFoundError:
        return None
    return said.pop() if len(said) == 1 and not LAYOUT.survey(target).foreign else None


def tree(folder: Path) -> dict[str, object]:
    """Everything below a folder: the bytes of files, the targets of links, None for folders."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


@ways
@pytest.mark.parametrize("listed", [True, False])
def test_an_earlier_result_is_replaced_and_nothing_else_is_left(
    replace: Callable[..., None], listed: bool, tmp_path: Path
) -> None:
    fill(tmp_path / "run", "old", listed=listed)
    replace(tmp_path / "run")
    assert text_of(tmp_path / "run") == "new"
    assert json.loads((tmp_path / "run" / CONTENTS).read_text())["files"] == sorted(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# Names that a person might give, near those of results: hidden ones, those of half-written files, of locks and lists.
names = st.sampled_from(
    [
        *("notes.txt", ".hidden", "part-x.npz", "part-0.npz.bak", "rows/b.txt", "rows/deep/x.json", "photos/1.jpg"),
        *(".record.json.original", ".record.json.abcd_123", "result/record.json", "Record.json", "part-7.npz"),
        *("extra/rows/a.json", "lock", "run.json", ".git/config", "rows.json", "deeper/and/deeper"),
    ]
)
kinds = st.sampled_from(["file", "folder", "link", "link to folder", "broken link"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(foreign=st.lists(st.tuples(names, kinds), min_size=1, max_size=5), listed=st.booleans(), data=st.data())
def test_everything_foreign_is_there_afterwards(
    foreign: list[tuple[str, str]], listed: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the outcome, byte for byte; and so is the old result where something foreign was in it."""
    base = tmp_path_factory.mktemp("foreign")
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    target = base / "run"
    fill(target, "old", listed=listed)
    for number, (name, kind) in enumerate(foreign):
        path = target / name
        if any(parent.is_symlink() or parent.is_file() for parent in path.parents) or os.path.lexists(path):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_text(f"mine {number}")
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to({"link": elsewhere / "precious", "link to folder": elsewhere}.get(kind, base / "nowhere"))
    before = tree(base)
    with suppress(TopicscopeError):
        data.draw(st.sampled_from(WAYS))(target)
    after = tree(base)
    own = {f"run/{name}" for name in NAMES} | {f"run/{CONTENTS}"}
    # A legacy result has no list, so that a file with the name of one of its own is one of its own.
    own |= set() if listed else {"run/part-7.npz"}
    assert {name: after.get(name, "lost") for name in before if name not in own} == {
        name: content for name, content in before.items() if name not in own
    }


@ways
def test_foreign_files_are_named_before_any_work(replace: Callable[..., None], tmp_path: Path) -> None:
    target = tmp_path / "run"
    fill(target, "old")
    for number in range(7):
        (target / f"note-{number}.txt").write_text("mine")
    message = r"(?s)did not write.*note-0\.txt, .*note-4\.txt and 2 more.*another --out, or move these files away"
    with pytest.raises(InputError, match=message):
        replace(target)
    assert text_of(tmp_path / "other") is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@ways
def test_a_folder_that_is_no_result_is_not_replaced(replace: Callable[..., None], tmp_path: Path) -> None:
    """Also where all its names are those of a result."""
    target = tmp_path / "thesis"
    target.mkdir()
    for name, content in (("part-0.npz", "mine"), ("record.json", '{"mine": 1}')):
        (target / name).write_text(content)
        with pytest.raises(InputError, match="not a result of topicscope circuits"):
            replace(target)
        assert (target / name).read_text() == content


def test_a_result_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "run", "old")
    other = Layout("topicscope train", ("summary.json",), LAYOUT.patterns)
    with (
        pytest.raises(InputError, match="not a result of topicscope train"),
        replaced_folder(tmp_path / "run", other, overwrite=True),
    ):
        pass
    assert text_of(tmp_path / "run") == "old"


@ways
def test_folders_that_people_work_in_are_never_replaced(
    replace: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a" / "run"
    fill(target, "old")

    def refused(match: str, path: Path = target) -> None:
        with pytest.raises(InputError, match=f"(?s)never replaced.*{match}"):
            replace(path)
        assert text_of(target) == "old"

    for place in (target, target / "rows"):
        monkeypatch.chdir(place)
        refused("working directory", Path("."))
        refused("working directory")
    monkeypatch.chdir(tmp_path)
    refused("working directory", tmp_path / "a" / "..")
    monkeypatch.setenv("HOME", str(target / "rows"))
    refused("home folder")
    monkeypatch.setenv("HOME", str(tmp_path))
    (target / ".git").mkdir()
    with pytest.raises(InputError, match="git repository"):
        replace(target)
    (target / ".git").rmdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == target)
    refused("root of a file system")
    with pytest.raises(InputError, match="never replaced"):
        check_output_folder(Path("/"), replaces=LAYOUT)


def test_a_folder_that_holds_an_input_is_never_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "run", "old")
    (tmp_path / "link").symlink_to(tmp_path / "run" / "part-0.npz")
    for path in (tmp_path / "run" / "part-0.npz", tmp_path / "run", tmp_path / "link"):
        with pytest.raises(InputError, match=r"(?s)never replaced.*an input of this command"):
            check_output_folder(tmp_path / "run", replaces=LAYOUT, inputs=[tmp_path / "other", path])
    check_output_folder(tmp_path / "run", replaces=LAYOUT, inputs=[tmp_path / "other"])


@ways
def test_a_link_is_written_through(replace: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    fill(tmp_path / "disk" / "run", "old")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    replace(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert text_of(tmp_path / "disk" / "run") == "new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["run"]


@ways
def test_a_link_to_nowhere_is_refused_before_any_work(replace: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "link", tmp_path / "link" / "run"):
        with pytest.raises(InputError, match="points nowhere"):
            replace(path)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_what_comes_while_the_work_runs_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "run"
    fill(target, "old")

    def disturbed() -> None:
        with unfinished_run(target, LAYOUT, overwrite=True) as unfinished:
            fill(unfinished.staging, "new")
            (target / "notes.txt").write_text("mine")
            unfinished.publish()

    with pytest.raises(RunError, match=r"(?s)have come into.*notes\.txt.*new result is kept in") as caught:
        disturbed()
    assert (target / "notes.txt").read_text() == "mine"
    (target / "notes.txt").unlink()
    assert text_of(target) == "old"
    assert str(tmp_path / "run.unfinished" / "result") in str(caught.value)
    assert text_of(tmp_path / "run.unfinished" / "result") == "new"


def test_a_file_with_the_name_of_the_journal_is_in_the_way(tmp_path: Path) -> None:
    fill(tmp_path / "run", "old")
    (tmp_path / ".run.replacing").write_text("mine")
    with pytest.raises(InputError, match="in the way"):
        saved(tmp_path / "run")
    assert (tmp_path / ".run.replacing").read_text() == "mine"
    assert (tmp_path / "run" / "record.json").is_file()


class Crash(BaseException):
    """The process is gone: nothing that would clear up runs to any effect."""


# Everything by which the replacement changes the disk.
CHANGES = [(os, name) for name in ("replace", "rename", "unlink", "rmdir", "fsync", "mkdir", "chmod")]


@contextmanager
def dies_at(step: int) -> Iterator[list[str]]:
    """Let the `step`-th change of the disk, and every later one, fail; gives the changes that were made."""
    done: list[str] = []

    def guarded(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if len(done) >= step:
                raise Crash
            done.append(name)
            return change(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in CHANGES:
            patch.setattr(module, name, guarded(name, getattr(module, name)))
        yield done


@ways
def test_a_crash_at_any_moment_leaves_one_result_whole(replace: Callable[..., None], tmp_path: Path) -> None:
    """After every crash the next command finds the old or the new result, and after it has replaced it, only that."""
    saw = set[str | None]()
    for step in range(200):
        base = tmp_path / str(step)
        base.mkdir()
        target = base / "run"
        fill(target, "old")
        finished = False
        with dies_at(step) as done, suppress(Crash):
            replace(target)
            finished = True
        found = text_of(target)
        assert found in ("old", "new"), f"step {step}: neither is whole after {done}"
        saw.add(found)
        replace(target, "newer")
        assert text_of(target) == "newer", step
        left = {path.name for path in base.iterdir()} - {"run"}
        # A staging folder of a process that is gone may stay: nobody can tell it from one of a process at work.
        assert all(name.startswith(".run.") and name.endswith(".unfinished") for name in left), (step, left)
        shutil.rmtree(base)
        if finished:
            break
    else:
        pytest.fail("the replacement never came to its end")
    assert saw == {"old", "new"}
    assert step > 10, "steps were counted"
