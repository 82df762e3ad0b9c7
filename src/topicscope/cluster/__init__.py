"""Work on many machines, by Ray: the same command, the same numbers."""

from topicscope.cluster.readers import Cluster

__all__ = ["Cluster"]
