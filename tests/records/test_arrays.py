"""Arrays that cannot be what they are read for are refused by their headers, before anything is unpacked."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.records import arrays as module
from topicscope.records import read_npy, read_npz
from topicscope.synthetic import MaskedBatch
from topicscope.topics import TopicModel, Topics, load_any, load_phi, save_topics
from topicscope.topics.files import import_matrix

WORDS = np.array([f"w{i}" for i in range(6)])
PARTS = {
    "schema_version": np.array(1),
    "phi": np.full((2, 6), 1 / 6) + np.eye(2, 6) / 12 - np.eye(2, 6, 3) / 12,
    "alpha": np.full(2, 0.1),
    "words": WORDS,
    "provenance": np.array("{}"),
}


def header(dtype: str, shape: tuple[int, ...], version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == (1, 0) else np.lib.format.write_array_header_2_0
    write(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def write_members(path: Path, members: dict[str, Any], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    """An npz of arrays, or of bytes as they are; a pair (dtype, shape) is an array of zeros, never held at once."""
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if isinstance(content, bytes):
                    member.write(content)
                elif isinstance(content, tuple):
                    member.write(header(*content))
                    left = int(np.prod(content[1])) * np.dtype(content[0]).itemsize
                    while left:
                        left -= member.write(bytes(min(left, 2**22)))
                else:
                    np.lib.format.write_array(member, np.asanyarray(content), allow_pickle=False)
    return path


@pytest.fixture
def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("the data of an array were read")

    monkeypatch.setattr(np.lib.format, "read_array", read)


def refused(load: Callable[[], Any], match: str) -> InputError:
    """The error of a load that takes next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=match) as caught:
            load()
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert caught.value.exit_code == 2
    assert caught.value.received is not None
    assert caught.value.expected is not None
    return caught.value


HUGE = ("<f8", (500, 10_000))  # 40 MB from 40 kB


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({**PARTS, "phi": HUGE}, "wrong shape"),
        ({**PARTS, "phi": HUGE, "alpha": np.full(500, 0.1), "words": np.arange(10_000).astype("U5")}, "one value"),
        ({**PARTS, "theta": HUGE}, r"no part of topics"),
        ({**PARTS, "alpha": np.full(3, 0.1)}, "wrong shape"),
        ({**PARTS, "words": np.arange(6)}, "list of text"),
        ({**PARTS, "schema_version": ("<f8", (10**7,))}, "another schema"),
        ({"phi": HUGE, "words": WORDS}, "matrix and words do not fit"),
        ({"matrix": HUGE, "vocabulary": np.arange(10_000).astype("U5")}, "one value"),
    ],
)
def test_topics_that_cannot_be_topics(
    members: dict[str, Any], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGE", 2**24)
    path = write_members(tmp_path / "topics.npz", members)
    read = np.lib.format.read_array
    with pytest.MonkeyPatch.context() as patch:  # the schema version may be read, being one number

        def small(stream: Any, **options: Any) -> np.ndarray:
            found: np.ndarray = read(stream, **options)
            assert found.size == 1, "the data of an array were read"
            return found

        patch.setattr(np.lib.format, "read_array", small)
        refused(lambda: load_any(path), match)


def test_the_parts_that_fit_are_read_and_a_small_stranger_is_let_be(tmp_path: Path) -> None:
    """Negative control: the same files whole."""
    found = load_any(write_members(tmp_path / "topics.npz", {**PARTS, "note": np.arange(3)}))
    assert isinstance(found, Topics)
    assert np.array_equal(found.model.phi, PARTS["phi"])
    save_topics(tmp_path / "saved.npz", found)
    again = load_any(tmp_path / "saved.npz")
    assert isinstance(again, Topics)
    assert again.model.vocabulary.words == tuple(WORDS)


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A matrix of somebody else's may have its documents beside it."""
    path = write_members(tmp_path / "m.npz", {"phi": PARTS["phi"], "words": WORDS, "theta": HUGE})
    tracemalloc.start()
    try:
        assert isinstance(load_any(path), Topics)
        assert isinstance(load_phi(path), TopicModel)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("never_read")
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (("|O", (3,)), "pickled"),
        (header("<f8", (10**9, 10**9)), "does not fit"),
        (header("<f8", (3,)) + bytes(32), "does not fit"),
        (header("<f8", (3,)).replace(b"(3,)", b"(-3,)"), "impossible shape|no header"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(2**20), "no header"),
        (b"\x93NUMPY\x03\x00" + struct.pack("<I", 10) + bytes(10), "no header"),
        (pickle.dumps({"a": 1}), "no header"),
        (b"", "no header"),
    ],
)
def test_members_that_are_no_plain_arrays(content: Any, match: str, tmp_path: Path) -> None:
    data = header(*content) + bytes(24) if isinstance(content, tuple) else content
    path = write_members(tmp_path / "a.npz", {"a": data})
    error = refused(lambda: read_npz(path), match)
    assert "allow_pickle" not in str(error)
    (tmp_path / "a.npy").write_bytes(data)
    error = refused(lambda: read_npy(tmp_path / "a.npy"), match)
    assert "allow_pickle" not in str(error)


