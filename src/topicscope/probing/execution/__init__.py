"""Running the forward passes of a probe shard by shard, resumable, here or on other machines."""

from topicscope.probing.execution.forward_pass import (
    Chunk,
    LeftOut,
    ModelSource,
    PassResult,
    ShardExecutor,
    ShardLost,
    ShardRead,
    attention_pass,
    read_shard,
    shard_chunks,
)
from topicscope.probing.execution.state import PassSpec, Shard

__all__ = [
    "Chunk",
    "LeftOut",
    "ModelSource",
    "PassResult",
    "PassSpec",
    "Shard",
    "ShardExecutor",
    "ShardLost",
    "ShardRead",
    "attention_pass",
    "read_shard",
    "shard_chunks",
]
