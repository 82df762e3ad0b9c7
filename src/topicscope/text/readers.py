"""Readers of plain text, JSON lines, CSV and Parquet, compressed or not: bytes in, documents out, one at a time.

The reader for a corpus: of one file, or of a folder or pattern, whose files are documents (.txt) or shards.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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
    suffix_of,
)
from topicscope.text.mediawiki import read_dump
from topicscope.text.source import (
    COMPRESSIONS,
    Document,
    Faults,
    SkippedLine,
    Source,
    check_encoding,
    decoded_lines,
    is_encodable,
    not_decodable,
    open_bytes,
)

SKIP_ADVICE = "correct it, or leave such lines out and count them with --on-error skip"
_BATCH_ROWS = 256
_UNPACKED = 2**28
_BUFFER = 2**23  # what is fetched of a column at a time
_COMPRESSED_PARQUET = 2**30


Reader = Callable[[Source, Faults], Iterator[Document]]


def kind_by_name(path: Place) -> str | None:
    """The key in `READERS` that the end of a file's name says, if any: "txt", "parquet", …"""
    suffix = suffix_of(path)
    name = name_of(path).removesuffix(suffix) if suffix in COMPRESSIONS else name_of(path)
    # Parts of a Wikipedia dump are called …articles1.xml-p1p41242.bz2.
    found = re.search(r"\.(?:(\w+)|(xml)-[\w-]+)$", name)
    return (found[1] or found[2]).lower() if found else None


def row_documents(faults: Faults, where: str, text: object, identity: object) -> tuple[Document, ...]:
    """A row's one document, or none where the row is bad and bad rows are skipped. A missing text (None) is empty."""
    text = "" if text is None else text
    if not isinstance(text, str):
        faults.bad(
            "text is not a string",
            InputError("the text is not a string", received=text, expected="a string", where=where, advice=SKIP_ADVICE),
        )
    elif not is_encodable(text) or not is_encodable(str(identity)):
        faults.bad("not valid text", InputError("the text is not valid Unicode", where=where, advice=SKIP_ADVICE))
    elif identity is None or isinstance(identity, (dict, list)):
        faults.bad("no id", InputError("the row has no usable id", received=identity, where=where, advice=SKIP_ADVICE))
    else:
        return (Document(str(identity), text),)
    return ()


def require_columns(source: Source, columns: list[str]) -> None:
    """Refuse a table without the columns asked for, and name those there are."""
    for option, column in (("--text-column", source.text_column), ("--id-column", source.id_column)):
        if column is not None and columns.count(column) != 1:
            raise InputError(
                f'no column "{column}"' if column not in columns else f'more than one column "{column}"',
                received=f"columns {', '.join(columns)}" if columns else "no columns",
                where=str(source.path),
                advice=f"name one of them by {option}",
            )


def read_lines(source: Source, faults: Faults) -> Iterator[Document]:
    """Plain text, one document a line."""
    with open_bytes(source.path) as stream:
        for number, line in enumerate(decoded_lines(source, stream, faults), start=1):
            if isinstance(line, SkippedLine):
                continue
            where = f"{source.path}, line {number}"
            yield from row_documents(faults, where, line.rstrip("\r\n"), number)


def read_json_lines(source: Source, faults: Faults) -> Iterator[Document]:
    """One JSON object a line."""
    with open_bytes(source.path) as stream:
        for number, line in enumerate(decoded_lines(source, stream, faults), start=1):
            if isinstance(line, SkippedLine):
                continue
            where = f"{source.path}, line {number}"
            if not line.strip():
                faults.skip("blank line")
                continue
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                faults.bad("not JSON", _not_json(line, where, str(error)))
                continue
            if not isinstance(row, dict):
                faults.bad("not a JSON object", _not_json(line, where, f"a {type(row).__name__}, not an object"))
                continue
            missing = {source.text_column, source.id_column} - {None} - row.keys()
            if missing:
                column = sorted(map(str, missing))[0]
                faults.bad(
                    f'no column "{column}"',
                    InputError(
                        f'no column "{column}"',
                        received=f"columns {', '.join(row)}" if row else "no columns",
                        where=where,
                        advice="name one of them by --text-column (--id-column for the id), or use --on-error skip",
                    ),
                )
                continue
            identity = row[source.id_column] if source.id_column else number
            yield from row_documents(faults, where, row[source.text_column], identity)


