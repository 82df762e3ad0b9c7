"""Folders at URLs: at no moment is half of a result taken for one, whatever was there before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

from storages import Faulty, clear, fault, get, names, put
from topicscope.errors import InputError, RunError
from topicscope.records.output import output_folder, working_folder
from topicscope.records.places import place_of, url_of
from topicscope.records.storage import fetched, holds_result, publish

FILES = {"a.csv": b"1", "runs/b.npz": b"22", "record.json": b"{}", "z.png": b"333"}
URL = "faulty://bucket/out"


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TOPICSCOPE_CACHE", str(tmp_path / "cache"))
    clear()
    yield
    clear()


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def there() -> dict[str, bytes]:
    return {name: get(f"{URL}/{name}") for name in names(URL)}


def url(text: str = URL) -> UPath:
    found = url_of(text)
    assert found is not None
    return found


@pytest.mark.parametrize("before", [{}, {"record.json": b"old", "old.csv": b"old"}])
def test_the_record_comes_last_and_nothing_is_read_before(
    before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in before.items():
        put(f"{URL}/{name}", data)
    seen: list[tuple[bool, set[str]]] = []
    original = Faulty.put_file

    def watched(system: Faulty, here: str, path: str) -> None:
        seen.append((holds_result(url(), "record.json"), set(names(URL))))
        original(system, here, path)

    monkeypatch.setattr(Faulty, "put_file", watched)
    publish(fill(tmp_path / "out", FILES), url(), "record.json")
    assert there() == FILES
    assert holds_result(url(), "record.json")
    assert len(seen) == len(FILES)
    assert not any(whole for whole, _ in seen)
    assert all("record.json" not in found and ".unfinished" in found for _, found in seen)
    assert seen[-1][1] == set(FILES) - {"record.json"} | {".unfinished"}


@pytest.mark.parametrize("puts", range(4))
def test_wherever_the_copy_breaks_off_there_is_no_result_and_the_next_one_is_whole(puts: int, tmp_path: Path) -> None:
    folder = fill(tmp_path / "out", FILES)
    with fault("full", puts), pytest.raises(RunError, match=rf"(?s)connection was reset.*kept in {folder}.*--resume"):
        publish(folder, url(), "record.json")
    assert not holds_result(url(), "record.json")
    with pytest.raises(InputError, match="not copied to the end"):
        fetched(URL)
    publish(folder, url(), "record.json")
    assert there() == FILES
    copy, owner = fetched(URL)
    assert {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*.*")} == FILES
    assert copy.name == "out"
    del owner
    assert not copy.exists()


def test_a_copy_that_arrives_cut_short_is_noticed_on_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fault("truncates"), pytest.raises(RunError, match=r"of \d bytes of \w\.\w+ arrived"):
        publish(fill(tmp_path / "out", FILES), url(), "record.json")
    publish(tmp_path / "out", url(), "record.json")
    monkeypatch.setattr(Faulty, "get_file", lambda system, path, here: Path(here).write_bytes(b""))
    with pytest.raises(InputError, match=r"0 of \d bytes arrived"):
        fetched(URL)


def test_a_record_beside_the_mark_is_no_result() -> None:
    """As where a copy was killed before the old record went, or after the new one came."""
    put(f"{URL}/record.json", b"old")
    assert holds_result(url(), "record.json")
    put(f"{URL}/.unfinished", b"")
    assert not holds_result(url(), "record.json")
    with pytest.raises(InputError, match=r"(?s)half of a result.*--resume"), output_folder(URL, "record.json"):
        pass
    with output_folder(URL, "record.json", resume=True) as output:
        assert not output.copied
        fill(output.folder, FILES)
    assert there() == FILES


def test_after_an_error_work_stays_and_without_any_nothing_does() -> None:
    with pytest.raises(InputError, match="bad input"), output_folder(URL, "record.json"):
        raise InputError("bad input")
    assert not working_folder(URL).parent.exists()
    with pytest.raises(FileExistsError), output_folder(URL, "record.json") as output:
        fill(output.folder, FILES).mkdir()
    assert (working_folder(URL) / "a.csv").is_file()
    assert there() == {}
    with pytest.raises(InputError, match="was not finished"), output_folder(URL, "record.json"):
        pass
    with output_folder(URL, "record.json", resume=True) as output:
        assert (output.folder / "a.csv").is_file()
    assert there() == FILES


def test_two_runs_to_one_url_are_refused() -> None:
    with output_folder(URL, "record.json") as output:
        fill(output.folder, FILES)
        with (
            pytest.raises(InputError, match="another run is writing"),
            output_folder(URL, "record.json", resume=True),
        ):
            pass
    assert there() == FILES


def test_another_machine_finds_a_result_that_may_be_gone_on_with(tmp_path: Path) -> None:
    publish(fill(tmp_path / "elsewhere", FILES), url(), "record.json")
    with output_folder(URL, "record.json", resume=True) as output:
        assert output.copied
        (output.folder / "more.csv").write_bytes(b"4")
    assert there() == FILES | {"more.csv": b"4"}


def test_a_url_that_went_through_pathlib_has_lost_a_slash() -> None:
    for lost in (Path("s3://bucket/x"), Path("memory://bucket/x.txt")):
        with pytest.raises(InputError, match=r"(?s)lost a slash.*as a string"):
            place_of(lost)
    assert place_of(Path("odd:/x")) == Path("odd:/x")
