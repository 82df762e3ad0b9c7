"""Running the forward passes of a probe shard by shard, resumable, here or on other machines."""

from topicscope.probing.execution.executor import (
    Elsewhere,
    LeftOut,
    ModelSource,
    ShardLost,
    ShardRead,
    left_out_warnings,
)
from topicscope.probing.execution.forward_pass import PassResult, attention_pass, read_shard
from topicscope.probing.execution.state import PassSpec, Shard

__all__ = [
    "Elsewhere",
    "LeftOut",
    "ModelSource",
    "PassResult",
    "PassSpec",
    "Shard",
    "ShardLost",
    "ShardRead",
    "attention_pass",
    "left_out_warnings",
    "read_shard",
]