@pytest.mark.usefixtures("never_read")
def test_what_would_not_fit_in_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "memory_available", lambda: 4 * 8 * 999)
    np.savez(tmp_path / "a.npz", a=np.zeros(1000))
    np.save(tmp_path / "a.npy", np.zeros(1000))
    np.savez(tmp_path / "half.npz", a=np.zeros(1000, np.float16))  # becomes float64
    refused(lambda: read_npz(tmp_path / "a.npz"), "quarter of the available memory")
    refused(lambda: read_npy(tmp_path / "a.npy"), "quarter of the available memory")
    refused(lambda: read_npz(tmp_path / "half.npz"), "quarter of the available memory")


def test_what_just_fits_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "memory_available", lambda: 4 * 8 * 1000)
    np.savez(tmp_path / "a.npz", a=np.zeros(1000))
    assert read_npz(tmp_path / "a.npz")["a"].shape == (1000,)


def test_memory_is_known_here() -> None:
    assert 2**20 < module.memory_available() <= 2**63


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packing_that_unpacks_a_block_to_any_size(kind: int, tmp_path: Path) -> None:
    path = write_members(tmp_path / "a.npz", {"a": ("<f8", (1_000_000,))}, kind)
    refused(lambda: read_npz(path), "packed in another way")


def directory_claims(path: Path, file_size: int) -> Path:
    """Change the unpacked size of the only member in the directory of a zip."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, file_size)
    path.write_bytes(data)
    return path


def test_a_directory_that_lies(tmp_path: Path) -> None:
    zeros = header("<f8", (1_000_000,)) + bytes(8_000_000)
    small = header("<f8", (2,))
    for name, content, claimed, match in (
        ("less than the header says", zeros, len(small) + 16, "CRC"),
        ("less than it unpacks to", small + zeros, len(small) + 16, "CRC"),
        ("more than the bytes can hold", small + bytes(16), 2**31, "packed bytes"),
    ):
        path = tmp_path / f"{name}.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", content)
        refused(partial(read_npz, directory_claims(path, claimed)), match)


def test_overlapping_and_repeated_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "two.npz", "w") as archive:
        archive.writestr("a.npy", header("<f8", (1,)) + bytes(8))
        archive.writestr("a", header("<f8", (1,)) + bytes(8))
    refused(lambda: read_npz(tmp_path / "two.npz"), "two arrays called a")


@pytest.mark.usefixtures("never_read")
def test_matrices_of_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.ones((2, 4)))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    refused(lambda: load_phi(tmp_path / "cube.npy"), "no matrix")
    with pytest.raises(InputError, match="no numbers"):
        load_phi(tmp_path / "text.npy")
    with pytest.raises(InputError, match="no array vocabulary"):
        import_matrix(tmp_path / "m.npy")


@pytest.mark.usefixtures("never_read")
def test_masked_documents_that_do_not_fit(tmp_path: Path) -> None:
    ids, mask = np.ones((2, 3), np.int64), np.ones((2, 3), bool)
    parts = {"input_ids": ids, "labels": ids, "selected": mask, "attendable": mask, "vocabulary_size": np.array(2)}
    np.savez(tmp_path / "a.npz", **{**parts, "labels": np.ones((2, 4), np.int64)})  # type: ignore[arg-type]
    refused(lambda: MaskedBatch.load(tmp_path / "a.npz"), "differ in shape")
