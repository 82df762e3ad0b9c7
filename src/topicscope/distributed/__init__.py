"""Work on many machines, by Ray: the same command, the same numbers."""

from topicscope.distributed.cluster import Cluster

__all__ = ["Cluster"]
