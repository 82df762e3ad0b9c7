"""What `topicscope reproduce` left in a folder, read back as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import InputError
from topicscope.records import RunRecord, read_json, read_npz

SCHEMA_VERSION = 1
Row = Mapping[str, Any]
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class ReproductionRecord:
    """A folder of `topicscope reproduce`, finished or not.

    | field | meaning |
    | --- | --- |
    | folder | where it lies |
    | manifest | options, environment, and under `sources` of every chosen claim its title, place, assertion, rule |
    | claims | the finished claims of claims.json, by id |
    """

    folder: Path
    manifest: dict[str, Any]
    claims: dict[str, dict[str, Any]]

    def about(self, claim: str) -> dict[str, Any]:
        """Title, where, assertion, recipes, theory, verdict_rule and criteria of a chosen claim."""
        return dict(self.manifest["sources"].get(claim, {}))

    def finished(self, claim: str) -> dict[str, Any]:
        """The content of finished/ID.json: evidence and seconds; nothing where the file is not there."""
        path = self.folder / "finished" / f"{claim}.json"
        return dict(read_json(path)) if path.is_file() else {}

    def runs(self, claim: str) -> list[tuple[Entry, RunRecord]]:
        """The training runs of a claim, each once, in the order in which it asked for them; lost ones are left out."""
        found: dict[str, tuple[Entry, RunRecord]] = {}
        for entry in self.finished(claim).get("evidence", []):
            path = self.folder / "runs" / entry["path"]
            if path.is_dir() and entry["path"] not in found:
                found[entry["path"]] = (entry, RunRecord.load(path))
        return list(found.values())

    def arrays(self, claim: str) -> list[tuple[Entry, dict[str, np.ndarray]]]:
        """The arrays that a claim kept for its figure, with their labels; lost ones are left out."""
        entries = [(entry, self.folder / "runs" / entry["path"]) for entry in self.finished(claim).get("evidence", [])]
        return [(entry, read_npz(path)) for entry, path in entries if path.suffix == ".npz" and path.is_file()]


def load_reproduction(folder: Path | str) -> ReproductionRecord:
    """Read a folder written by `topicscope reproduce`.

    Raises:
        InputError: no such folder, no manifest in it, or another schema version.
    """
    folder = Path(folder)
    manifest, claims = folder / "manifest.json", folder / "claims.json"
    if not manifest.is_file():
        raise InputError("no reproduction here", received=str(folder), expected="a folder of `topicscope reproduce`")
    document: dict[str, Any] = (
        read_json(claims) if claims.is_file() else {"schema_version": SCHEMA_VERSION, "claims": []}
    )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            "unknown schema version",
            received=document.get("schema_version"),
            expected=SCHEMA_VERSION,
            where=str(claims),
            advice="read it with the version of topicscope that wrote it",
        )
    return ReproductionRecord(folder, read_json(manifest), {claim["id"]: claim for claim in document["claims"]})


def training_words(run: RunRecord) -> str:
    """How a run was trained, for a figure: "cross-entropy, Adam 0.01"."""
    training = run.config["training"]
    optimizer = {"sgd": "SGD", "adam": "Adam"}[training["optimizer"]]
    return f"{training['loss']}, {optimizer} {training['learning_rate']:g}"
