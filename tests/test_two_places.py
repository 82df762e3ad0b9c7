"""A new attention ratio is added in two places, its statistic and its label: tables, page and terminal follow."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STATISTIC = "src/topicscope/probing/statistics/attention_ratios.py"
LABEL = "src/topicscope/report/labels.py"
NAME, WORDS = "attention_ratio_frequency_matched", "frequency-matched only"
PROBE = """
import sys
from pathlib import Path
import topicscope
from cli.probe_files import WORDS_CSV, jsonl, save_model, texts
from topicscope.cli import run

folder = Path(sys.argv[1])
assert Path(topicscope.__file__).is_relative_to(folder), topicscope.__file__
(folder / "words.csv").write_text(WORDS_CSV)
corpus, model = jsonl(folder / "corpus.jsonl", texts()), save_model(folder / "model")
options = ["--corpus", str(corpus), "--topics", str(folder / "words.csv"), "--controls", "1", "--progress", "none"]
assert run(["probe", str(model), *options, "--out", str(folder / "run")]) == 0
row = topicscope.load(folder / "run").table().iloc[0]
print(*(f"{name}={row[name]}" for name in row.index if name.startswith(sys.argv[2])))
"""


def insert_after(path: Path, line: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(line) == 1
    path.write_text(text.replace(line, line + new), encoding="utf-8")


@pytest.mark.process
def test_a_ratio_is_added_by_its_statistic_and_its_label(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    line = '    AttentionRatio("attention_ratio_distinct", DISTINCT),\n'
    insert_after(tmp_path / STATISTIC, line, f'    AttentionRatio("{NAME}", PAIRED, matched="frequency"),\n')
    line = "RATIOS: Mapping[str, Quantity] = {\n"
    insert_after(tmp_path / LABEL, line, f'    "{NAME}": Quantity("{WORDS}", "Same frequencies.", "#123456", "h"),\n')
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path), NAME],
        env=os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{ROOT / 'tests'}", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    columns = dict(pair.split("=") for pair in done.stdout.splitlines()[-1].split())
    assert list(columns) == [f"{NAME}{end}" for end in ("", "_se", "_low", "_high")]
    assert 0.5 < float(columns[NAME]) < 2
    assert float(columns[f"{NAME}_se"]) > 0
    assert WORDS in done.stdout
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count(WORDS) > 1
    assert "Same frequencies." in page
