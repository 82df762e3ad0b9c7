"""The reproduction on a Ray cluster: the document of one process, whichever worker runs which claim."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import topicscope.report as page
from topicscope.claims import reproduce
from topicscope.cli import run as cli

pytestmark = pytest.mark.cluster
CHEAP = ("theory-holds", "attention-diagonal")


def test_the_numbers_are_those_of_one_process(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[str | None] = []
    monkeypatch.setattr(page, "write_reproduction", lambda folder, drawn=None, done=drawn: done.append(drawn))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reproduce(CHEAP, quick=True, seeds=2, out=tmp_path / "here")
    finally:
        torch.set_num_threads(threads)
    assert drawn == list(CHEAP)
    options = ["--quick", "--seeds", "2", "--progress", "none", "--json", "--cluster", "auto", "--workers", "2"]
    assert cli(["reproduce", *CHEAP, *options, "--out", str(tmp_path / "there")]) == 0
    found = (tmp_path / "there" / "claims.json").read_text()
    assert json.loads(capsys.readouterr().out) == json.loads(found)
    assert found == (tmp_path / "here" / "claims.json").read_text()
    assert sorted(map(str, drawn[len(CHEAP) :])) == sorted(CHEAP)
    here, there = (sorted(path.name for path in (tmp_path / name / "runs").iterdir()) for name in ("here", "there"))
    assert here == there
