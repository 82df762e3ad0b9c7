"""Which files a folder of topicscope consists of, so that nothing else is ever removed from it.

A finished result lists its files in files.json. For results written before that, and for work under way, each kind has
patterns of the names it uses. Whatever is neither listed nor matched, a link included, is foreign: a folder with
anything foreign in it is not replaced, and removal goes by name, file by file.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from topicscope.errors import InputError
from topicscope.records.files import HALF_WRITTEN, write_json
from topicscope.records.lock import LOCK, is_lock

CONTENTS, IDENTITY, STAGED = "files.json", "run.json", "result"
SCHEMA_VERSION = 1
_SHOWN = 5
# What `files.write_bytes` and `folder.staging_folder` call a file or folder until it is whole.
_HALF_WRITTEN = re.compile(rf"\.(.+)\.[a-z0-9_]{{8}}{re.escape(HALF_WRITTEN)}")


@dataclass(frozen=True)
class Survey:
    """What a folder holds: paths of own files and of own subfolders (outer first), and names of all that is foreign."""

    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    foreign: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """The files of one kind of folder.

    name: of the kind. records: files of which at least one says that the folder is of this kind. patterns: paths inside
    the folder; `*` stands for any part of one name, `#` for digits. work: what is kept besides while such a result is
    made. listed: whether a finished folder lists its files.
    """

    name: str
    records: tuple[str, ...]
    patterns: tuple[str, ...]
    work: tuple[str, ...] = field(default=(), kw_only=True)
    listed: bool = field(default=True, kw_only=True)

    def below(self, prefix: str) -> tuple[str, ...]:
        """The patterns of such a folder inside another one."""
        return tuple(f"{prefix}/{pattern}" for pattern in (*self.patterns, CONTENTS, LOCK))

    @cached_property
    def unfinished(self) -> "Layout":
        """Of DIR.unfinished, in which a result of this kind is made before it takes the place of DIR."""
        patterns = (IDENTITY, *self.work, *self.below(STAGED))
        return Layout(f"unfinished run of {self.name}", (IDENTITY,), patterns, listed=False)

    @cached_property
    def _own(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """What the names of its files and of its subfolders match."""
        files = (*self.patterns, CONTENTS, LOCK)
        made = []
        for names in (files, _parents_of(files)):
            parts = [re.escape(name).replace(r"\*", "[^/]*").replace(r"\#", "[0-9]+") for name in names]
            made.append(re.compile("|".join(parts) or r"(?!)"))
        return made[0], made[1]

    def survey(self, folder: Path) -> Survey:
        """Tell own files from foreign ones; folders reached through a link are not entered."""
        listed = self._listed(folder)
        known = None if listed is None else ({*listed, CONTENTS, LOCK}, _parents_of(listed))
        files: list[Path] = []
        folders: list[Path] = []
        foreign: list[str] = []
        ahead = [folder]
        while ahead:
            here = ahead.pop()
            if here != folder:
                folders.append(here)
            inner = []
            for path in sorted(here.iterdir()):
                name = path.relative_to(folder).as_posix()
                whole = "/".join(map(whole_name, name.split("/")))
                is_link, is_folder = path.is_symlink(), path.is_dir()
                own = whole in known[is_folder] if known else bool(self._own[is_folder].fullmatch(whole))
                if own and is_folder and not is_link:
                    inner.append(path)
                elif own and path.is_file() and not is_link and (path.name != LOCK or is_lock(path)):
                    files.append(path)
                else:
                    foreign.append(f"{name}/" if is_folder and not is_link else name)
            ahead += reversed(inner)
        return Survey(tuple(files), tuple(folders), tuple(foreign))

    def require_own(self, folder: Path) -> None:
        """Make sure that a folder that is to be replaced holds a record of this kind and nothing foreign.

        Raises:
            InputError: names the first foreign files.
        """
        known = self.is_known(folder)
        foreign = self.survey(folder).foreign if known else tuple(sorted(os.listdir(folder)))
        if not known and not self.listed:  # left before the record was written
            begun = {LOCK} if is_lock(folder / LOCK) else set()
            foreign = tuple(n for n in foreign if n not in begun and (whole_name(n) == n or whole_name(n) != IDENTITY))
        if not foreign:
            return
        described = f"a result of {self.name}" if self.listed else f"an {self.name}"
        raise InputError(
            "the folder holds files that topicscope did not write, so it is not replaced"
            if known
            else f"the folder is not {described}, so it is not replaced",
            received=_some(foreign),
            expected=f"a folder with nothing in it but the files of {described}",
            where=str(folder),
            advice="choose another --out, or move these files away",
        )

    def remove(self, folder: Path) -> tuple[str, ...]:
        """Remove the files of such a folder by name, then the subfolders and the folder itself if they are empty.

        Returns the names of what is foreign, which stays.
        """
        if not folder.is_dir() or folder.is_symlink():
            return ()
        survey = self.survey(folder)
        # The record and the list go last, so that the rest of a removal that was cut short is known for what it is.
        last = (*self.records, CONTENTS, LOCK)
        for path in sorted(survey.files, key=lambda path: path.name in last and path.parent == folder):
            path.unlink(missing_ok=True)
        for path in (*reversed(survey.folders), folder):
            with suppress(OSError):
                path.rmdir()
        return survey.foreign

    def write_list(self, folder: Path, *, unless: Path | None = None) -> None:
        """Write down which files the result in `folder` consists of. unless: an earlier list, kept if it is true."""
        (folder / CONTENTS).unlink(missing_ok=True)
        own = set(self.survey(folder).files) - {unless, folder / LOCK}
        files = {path.relative_to(folder).as_posix() for path in own}
        if unless is not None and unless.is_file():
            unless.replace(folder / CONTENTS)
        if self._listed(folder) != files:
            self._write_list(folder, files)

    def add_to_list(self, folder: Path, name: str) -> None:
        """Write down that a file was added to the result in `folder`, if that lists its files."""
        names = self._listed(folder)
        if names is not None:
            self._write_list(folder, names | {name})

    def _write_list(self, folder: Path, names: set[str]) -> None:
        document = {"schema_version": SCHEMA_VERSION, "kind": self.name, "files": sorted(names - {CONTENTS, LOCK})}
        write_json(folder / CONTENTS, document)

    def _listed(self, folder: Path) -> set[str] | None:
        if not self.listed:
            return None
        found = _document(folder / CONTENTS)
        if found.get("kind") != self.name:
            return None
        return _names_of(folder, found)

    def is_known(self, folder: Path) -> bool:
        """Whether the folder is of this kind: it says so, or holds a record that can be read."""
        if self._listed(folder) is not None:
            return True
        return any("schema_version" in _document(folder / record) for record in self.records)


def _document(path: Path) -> dict[str, Any]:
    """A JSON object, empty where the file is none."""
    with suppress(OSError, ValueError):
        if path.is_file() and not path.is_symlink():
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
    return {}


def _names_of(folder: Path, document: dict[str, Any]) -> set[str] | None:
    """The files that a list names, and those of lists inside: a page may have been added to a result in a result."""
    listed = document.get("files")
    if document.get("schema_version") != SCHEMA_VERSION or not isinstance(listed, list):
        return None
    names = {name for name in listed if isinstance(name, str)}
    for inner in [PurePosixPath(name).parent for name in names if name.endswith(f"/{CONTENTS}")]:
        more = _names_of(folder / inner, _document(folder / inner / CONTENTS))
        names |= {str(inner / name) for name in more or ()}
    return names


def whole_name(name: str) -> str:
    """What a file or folder will be called when it is whole; the name itself for one that is."""
    half = _HALF_WRITTEN.fullmatch(name)
    return half[1] if half else name


def _parents_of(names: Iterable[str]) -> set[str]:
    return {str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."}


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


PAGE = "report.html"
_PASS = ("documents-#.parquet", "state.safetensors", "shard-#.safetensors")
_TOKENS = ("*.arrow", "*.npy", "header.json", "words.json")  # the last three: of older caches

PROBE = Layout(
    "topicscope probe",
    ("result.json",),
    (
        *("result.json", "heads.csv", "documents.parquet", "moments.npz", "embedding_map.npz", "circuits.csv"),
        *("topics.npz", "topics-#.npz", "heads.png", PAGE),
    ),
    work=("topics-#.npz", *(f"{folder}/{name}" for folder in ("model", "control-#", "sinks") for name in _PASS)),
)
CIRCUITS = Layout("topicscope circuits", ("circuits.json",), ("circuits.json", "circuits.csv", "ov-*.png", "qk-*.png"))
_RUN = (
    *("recipe.json", "manifest.json", "history.jsonl", "weights.safetensors", "snapshots.npz", "summary.json", PAGE),
    *("checkpoint.json", "checkpoint-#.safetensors"),
)
RUN = Layout("topicscope train", ("summary.json", "recipe.json"), _RUN)
SWEEP = Layout(
    "topicscope sweep",
    ("sweep.json",),
    ("sweep.json", "table.csv", "sweep.png", PAGE, "rows/*.json", "runs/*.key", *RUN.below("runs/*")),
)
COMPARISON = Layout("topicscope compare", ("comparison.json",), ("comparison.json", PAGE))
MODEL = Layout("a model", ("checkpoint.json",), ("*.json", "*.txt", "*.safetensors"))
REPRODUCTION = Layout(
    "topicscope reproduce",
    ("claims.json",),
    (
        *("claims.json", "manifest.json", "reproduction.html", "finished/*.json", "figures/*"),
        *("runs/*.npz", "runs/pretrained-table/*", *RUN.below("runs/*"), *MODEL.below("runs/small-bert-*")),
    ),
)
TOKENS = Layout("token cache", (), _TOKENS, listed=False)


SERIES = Layout(
    "topicscope probe --checkpoints",
    ("series.json",),
    (
        *("series.json", "series.csv", "emergence.png", PAGE, "topics-#.npz"),
        *PROBE.below("results/*"),
        *PROBE.unfinished.below("results/*.unfinished"),
    ),
)
LAYOUTS = {layout.name: layout for layout in (PROBE, CIRCUITS, RUN, SWEEP, SERIES, COMPARISON, REPRODUCTION, MODEL)}
