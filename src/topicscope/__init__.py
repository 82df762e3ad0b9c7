"""topicscope shows how transformers learn topic structure.

Public names are loaded on first use, so that `import topicscope` stays quick and theory needs no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from topicscope.errors import InputError

try:
    __version__ = version("topicscope")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_HOME = {
    "CheckpointSeries": "topicscope.monitoring",
    "CircuitResult": "topicscope.probing.circuits",
    "Comparison": "topicscope.probing.results",
    "MonitorHistory": "topicscope.monitoring",
    "PairClass": "topicscope.topics",
    "ProbeConfig": "topicscope.probing",
    "ProbeResult": "topicscope.probing.results",
    "Reproduction": "topicscope.claims",
    "RunError": "topicscope.errors",
    "RunRecord": "topicscope.records",
    "Setting": "topicscope.synthetic",
    "SweepResult": "topicscope.experiments",
    "TopicModel": "topicscope.topics",
    "TopicStructureCallback": "topicscope.monitoring",
    "TopicStructureMonitor": "topicscope.monitoring",
    "TopicscopeError": "topicscope.errors",
    "UnsupportedModelError": "topicscope.errors",
    "Vocabulary": "topicscope.topics",
    "circuits": "topicscope.probing.circuits",
    "compare": "topicscope.probing.results",
    "probe": "topicscope.probing",
    "probe_checkpoints": "topicscope.monitoring",
    "reproduce": "topicscope.claims",
    "sweep": "topicscope.experiments",
    "train": "topicscope.lab",
}

# The record in a folder tells which result it holds.
_RECORDS = {
    "result.json": "ProbeResult",
    "circuits.json": "CircuitResult",
    "series.json": "CheckpointSeries",
    "sweep.json": "SweepResult",
    "summary.json": "RunRecord",
    "claims.json": "Reproduction",
    "comparison.json": "Comparison",
    "topic_structure.jsonl": "MonitorHistory",
    "recipe.json": "RunRecord",  # an unfinished one, which its class explains
}

__all__ = [*_HOME, "InputError", "__version__", "load"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'topicscope' has no attribute {name!r}")


def load(folder: str | Path) -> Any:
    """Read any result from the folder that `save` or `--out` wrote.

    Raises:
        InputError: no result there, one that is damaged or of another version, or a URL.
    """
    place = import_module("topicscope.records").result_path(folder)
    found = [name for record, name in _RECORDS.items() if (place / record).is_file()]
    if not found:
        raise InputError(
            "no saved result",
            received=str(folder),
            expected="a folder that `topicscope probe`, `circuits`, `train`, `sweep` or `reproduce` wrote",
            advice="name the folder itself, as it was given to --out",
        )
    return __getattr__(found[0]).load(place)


def __dir__() -> list[str]:
    return sorted(__all__)
