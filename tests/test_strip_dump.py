"""examples/strip_dump.py: the parts of a dump as prose, each once, whatever was stopped or broken before."""

import bz2
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topicscope.text import open_corpus

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "strip_dump.py"


def strip(parts: list[Path], out: Path, workers: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, parts), "--out", str(out), "--workers", str(workers)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def dump(path: Path, *pages: tuple[str, str]) -> Path:
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><id>{i}</id><revision><text>{text}</text></revision></page>"
        for i, (title, text) in enumerate(pages)
    )
    path.write_bytes(bz2.compress(f"<mediawiki>{body}</mediawiki>".encode()))
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [
        dump(tmp_path / "wiki1.xml-p1p9.bz2", ("Rivers", "A '''river''' runs."), ("Stream", "#REDIRECT [[Rivers]]")),
        dump(tmp_path / "wiki2.xml-p10p19.bz2", ("Zürich", "A [[city|town]] by a lake.")),
    ]


def texts(path: Path) -> list[tuple[str, str]]:
    return [(document.id, document.text) for document in open_corpus(path, id_column="id")]


def test_each_part_is_stripped_and_what_is_left_out_is_counted(parts: list[Path], tmp_path: Path) -> None:
    done = strip(parts, tmp_path / "out", 2)
    assert texts(tmp_path / "out" / "wiki1.xml-p1p9.bz2.jsonl.zst") == [("Rivers", "A river runs.")]
    assert texts(tmp_path / "out" / "wiki2.xml-p10p19.bz2.jsonl.zst") == [("Zürich", "A town by a lake.")]
    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert counts[parts[0].name] == {"articles": 1, "left out": {"redirect": 1}}
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 articles" in done.stdout.splitlines()[-1]


def test_a_stopped_run_goes_on_and_a_broken_part_is_named(parts: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = parts[1].read_bytes()
    parts[1].write_bytes(whole[:20])
    done = strip(parts, out, 1)
    assert done.returncode == 1
    assert "wiki2.xml-p10p19.bz2: " in done.stdout
    first = out / "wiki1.xml-p1p9.bz2.jsonl.zst"
    assert [path.name for path in out.glob("*.zst")] == [first.name]
    os.utime(first, (1, 1))
    parts[1].write_bytes(whole)
    assert strip(parts, out, 1).returncode == 0
    assert first.stat().st_mtime == 1, "what was there is not done again"
    assert texts(out / "wiki2.xml-p10p19.bz2.jsonl.zst") == [("Zürich", "A town by a lake.")]