def _not_json(line: str, where: str, problem: str) -> InputError:
    whole = line.lstrip().startswith("[")
    return InputError(
        "the line is not a JSON object",
        received=f"{line.strip()[:60]!a} ({problem})",
        expected='one object a line, such as {"text": "…"}',
        where=where,
        advice="turn a JSON array into lines: jq -c '.[]' file.json > file.jsonl" if whole else SKIP_ADVICE,
    )


def read_table(delimiter: str, source: Source, faults: Faults) -> Iterator[Document]:
    """Rows with a header, separated by commas or tabs; quoted fields may hold line breaks."""
    # The default limit of 128 KiB a field is less than a long article.
    csv.field_size_limit(min(source.max_document_bytes, 2**31 - 1))
    with open_bytes(source.path) as stream:
        lines = (line for line in decoded_lines(source, stream, faults) if not isinstance(line, SkippedLine))
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        columns: list[str] | None = None
        number = 0
        while True:
            problem = None
            try:
                row = next(rows, None)
            except csv.Error as error:
                row, problem = [], str(error)
            if row is None:
                return
            if columns is None:
                columns = row
                require_columns(source, columns)
                continue
            if not row and problem is None:
                faults.skip("blank line")
                continue
            number += 1
            where = f"{source.path}, line {rows.line_num}"
            if len(row) != len(columns):
                problem = problem or f"{len(row)} fields, while the header has {len(columns)}"
                misfit = InputError("a row does not fit the table", received=problem, where=where, advice=SKIP_ADVICE)
                faults.bad("not a row of the table", misfit)
                continue
            values = dict(zip(columns, row, strict=True))
            identity = values[source.id_column] if source.id_column else number
            yield from row_documents(faults, where, values[source.text_column], identity)


def read_parquet(source: Source, faults: Faults) -> Iterator[Document]:
    """The rows of a Parquet file, some in memory at a time, of which only the columns needed are fetched."""
    with open_bytes(source.path, seeks=True) as stream:
        # Parquet is read from its end, which a compressed stream cannot seek.
        file = stream if suffix_of(source.path) not in COMPRESSIONS else pa.BufferReader(_whole(source, stream))
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
        require_columns(source, table.schema_arrow.names)
        number = 0
        columns = [column for column in (source.text_column, source.id_column) if column is not None]
        for batch in _batches(table, columns):
            texts = batch.column(source.text_column)
            for row in range(batch.num_rows):
                number += 1
                where = f"{source.path}, row {number}"
                try:
                    text = texts[row].as_py()
                    identity = batch.column(source.id_column)[row].as_py() if source.id_column else number
                except ValueError:
                    faults.bad("not valid text", InputError("the text is not UTF-8", where=where, advice=SKIP_ADVICE))
                    continue
                if isinstance(text, str) and len(text) > source.max_document_bytes:
                    source.bad_length(faults, where)
                    continue
                yield from row_documents(faults, where, text, identity)


def _batches(table: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Few rows at once where each may be large: one text that many rows share is written once, and may be all there is.

    So no batch has more than `_UNPACKED` bytes, unless it is one row.
    """
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        chunks = [described.column(i) for i in range(described.num_columns)]
        size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.startswith(tuple(columns)))
        rows = max(1, min(_BATCH_ROWS, _UNPACKED // max(1, size)))
        yield from table.iter_batches(rows, row_groups=[group], columns=columns)


def _whole(source: Source, stream: io.BufferedIOBase | io.RawIOBase) -> bytes:
    data = stream.read(_COMPRESSED_PARQUET + 1) or b""
    if len(data) > _COMPRESSED_PARQUET:
        raise InputError(
            "a compressed Parquet file is too large to be unpacked in memory",
            received=f"more than {_COMPRESSED_PARQUET} bytes",
            where=str(source.path),
            advice="unpack it first; Parquet is compressed inside already",
        )
    return data


READERS: dict[str, Reader] = {
    "txt": read_lines,
    "jsonl": read_json_lines,
    "ndjson": read_json_lines,
    "json": read_json_lines,
    "csv": partial(read_table, ","),
    "tsv": partial(read_table, "\t"),
    "parquet": read_parquet,
    "xml": read_dump,
}


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
            received=str(source.path),
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
            where=str(source.path),
            advice=f"say which by a pattern, such as {str(source.path).rstrip('/')}/*{next(iter(kinds))}",
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
        yield from row_documents(faults, shown(path), text.replace("\r\n", "\n"), name)


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
