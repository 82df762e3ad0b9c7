"""Storages for tests: memory, and kinds of it that refuse, break off, or count what is fetched."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile


class Faulty(MemoryFileSystem):  # type: ignore[misc]
    """faulty://, memory in which `fault` says what goes wrong; `fetched` counts the bytes that were read."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    fault: ClassVar[str] = ""
    fetched: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("faulty://", "memory://")))

    def info(self, path: str, **more: Any) -> Any:
        if Faulty.fault == "forbidden":
            raise PermissionError("Access Denied to https://user:pw@host/x?token=secret")
        if Faulty.fault == "strange":
            raise RuntimeError("no credentials found")
        return super().info(path, **more)

    def _open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if mode == "rb":
            return _Fetched(self, path, mode, block_size=1 << 16, cache_type=more.get("cache_type", "readahead"))
        return super()._open(path, mode, **more)


class _Fetched(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.store[self.path].getvalue()
        if Faulty.fault == "breaks off":
            data = data[: len(data) * 2 // 3]
        if Faulty.fault == "fails" and end > len(data) // 2:
            raise RuntimeError("ClientPayloadError: not all data was received")
        Faulty.fetched += len(data[start:end])
        return data[start:end]


fsspec.register_implementation("faulty", Faulty, clobber=True)


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Something goes wrong while the block runs."""
    Faulty.fault = name
    try:
        yield
    finally:
        Faulty.fault = ""


def clear() -> None:
    """Empty both storages."""
    for kind in (Faulty, MemoryFileSystem):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]


def put(url: str, data: bytes) -> str:
    """Bytes at a URL."""
    system, path = fsspec.core.url_to_fs(url)
    system.pipe_file(path, data)
    return url
