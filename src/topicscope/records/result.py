"""The base of all results: one way to show them, to save and load them, and to write their page."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pandas as pd

from topicscope.errors import InputError, TopicscopeError
from topicscope.records.contents import PAGE, Layout
from topicscope.records.files import read_json, write_bytes, write_text
from topicscope.records.run_folder import replaced_folder
from topicscope.records.urls import output_path, result_path

R = TypeVar("R", bound="Result")  # typing.Self cannot be checked at run time


class Result(ABC):
    """What a command of topicscope found.

    kind: the name in its record; layout: the files of its folder, of which the first record holds `to_dict`;
    schema_version: of that record. folder: where the result is stored, None for one that was never saved.
    """

    kind: ClassVar[str]
    layout: ClassVar[Layout]
    schema_version: ClassVar[int] = 1
    folder: Path | None

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The result as a data frame."""

    @abstractmethod
    def plot(self, *args: Any, **more: Any) -> Any:
        """A matplotlib figure of the result."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The document that the record in its folder holds and `--json` prints."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the data into a folder, each file atomically and the record last; no page, no pictures."""

    @classmethod
    @abstractmethod
    def read(cls: type[R], folder: Path, record: Mapping[str, Any]) -> R:
        """The result that `write` left in `folder`; record: its document."""

    def page(self) -> str:
        """One HTML file that needs no network.

        Raises:
            InputError: there is no page for this kind of result.
        """
        raise InputError(f"there is no page for a result of {self.layout.name}", expected="plot() or table()")

    def pictures(self) -> dict[str, bytes]:
        """PNG files that stand beside the page, by name."""
        return {}

    def _head(self) -> dict[str, Any]:
        return {"schema_version": self.schema_version, "kind": self.kind}

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the data to a folder; `report` adds the page.

        Everything is written beside the folder first and moved into place at once.

        Raises:
            InputError: the folder is not empty and `overwrite` is false, it holds anything but an earlier result of
                this kind, it cannot be written, or it is a URL.
        """
        folder = output_path(folder)
        with replaced_folder(folder, self.layout, overwrite=overwrite) as staging:
            self.write(staging)
        return folder

    @classmethod
    def load(cls: type[R], folder: str | Path) -> R:
        """Read a folder that `save` or `--out` wrote.

        Raises:
            InputError: no such result, another kind of result, another schema version, a damaged one, or a URL.
        """
        folder = result_path(folder)
        with undamaged(folder):
            return cls.read(folder, cls._record(folder))

    @classmethod
    def _record(cls, folder: Path) -> dict[str, Any]:
        path = folder / cls.layout.records[0]
        record = read_json(path)
        expected = {"kind": cls.kind, "schema_version": cls.schema_version}
        # Records of runs and reproductions had no kind before 0.2.
        found = {"kind": cls.kind} | record if isinstance(record, dict) else {}
        if {name: found.get(name) for name in expected} != expected:
            raise InputError(
                f"not a result of {cls.layout.name} that this version can read",
                received={name: record.get(name) for name in expected} if found else type(record).__name__,
                expected=expected,
                where=str(path),
                advice="read it with the version of topicscope that wrote it",
            )
        return dict(record)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page to `path`, or, unless it is given, report.html and the pictures into the result's own folder.

        Raises:
            InputError: the result was never saved and no path is given, or there is no page for this kind of result.
        """
        if path is not None:
            write_text(output_path(path), self.page())
            return Path(path)
        if self.folder is None:
            raise InputError("the result is not stored in a folder", expected="report(path), or save(folder) before")
        add_file(self.layout, self.folder, PAGE, self.page().encode())
        for name, content in self.pictures().items():
            add_file(self.layout, self.folder, name, content)
        return self.folder / PAGE


def add_file(layout: Layout, folder: Path, name: str, content: bytes) -> None:
    """Write one more file into a finished result: listed first, so that it is never taken for somebody else's."""
    layout.add_to_list(folder, name)
    write_bytes(folder / name, content)


@contextmanager
def undamaged(folder: Path) -> Iterator[None]:
    """Files that are cut short, missing or changed by hand fail in a dozen ways when they are read."""
    try:
        yield
    except TopicscopeError:
        raise
    except Exception as error:
        raise InputError(
            "the result is damaged",
            received=f"{type(error).__name__}: {error}",
            where=str(folder),
            advice="copy the whole folder again, or repeat the command with --overwrite",
        ) from error
