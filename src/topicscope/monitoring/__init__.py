"""Topic structure while a model trains: what is measured, when, and what it costs."""

from topicscope.monitoring.callback import TopicStructureCallback
from topicscope.monitoring.checkpoints import probe_checkpoints
from topicscope.monitoring.history import MonitorHistory
from topicscope.monitoring.monitor import TopicStructureMonitor
from topicscope.monitoring.onsets import Onset, find_stages, onset
from topicscope.monitoring.series import RECORD, CheckpointSeries

__all__ = [
    "RECORD",
    "CheckpointSeries",
    "MonitorHistory",
    "Onset",
    "TopicStructureCallback",
    "TopicStructureMonitor",
    "find_stages",
    "onset",
    "probe_checkpoints",
]
