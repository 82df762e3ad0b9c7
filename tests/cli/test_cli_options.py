"""Folders that a command chooses itself."""

import pytest

from topicscope.cli.options import RunOptions


def test_runs_of_one_second_get_folders_of_their_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = []
    for _ in range(5):
        chosen.append(RunOptions().folder("bert"))
        chosen[-1].mkdir(parents=True)
    assert len(set(chosen)) == 5
    assert all(str(folder).startswith("topicscope-runs/bert-2") for folder in chosen)
