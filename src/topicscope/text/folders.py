"""The reader for a corpus: of one file, or of a folder or pattern, whose files are documents (.txt) or shards."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from topicscope.errors import InputError
from topicscope.records import (
    Place,
    Url,
    files_below,
    inside,
    kind_of,
    name_of,
    reaching,
    require_regular_file,
    shown,
    special_kind,
)
from topicscope.text.readers import READERS, Reader, kind_by_name, row_document
from topicscope.text.source import Document, Faults, Source, check_encoding, not_decodable, open_bytes

SHARDS = tuple(kind for kind in READERS if kind != "txt")
_TXT = re.compile(r"\.txt(\.gz|\.bz2|\.zst)?$")
_HIDDEN = re.compile(r"(^|/)[._]")
_PATTERN = re.compile(r"[*\[]")

Files = Sequence[tuple[str, Place]]


def reader_of(source: Source) -> Reader:
    """The reader for a source, by what lies at its path and by its extension.

    Raises:
        InputError: nothing there, unknown extension, unknown or unusable encoding, a storage that does not answer.
    """
    check_encoding(source.encoding)
    path = source.path
    require_regular_file(path, "a file or folder of text")
    kind = kind_of(path)
    if kind == "folder":
        return partial(_read_listed, partial(files_below, special=True))
    if kind is None and _PATTERN.search(str(path)):
        return partial(_read_listed, files_matching)
    if kind is None:
        raise InputError(
            "no such file or folder",
            received=source.label,
            expected='an existing path, or "wikipedia-sample"',
        )
    reader = READERS.get(kind_by_name(path) or "")
    if reader is None:
        raise InputError(
            "unknown kind of file",
            received=name_of(path),
            expected=f"a folder of .txt or of shards, or a file in {', '.join('.' + kind for kind in READERS)}, "
            "each also with .gz, .bz2 or .zst",
            advice="rename or convert it",
        )
    return reader


def files_matching(pattern: Place) -> Files:
    """The files that a pattern means, such as data/*.parquet: (path inside the fixed part of the pattern, file).

    Raises:
        InputError: there are none, or a storage cannot be asked.
    """
    found: list[tuple[str, Place]]
    if isinstance(pattern, Path):
        base = next(parent for parent in pattern.parents if not _PATTERN.search(str(parent)))
        paths = base.glob(pattern.relative_to(base).as_posix())
        found = [(path.relative_to(base).as_posix(), path) for path in paths if path.is_file() or special_kind(path)]
    else:
        with reaching(pattern):
            there = [path for path, of in pattern.fs.glob(pattern.path, detail=True).items() if of["type"] == "file"]
        root = Url(*(_PATTERN.split(of)[0].rpartition("/")[0] for of in (pattern.text, pattern.path)))
        found = [inside(root, path) for path in there]
    if not found:
        raise InputError(
            "no file matches the pattern", received=shown(pattern), expected="a pattern such as data/*.parquet"
        )
    return sorted(found)


def _read_listed(listed: Callable[[Place], Files], source: Source, faults: Faults) -> Iterator[Document]:
    """Documents of the files that `listed` finds: each a text, or all of them shards of one kind."""
    found = listed(source.path)
    files = [(name, path) for name, path in found if special_kind(path) is None]
    for _ in range(len(found) - len(files)):
        faults.skip("not a regular file")
    kinds = Counter(kind for name, _ in files if (kind := _kind(name)) is not None)
    if len(kinds) > 1:
        del kinds[".json"]  # the description of shards of another kind
    if not kinds or any(_TXT.search(name) for name, _ in files):
        yield from _read_texts(source, files, faults)
        return
    if len(kinds) > 1:
        raise InputError(
            "the folder holds shards of several kinds",
            received=", ".join(f"{number} {kind}" for kind, number in kinds.items()),
            expected="shards of one kind",
            where=source.label,
            advice=f"say which by a pattern, such as {source.label.rstrip('/')}/*{next(iter(kinds))}",
        )
    yield from _read_shards(source, files, next(iter(kinds)), faults)


def _kind(name: str) -> str | None:
    """The kind of shard that a file is by its name, None if it is none."""
    kind = None if _HIDDEN.search(name) else kind_by_name(Path(name))
    return f".{kind}" if kind in SHARDS else None


def _read_texts(source: Source, files: Files, faults: Faults) -> Iterator[Document]:
    """Texts (.txt, compressed or not), one document a file, in the order of their paths."""
    for name, path in files:
        if not _TXT.search(name):
            faults.skip("not a .txt file")
            continue
        with open_bytes(path) as stream:
            data = stream.read(source.max_document_bytes + 1) or b""
        if len(data) > source.max_document_bytes:
            source.bad_length(faults, shown(path))
            continue
        try:
            text = data.removeprefix(b"\xef\xbb\xbf").decode(source.encoding)
        except UnicodeDecodeError as error:
            faults.bad("not valid text", not_decodable(Source(path, encoding=source.encoding), data, error, 0, 1))
            continue
        document = row_document(faults, shown(path), text.replace("\r\n", "\n"), name)
        if document is not None:
            yield document


def _read_shards(source: Source, files: Files, kind: str, faults: Faults) -> Iterator[Document]:
    """Shards of one kind, one after another; a row without an id of its own is named by its shard: NAME:ROW."""
    reader = READERS[kind[1:]]
    numbered = source.id_column is None and kind != ".xml"
    for name, path in files:
        if _HIDDEN.search(name):
            faults.skip("hidden file")
        elif _kind(name) != kind:
            faults.skip(f"not a {kind} file")
        else:
            for document in reader(replace(source, path=path), faults):
                yield Document(f"{name}:{document.id}", document.text) if numbered else document
