"""Topic structure in pretrained models: from a model and text to a `ProbeResult`. The steps are in the sub-packages
`tokens`, `hf`, `attention`, `statistics`, `embeddings`, `circuits`, `results` and `execution`."""

from topicscope.probing.config import DEFAULT_THRESHOLDS, ProbeConfig, ProbeOverrides
from topicscope.probing.inputs import (
    Documents,
    FittedTopics,
    Given,
    TopicSource,
    configurations_of,
    corpus_of,
    identity_of,
    paths_of,
    read_topics,
    topics_from,
    view_of,
)
from topicscope.probing.probe import probe

__all__ = [
    "DEFAULT_THRESHOLDS",
    "Documents",
    "FittedTopics",
    "Given",
    "ProbeConfig",
    "ProbeOverrides",
    "TopicSource",
    "configurations_of",
    "corpus_of",
    "identity_of",
    "paths_of",
    "probe",
    "read_topics",
    "topics_from",
    "view_of",
]
