"""topicscope shows how transformers learn topic structure.

Public names are loaded on first use, so that `import topicscope` stays quick and theory needs no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("topicscope")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_HOME = {
    "CheckpointSeries": "topicscope.monitoring",
    "CircuitResult": "topicscope.probing.circuits",
    "InputError": "topicscope.errors",
    "PairClass": "topicscope.topics",
    "ProbeResult": "topicscope.probing.results",
    "RunError": "topicscope.errors",
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
    "load_run": "topicscope.records",
    "probe": "topicscope.probing",
    "probe_checkpoints": "topicscope.monitoring",
    "reproduce": "topicscope.claims",
    "sweep": "topicscope.experiments",
    "train": "topicscope.lab",
}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'topicscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
