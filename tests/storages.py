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
    puts: ClassVar[int] = 0  # uploads until "full"

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
        if Faulty.fault == "read only":
            raise PermissionError("no permission to write")
        return super()._open(path, mode, **more)

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        if Faulty.fault == "read only":
            raise PermissionError("no permission to write")
        super().pipe_file(path, value, **more)

    def put_file(self, lpath: str, rpath: str, **more: Any) -> None:
        if Faulty.fault == "full":
            Faulty.puts -= 1
            if Faulty.puts < 0:
                raise OSError("the connection was reset")
        with open(lpath, "rb") as stream:
            data = stream.read()
        if Faulty.fault == "truncates":
            data = data[: len(data) // 2]
        self.pipe_file(rpath, data)


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
def fault(name: str, puts: int = 0) -> Iterator[None]:
    """Something goes wrong while the block runs."""
    Faulty.fault, Faulty.puts = name, puts
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


def get(url: str) -> bytes:
    """The bytes at a URL."""
    system, path = fsspec.core.url_to_fs(url)
    return bytes(system.cat_file(path))


def names(url: str) -> list[str]:
    """All files below a URL."""
    system, path = fsspec.core.url_to_fs(url)
    return sorted(name[len(path) :].lstrip("/") for name in system.find(path)) if system.exists(path) else []
