"""DIR.unfinished: where a run that writes to DIR keeps what it has done, until DIR can be put in place in one move."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topicscope.errors import InputError, RunError
from topicscope.records.contents import CONTENTS, IDENTITY, STAGED, Layout, whole_name
from topicscope.records.files import HALF_WRITTEN, read_json, write_json
from topicscope.records.lock import LOCK, folder_lock
from topicscope.records.run_folder import check_output_folder, output_target, put_in_place, recover, require_movable

SCHEMA_VERSION = 1
_GO_ON = "choose another --out, or add --resume to go on with the run that is there, or --overwrite to replace it"


@dataclass
class RunFolder:
    """The folder of a run under way, held by this process.

    resumed: whether an earlier run left something there to go on from. keep: set by a run that was interrupted, so that
    what it has done stays for `resume`.
    """

    folder: Path
    resumed: bool
    keep: bool = field(default=False, kw_only=True)


@dataclass
class UnfinishedRun(RunFolder):
    """`target`.unfinished, where a result is made, in `staging`, that takes the place of `target` as a whole."""

    target: Path
    staging: Path
    layout: Layout

    def require_same(self, identity: dict[str, Any]) -> None:
        """Write down what decides the numbers of this run, or compare it with what the earlier run wrote down.

        Raises:
            InputError: as `require_same`.
        """
        path = self.folder / IDENTITY
        if not path.is_file():
            write_json(path, {"schema_version": SCHEMA_VERSION, "identity": identity})
            return
        found = read_json(path)
        earlier = found.get("identity", {}) if found.get("schema_version") == SCHEMA_VERSION else {}
        require_same(identity, earlier, self.folder)

    def fresh_staging(self) -> Path:
        """The staging folder, empty: what a killed run left there is removed.

        Raises:
            InputError: there are files that topicscope did not write.
        """
        foreign = self.layout.remove(self.staging)
        if foreign:
            raise InputError(
                "files that topicscope did not write are in the way",
                received=", ".join(foreign[:5]),
                expected="nothing but the files of an unfinished result",
                where=str(self.staging),
                advice="move them away and run the same command with --resume",
            )
        self.staging.mkdir()
        return self.staging

    def publish(self) -> None:
        """Put the staged result in the place of the target."""
        put_in_place(self.staging, self.target, self.layout)


def require_same(identity: Mapping[str, Any], earlier: Mapping[str, Any], where: Path) -> None:
    """Make sure that a run that is resumed is the one that was begun.

    identity, earlier: what decides the numbers of this run and of the earlier one, by name; tables field by field.

    Raises:
        InputError: the earlier run was another one; names every difference.
    """
    wanted, found = _fields(identity), _fields(earlier)
    different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if different:
        raise InputError(
            "the unfinished run is another one, so it cannot be resumed",
            received={name: wanted.get(name) for name in different},
            expected={name: found.get(name) for name in different},
            where=str(where),
            advice="give what the earlier run was given, or start anew with --overwrite in place of --resume",
        )


def _fields(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by dotted name."""
    fields: dict[str, Any] = {}
    for name, value in table.items():
        fields |= _fields(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return fields


@contextmanager
def unfinished_run(
    target: Path | str,
    layout: Layout,
    *,
    resume: bool = False,
    overwrite: bool = False,
    replaces: bool = False,
    inputs: Sequence[Path] = (),
) -> Iterator[UnfinishedRun]:
    """A locked folder `target`.unfinished for the work, removed when the block ends well unless `keep` was set.

    With `resume` it may hold the work of an earlier run, with `overwrite` that is removed, file by file. After an error
    or a kill it stays, so that the run can be resumed; after an InputError, or with nothing finished in it, a folder
    that this run made is removed. replaces: the target may hold an earlier result also without `overwrite`.

    Raises:
        InputError: as `check_output_folder`; an unfinished run is there without `resume` or `overwrite`, or files that
            topicscope did not write; another run holds the folder.
        RunError: the disk is full, or the folder is no longer there.
    """
    target = check_output_folder(target, replaces=layout if overwrite or replaces else None, inputs=inputs)
    require_movable(target)
    folder, work = work_folder(target), layout.unfinished
    _check_work(folder, work, resume=resume, overwrite=overwrite)
    with _held(folder, work, InputError):
        if overwrite and not resume:
            _clear(folder, work)
        run = UnfinishedRun(folder, has_work(folder, work), target, folder / STAGED, layout)
        yield run
        if not run.keep:
            work.remove(folder)


@contextmanager
def growing_run(
    target: Path | str,
    layout: Layout,
    *,
    resume: bool = False,
    overwrite: bool = False,
    inputs: Sequence[Path] = (),
) -> Iterator[RunFolder]:
    """The locked folder for a result that is written as the work goes on.

    It is `target` itself, or, where an earlier result is to be replaced, one in `target`.unfinished that takes its
    place when the block ends well; after an error or with `keep` set it stays there for `resume`.

    Raises:
        InputError: as `unfinished_run`; something else than a result of this kind is there to `resume`.
        RunError: as `unfinished_run`.
    """
    target = output_target(target)
    recover(target)
    replaced = overwrite and not resume and target.is_dir() and any(target.iterdir())
    if replaced or ((resume or overwrite) and has_work(work_folder(target), layout.unfinished)):
        with unfinished_run(
            target, layout, resume=resume, overwrite=overwrite, replaces=resume, inputs=inputs
        ) as unfinished:
            unfinished.require_same({"kind": layout.name})
            unfinished.staging.mkdir(exist_ok=True)
            staged = RunFolder(unfinished.staging, unfinished.resumed)
            yield staged
            unfinished.keep = staged.keep
            if not staged.keep:
                unfinished.publish()
                staged.folder = target
        return
    if resume:
        _require_begun(target, layout)
    else:
        begun = target.is_dir() and layout.is_known(target)
        check_output_folder(target, advice=_GO_ON if begun else "choose another --out")
        _check_work(work_folder(target), layout.unfinished, resume=False, overwrite=overwrite)
    with _held(target, layout):
        run = RunFolder(target, has_work(target, layout))
        # Until the result is finished again, its files are not all known.
        contents, aside = target / CONTENTS, target / f".{CONTENTS}.outdated{HALF_WRITTEN}"
        if contents.is_file():
            contents.replace(aside)
        try:
            yield run
            if not run.keep:
                layout.write_list(target, unless=aside)
        except InputError:
            if aside.is_file():
                aside.replace(contents)
            raise
        finally:
            (target / LOCK).unlink(missing_ok=True)


def _require_begun(target: Path, layout: Layout) -> None:
    """See `growing_run`: what may be in the folder of a run that is resumed."""
    if not target.is_dir() or layout.is_known(target):
        return
    if layout.survey(target).foreign or has_work(target, layout):
        raise InputError("nothing to resume", received=str(target), expected=f"a folder of `{layout.name}`")


@contextmanager
def _held(folder: Path, layout: Layout, forgets: type[BaseException] | tuple[()] = ()) -> Iterator[None]:
    """Make a folder unless it is there and hold it while the block runs, without what a killed run left half-written.

    After an error, a folder that was made here is removed if nothing was finished in it, or if the error is one that
    `forgets` the work.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with folder_lock(folder):
            survey = layout.survey(folder)
            for path in survey.files:
                if any(part != whole_name(part) for part in path.relative_to(folder).parts):
                    path.unlink(missing_ok=True)
            for path in reversed(survey.folders):
                if path.name != whole_name(path.name):
                    with suppress(OSError):
                        path.rmdir()
            yield
    except BaseException as error:
        if missing and (isinstance(error, forgets) or not has_work(folder, layout)):
            layout.remove(folder)
            for path in missing[1:]:
                with suppress(OSError):
                    path.rmdir()
        if not isinstance(error, OSError):
            raise
        raise RunError(
            "the result could not be written",
            received=str(error),
            where=str(folder),
            advice="make room on the disk, then run the same command with --resume: what was finished is kept",
        ) from error


def work_folder(target: Path) -> Path:
    """Where a run to `target` keeps its work."""
    return target.with_name(f"{target.name}{HALF_WRITTEN}")


def has_work(folder: Path, work: Layout) -> bool:
    """Whether an earlier run left something to go on from."""
    if not folder.is_dir():
        return False
    files = work.survey(folder).files
    return any(path.name not in (LOCK, IDENTITY) and path.name == whole_name(path.name) for path in files)


def _check_work(folder: Path, work: Layout, *, resume: bool, overwrite: bool) -> None:
    """See `unfinished_run`: what may be in the folder for the work before it begins."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError("a file is in the way", received=str(folder), expected="no file or link of this name")
    if not folder.is_dir():
        return
    if not work.is_known(folder) or (overwrite and not resume):
        work.require_own(folder)
    if has_work(folder, work) and not (resume or overwrite):
        with folder_lock(folder):  # says who, if somebody is at it right now
            raise InputError(
                "an earlier run to this folder was not finished",
                received=str(folder),
                expected="a new --out",
                advice="add --resume to go on with it, or --overwrite to start anew",
            )


def _clear(folder: Path, work: Layout) -> None:
    """Remove all work; the lock that is held stays."""
    survey = work.survey(folder)
    for path in survey.files:
        if path != folder / LOCK:
            path.unlink()
    for path in reversed(survey.folders):
        with suppress(OSError):
            path.rmdir()
