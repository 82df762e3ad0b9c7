"""`--overwrite` of every command: an earlier result is replaced, of whatever options, and nothing else ever is."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli.probe_files import WORDS_CSV, jsonl, save_model, texts
from experiments.small_sweeps import write as write_sweep
from topicscope.cli import probe as probe_command
from topicscope.cli import run
from topicscope.records import CIRCUITS, PROBE, RUN, SERIES, SWEEP
from topicscope.records.contents import CONTENTS, Layout

LAYOUTS = {"probe": PROBE, "series": SERIES, "circuits": CIRCUITS, "train": RUN, "sweep": SWEEP}
RECORDS = {name: layout.records[0] for name, layout in LAYOUTS.items()}
# Options under which another result comes out.
OTHERS = {
    "probe": ("--seed", "7"),
    "series": ("--seed", "7"),
    "circuits": ("--overlap", "keep"),
    "train": ("--set", "training.seed=7"),
    "sweep": ("--set", "training.seed=7"),
}
commands = pytest.mark.parametrize("command", list(LAYOUTS))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, a text, topics, recipes, and a finished result of every command in made/COMMAND."""
    place = tmp_path_factory.mktemp("given")
    save_model(place / "models" / "checkpoint-10")
    jsonl(place / "texts.jsonl", texts())
    (place / "words.csv").write_text(WORDS_CSV)
    write_sweep(place / "recipes")
    for command in LAYOUTS:
        assert run([*arguments(command, place), "--out", str(place / "made" / command)]) == 0, command
    return place


def arguments(command: str, given: Path) -> list[str]:
    model, words, text = given / "models" / "checkpoint-10", given / "words.csv", given / "texts.jsonl"
    probing = ["--corpus", text, "--topics", words, "--controls", 0, "--permutations", 20, "--profile", 0]
    given_words: dict[str, Sequence[object]] = {
        "probe": ["probe", model, *probing],
        "series": ["probe", "--checkpoints", given / "models", *probing],
        "circuits": ["circuits", model, "--topics", words],
        "train": ["train", given / "recipes" / "tiny.toml"],
        "sweep": ["sweep", given / "recipes" / "sweep.toml"],
    }
    return [str(word) for word in given_words[command]]


