"""Golden claims: two that take seconds, and `topicscope reproduce --quick`, which takes minutes."""

import json
from pathlib import Path

from golden.recording import Recorder, succeed


def record_claims(recorder: Recorder) -> None:
    """claims.json of every claim: its quantities, their errors and the verdicts."""
    _record(recorder)


def record_two_claims(recorder: Recorder) -> None:
    """One claim of theory alone, and one that trains."""
    _record(recorder, "theory-holds", "landscape")


def _record(recorder: Recorder, *claims: str) -> None:
    succeed("reproduce", *claims, "--quick", "--seeds", 2, "--out", "reproduction", "--progress", "none")
    recorder.put("claims.json", json.loads((Path("reproduction") / "claims.json").read_text(encoding="utf-8")))
