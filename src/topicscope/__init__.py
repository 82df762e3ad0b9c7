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
    "CheckpointSeries": "topicscope.monitoring.series",
    "CircuitResult": "topicscope.probing.circuits",
    "InputError": "topicscope.errors",
    "PairClass": "topicscope.topics.pairs",
    "ProbeResult": "topicscope.probing.result",
    "RunError": "topicscope.errors",
    "Setting": "topicscope.topics.setting",
    "SweepResult": "topicscope.sweeps.result",
    "TopicModel": "topicscope.topics.topic_model",
    "TopicStructureCallback": "topicscope.monitoring.callback",
    "TopicStructureMonitor": "topicscope.monitoring.monitor",
    "TopicscopeError": "topicscope.errors",
    "UnsupportedModelError": "topicscope.errors",
    "Vocabulary": "topicscope.topics.vocabulary",
    "circuits": "topicscope.probing.circuits",
    "compare": "topicscope.probing.compare",
    "load_run": "topicscope.records.run_record",
    "probe": "topicscope.probing.probe",
    "probe_checkpoints": "topicscope.monitoring.series_run",
    "reproduce": "topicscope.claims.reproduce",
    "sweep": "topicscope.sweeps.run",
    "train": "topicscope.training.loop",
}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'topicscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