@pytest.fixture
def project(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A folder to work in, with a finished result of a command in PROJECT/out."""

    def made(command: str) -> Path:
        folder = tmp_path / "project"
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref")
        (folder / "notes.txt").write_text("mine")
        shutil.copytree(given / "made" / command, folder / "out")
        monkeypatch.chdir(folder)
        return folder

    return made


def tree(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


@commands
def test_every_file_that_is_written_is_known(command: str, given: Path) -> None:
    """By its list, and by the patterns that stand in where there is none."""
    out, layout = given / "made" / command, LAYOUTS[command]
    listed = set(json.loads((out / CONTENTS).read_text())["files"]) | {CONTENTS}
    assert listed == {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    unlisted = Layout(layout.name, layout.records, layout.patterns, listed=False)
    assert unlisted.survey(out).foreign == ()


@commands
def test_foreign_files_and_folders_are_named_and_stay(
    command: str, given: Path, project: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(command)
    (folder / "out" / "thesis.docx").write_text("mine")
    (folder / "out" / "photos").mkdir()
    (folder / "out" / "photos" / "1.jpg").write_text("mine")
    before = tree(folder)
    assert run([*arguments(command, given), "--out", "out", "--overwrite"]) == 2
    message = capsys.readouterr().err
    assert "received: photos/, thesis.docx" in message
    assert "choose another --out, or move these files away" in message
    assert tree(folder) == before


@commands
@pytest.mark.parametrize("out", ["others", ".", "..", "out/..", "/"])
def test_what_is_no_result_is_never_replaced(
    command: str, out: str, given: Path, project: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(command)
    (folder / "others").mkdir()
    (folder / "others" / "thesis.docx").write_text("mine")
    before = tree(folder.parent)
    assert run([*arguments(command, given), "--out", out, "--overwrite"]) == 2
    assert "--out" in capsys.readouterr().err
    assert tree(folder.parent) == before


@commands
@pytest.mark.parametrize("listed", [True, False])
def test_an_earlier_result_is_replaced(command: str, listed: bool, given: Path, project: Callable[[str], Path]) -> None:
    """Of other options as well as of the same, and of a time when results did not list their files."""
    folder = project(command)
    record = folder / "out" / RECORDS[command]
    if not listed:
        for path in (folder / "out").rglob(CONTENTS):
            path.unlink()
    for _ in range(2):
        before = record.stat().st_mtime_ns
        assert run([*arguments(command, given), *OTHERS[command], "--out", "out", "--overwrite"]) == 0
        assert record.stat().st_mtime_ns > before, "it ran again"
    assert LAYOUTS[command].survey(folder / "out").foreign == ()
    assert {path.name for path in folder.iterdir()} == {".git", "notes.txt", "out"}


@commands
def test_a_page_that_was_drawn_again_is_replaced_with_the_rest(
    command: str, given: Path, project: Callable[[str], Path]
) -> None:
    folder = project(command)
    if command == "circuits":
        pytest.skip("has no page")
    (folder / "out" / "report.html").unlink()
    inner = {"sweep": sorted((folder / "out" / "runs").glob("*/"))[:1] if command == "sweep" else []}
    for result in (folder / "out", *inner.get(command, [])):
        assert run(["report", str(result)]) == 0
    assert run([*arguments(command, given), "--out", "out", "--overwrite"]) == 0


@commands
def test_out_may_be_a_link_to_a_folder(command: str, given: Path, project: Callable[[str], Path]) -> None:
    folder = project(command)
    (folder / "out").rename(folder / "disk")
    (folder / "out").symlink_to("disk")
    before = (folder / "disk" / RECORDS[command]).stat().st_mtime_ns
    assert run([*arguments(command, given), "--out", "out", "--overwrite"]) == 0
    assert os.readlink(folder / "out") == "disk"
    assert (folder / "disk" / RECORDS[command]).stat().st_mtime_ns > before
    (folder / "new").mkdir()
    (folder / "empty").symlink_to("new")
    assert run([*arguments(command, given), "--out", "empty"]) == 0
    assert (folder / "new" / RECORDS[command]).is_file()
    assert os.readlink(folder / "empty") == "new"


@pytest.mark.parametrize("command", [*LAYOUTS, "reproduce"])
def test_a_link_to_nowhere_is_refused_before_any_work(
    command: str, given: Path, project: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project("train")
    (folder / "link").symlink_to("nowhere")
    words = ["reproduce", "theory-holds"] if command == "reproduce" else arguments(command, given)
    flags: list[list[str]] = [[], ["--resume"]] if command == "reproduce" else [[], ["--overwrite"]]
    before = tree(folder)
    for more in flags:
        assert run([*words, "--out", "link", *more]) == 2
        assert "points nowhere" in capsys.readouterr().err
    assert tree(folder) == before


def test_the_topics_of_an_earlier_result_are_an_input(
    given: Path, project: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project("probe")
    model, text = given / "models" / "checkpoint-10", given / "texts.jsonl"
    fitted = ["probe", model, "--corpus", text, "--topics", 3, "--sweeps", 10, "--min-count", 1, "--threshold", 0.2]
    words = [str(word) for word in [*fitted, "--controls", 0, "--permutations", 0, "--profile", 0]]
    assert run([*words, "--out", "fit"]) == 0
    before = tree(folder)
    words[words.index("--topics") + 1] = "fit/topics.npz"
    assert run([*words, "--out", "fit", "--overwrite"]) == 2
    assert "an input of this command" in capsys.readouterr().err
    assert tree(folder) == before


def test_only_a_topics_file_is_replaced_by_another(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Above all not the text."""
    words = [
        "topics",
        "fit",
        given / "texts.jsonl",
        "--topics",
        2,
        "--sweeps",
        5,
        "--min-count",
        1,
        "--overwrite",
        "-o",
    ]
    notes, link = tmp_path / "notes.txt", tmp_path / "link.npz"
    notes.write_text("mine")
    text = (given / "texts.jsonl").read_bytes()
    for target in (notes, given / "texts.jsonl"):
        assert run([str(word) for word in [*words, target]]) == 2
        assert "did not write" in capsys.readouterr().err
    assert (notes.read_text(), (given / "texts.jsonl").read_bytes()) == ("mine", text)
    link.symlink_to(tmp_path / "topics.npz")
    assert run([str(word) for word in [*words, link]]) == 2
    for target in (tmp_path / "topics.npz", tmp_path / "topics.npz", link):
        assert run([str(word) for word in [*words, target]]) == 0
    assert link.is_symlink()


def test_only_a_page_is_replaced_by_another(given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.html"
    notes.write_text("<p>mine")
    result = str(given / "made" / "probe")
    for folders in ([result], [result, result]):
        assert run(["report", *folders, "--out", str(notes)]) == 2
        assert "did not write" in capsys.readouterr().err
        for _ in range(2):
            assert run(["report", *folders, "--out", str(tmp_path / "page.html")]) == 0
    assert notes.read_text() == "<p>mine"


def test_the_demo_may_be_run_again(monkeypatch: pytest.MonkeyPatch, given: Path, tmp_path: Path) -> None:
    """Also when its options have changed with a version."""
    shutil.copytree(given / "made" / "probe", tmp_path / "demo")
    heard: list[object] = []
    monkeypatch.setattr(probe_command, "probe", lambda *_, **options: heard.append(options) or 0)
    assert run(["demo", "--out", str(tmp_path / "demo")]) == 0
    assert heard[0]["run"].overwrite is True  # type: ignore[index]
